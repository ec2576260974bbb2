"""Every way the broker refuses or fails, as one tree of exceptions.

There are no wire codes here: `kafka/errors.py` and `amqp/errors.py` each hold one table from these
classes to the codes of their protocol, and a test proves both tables total. The message of an
error is a sentence for the person who caused it: what was wrong, and what would be right.
"""

from __future__ import annotations


class PenstockError(Exception):
    """Everything that Penstock raises on purpose. `client/errors.py` has those of the library."""


class BrokerError(PenstockError):
    """Something the broker refused or could not do. The text is meant for the client."""


# --- the request itself ---------------------------------------------------------------------------


class InvalidRequest(BrokerError):
    """The request is well formed but asks for something contradictory."""


class MalformedRequest(BrokerError):
    """The bytes cannot be read as the request they claim to be; the connection is closed."""


class UnsupportedVersion(BrokerError):
    """The request names an API version this broker does not serve."""


class RequestTimedOut(BrokerError):
    """The work did not finish within the time the client gave it."""


class ThrottlingQuotaExceeded(BrokerError):
    """A quota refuses this request outright (most quotas only delay)."""


# --- topics and configuration ---------------------------------------------------------------------


class UnknownTopicOrPartition(BrokerError):
    """No topic of that name, or no such partition in it."""


class UnknownTopicId(BrokerError):
    """No topic has that id."""


class InconsistentTopicId(BrokerError):
    """The topic id does not belong to the topic of that name."""


class TopicExists(BrokerError):
    """A topic of that name already exists."""


class InvalidTopicName(BrokerError):
    """The name cannot be a topic: empty, `.`, `..`, over 249 characters, or a forbidden one."""


class InvalidPartitions(BrokerError):
    """The partition count is not possible."""


class InvalidReplicationFactor(BrokerError):
    """There are not that many brokers."""


class InvalidReplicaAssignment(BrokerError):
    """The manual assignment names unknown brokers or leaves a partition out."""


class InvalidConfig(BrokerError):
    """A setting does not exist or its value is out of bounds."""


class PolicyViolation(BrokerError):
    """A rule of this broker forbids it."""


# --- reading and writing the log ------------------------------------------------------------------


class OffsetOutOfRange(BrokerError):
    """The offset is before the log's start or after its end."""


class CorruptRecord(BrokerError):
    """A batch's length, magic byte, checksum or count is wrong."""


class InvalidRecord(BrokerError):
    """A record breaks a rule of its topic. `record_errors` names which ones, by index."""

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidTimestamp(InvalidRecord):
    """A record's timestamp is further from the broker's clock than its topic allows."""


class RecordTooLarge(BrokerError):
    """A batch is larger than `max.message.bytes`."""


class RecordListTooLarge(BrokerError):
    """A batch is larger than a whole segment may be."""


class UnsupportedCompression(BrokerError):
    """The codec is unknown, or may not be used at this API version."""


class UnsupportedMessageFormat(BrokerError):
    """Record batches older than magic 2 are not stored."""


class InvalidRequiredAcks(BrokerError):
    """`acks` must be 0, 1 or -1."""


class NotEnoughReplicas(BrokerError):
    """Fewer replicas are in sync than `min.insync.replicas` asks for; nothing was written."""


class NotEnoughReplicasAfterAppend(BrokerError):
    """The record was written, but the in-sync set shrank before it was safe."""


class NotLeader(BrokerError):
    """This broker does not lead that partition."""


class FencedLeaderEpoch(BrokerError):
    """The client's leader epoch is older than the partition's."""


class UnknownLeaderEpoch(BrokerError):
    """The client's leader epoch is newer than the partition's."""


class StorageError(BrokerError):
    """The disk refused: full, read-only or failing. Nothing was acknowledged."""


class FetchSessionNotFound(BrokerError):
    """The fetch session is unknown (evicted, or of an earlier run)."""


class InvalidFetchSessionEpoch(BrokerError):
    """The fetch session's epoch is not the expected one."""


class FetchSessionTopicIdMismatch(BrokerError):
    """The fetch session names topics by name and the request by id, or the other way round."""


class ElectionNotNeeded(BrokerError):
    """The preferred leader already leads."""


# --- groups, and last share groups ----------------------------------------------------------------


class CoordinatorNotAvailable(BrokerError):
    """The coordinator cannot answer now; ask again."""


class CoordinatorLoading(BrokerError):
    """The coordinator is reading its state; ask again."""


class NotCoordinator(BrokerError):
    """Another broker coordinates that group or transaction."""


class InvalidGroupId(BrokerError):
    """The group id is empty or otherwise unusable."""


class GroupIdNotFound(BrokerError):
    """No such group."""


class NonEmptyGroup(BrokerError):
    """The group still has members."""


class GroupSubscribedToTopic(BrokerError):
    """The group still reads that topic."""


class GroupMaxSizeReached(BrokerError):
    """The group has as many members as it may."""


class IllegalGeneration(BrokerError):
    """The member speaks of a generation that is not the current one."""


class UnknownMember(BrokerError):
    """The group does not know that member."""


class MemberIdRequired(BrokerError):
    """Join again with the member id in the answer (KIP-394)."""

    def __init__(self, message: str, member_id: str = "") -> None:
        super().__init__(message)
        self.member_id = member_id


class InconsistentGroupProtocol(BrokerError):
    """The member shares no assignment protocol with the group."""


class InvalidSessionTimeout(BrokerError):
    """The session time-out is outside the broker's bounds."""


class RebalanceInProgress(BrokerError):
    """The group is rebalancing; join again."""


class OffsetMetadataTooLarge(BrokerError):
    """The string kept with a committed offset is too long."""


class InvalidCommitOffsetSize(BrokerError):
    """The commit is larger than one batch of the offsets topic may be."""


class FencedInstanceId(BrokerError):
    """Another member took over that static instance id."""


class UnreleasedInstanceId(BrokerError):
    """The static instance id is still in use."""


class FencedMemberEpoch(BrokerError):
    """The member's epoch is not the one the coordinator knows; rejoin (KIP-848)."""


class StaleMemberEpoch(BrokerError):
    """The member's epoch is behind; heartbeat, then retry (KIP-848)."""


class UnsupportedAssignor(BrokerError):
    """No server-side assignor of that name."""


class InvalidRegularExpression(BrokerError):
    """The subscription's pattern is not a valid expression."""


class UnstableOffsetCommit(BrokerError):
    """A transaction has pending commits for these offsets; ask again."""


class InvalidRecordState(BrokerError):
    """The record is not in this member's hands (any more), so it cannot be acknowledged."""


class ShareSessionNotFound(BrokerError):
    """No such share session, or it was closed; start a new one."""


class InvalidShareSessionEpoch(BrokerError):
    """The share session's epoch is not the expected one."""


class ShareSessionLimitReached(BrokerError):
    """There are as many share sessions as there may be."""


# --- producers and transactions -------------------------------------------------------------------


class OutOfOrderSequence(BrokerError):
    """A gap in an idempotent producer's sequence numbers."""


class DuplicateSequence(BrokerError):
    """A sequence so old that its batch is no longer remembered, or a true duplicate.

    `base_offset` and `append_time_ms` are those of the remembered batch, -1 when forgotten.
    """

    def __init__(self, message: str, base_offset: int = -1, append_time_ms: int = -1) -> None:
        super().__init__(message)
        self.base_offset = base_offset
        self.append_time_ms = append_time_ms


class UnknownProducerId(BrokerError):
    """The partition has forgotten that producer."""


class InvalidProducerEpoch(BrokerError):
    """The producer's epoch is old; a newer instance has taken over."""


class ProducerFenced(BrokerError):
    """A newer producer with the same transactional id exists."""


class InvalidTxnState(BrokerError):
    """The transaction is not in a state that allows this."""


class InvalidProducerIdMapping(BrokerError):
    """The producer id does not belong to that transactional id."""


class InvalidTransactionTimeout(BrokerError):
    """The transaction time-out is outside the broker's bounds."""


class ConcurrentTransactions(BrokerError):
    """The previous transaction is still being completed; ask again."""


class TransactionalIdNotFound(BrokerError):
    """No such transactional id."""


class TransactionCoordinatorFenced(BrokerError):
    """A marker came from a coordinator that has been replaced."""


class TransactionAbortable(BrokerError):
    """The transaction can only be aborted now (KIP-890)."""


# --- queues, exchanges and their users ------------------------------------------------------------


class NotFound(BrokerError):
    """No queue, exchange or virtual host of that name."""


class PreconditionFailed(BrokerError):
    """It exists but is not as asked for, or an argument is not possible."""


class NotForStreams(PreconditionFailed):
    """A queue of messages can do that; a stream, which is only read, cannot."""


class ResourceLocked(BrokerError):
    """The queue belongs to another connection."""


class AccessRefused(BrokerError):
    """A reserved name, a permission that is missing, or a queue in exclusive use."""


class NotAllowed(BrokerError):
    """The virtual host does not exist or is closed to this user: the connection ends."""


class LoginRefused(BrokerError):
    """The user is unknown, the password wrong, or the address not one they may come from."""


class SubscriptionEnded(BrokerError):
    """The queue of a subscription was deleted, or the subscription cancelled."""


# --- access ---------------------------------------------------------------------------------------


class AccessDenied(BrokerError):
    """The principal may not do that. `resource` is topic, group, transactional_id or cluster."""

    def __init__(self, message: str, resource: str = "cluster") -> None:
        super().__init__(message)
        self.resource = resource


# --- the process ----------------------------------------------------------------------------------


class ConfigurationError(PenstockError):
    """An option of the broker or a command is wrong; shown without a traceback, exit code 2."""


class DataDirectoryInUse(PenstockError):
    """Another broker has the data directory; shown without a traceback, exit code 1."""


class DataDirectoryDamaged(PenstockError):
    """The data directory cannot be used as it is; the text says which file and what to do."""
