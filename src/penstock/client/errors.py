"""What the library raises: a small tree, the same in process and over the network.

    PenstockError
    ├── Closed              used after it was closed
    ├── QueueFull           no room for another message (backpressure="raise", or a full queue)
    ├── NotSupported        the server, or this home, cannot do that
    ├── NotFound            no such topic, partition, group, queue or exchange
    ├── AlreadyExists
    ├── InvalidArgument     also a ValueError
    │   └── MessageTooLarge
    ├── TimedOut            also a TimeoutError
    ├── Unavailable         no broker answers, or its disk refuses; trying later may help
    ├── Denied              not logged in, or not allowed
    ├── Conflict            the state of things does not allow it: a group with members, ...
    ├── OffsetLost          the offset is not in the log (any more)
    ├── Fenced              somebody newer with the same name has taken over
    ├── TransactionAborted  the transaction was given up; nothing of it counts
    └── RequestFailed       whoever was asked answered with an error

`DataDirectoryInUse`, `DataDirectoryDamaged` and `ConfigurationError` of `penstock.errors` belong to
the tree too: `open` raises them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock import errors
from penstock.errors import (
    BrokerError,
    ConfigurationError,
    DataDirectoryDamaged,
    DataDirectoryInUse,
    PenstockError,
)

__all__ = [
    "AlreadyExists",
    "Closed",
    "ConfigurationError",
    "Conflict",
    "DataDirectoryDamaged",
    "DataDirectoryInUse",
    "Denied",
    "Fenced",
    "InvalidArgument",
    "MessageTooLarge",
    "NotFound",
    "NotSupported",
    "OffsetLost",
    "PenstockError",
    "QueueFull",
    "RequestFailed",
    "TimedOut",
    "TransactionAborted",
    "Unavailable",
    "in_our_words",
    "of_broker_error",
]


class Closed(PenstockError):
    """It was closed; open another one."""


class QueueFull(PenstockError):
    """There is no room for another message now."""


class NotSupported(PenstockError):
    """The server, or this home, cannot do that; the text says who can."""


class NotFound(PenstockError):
    """There is no such topic, partition, group, queue or exchange."""


class AlreadyExists(PenstockError):
    """There is one of that name already."""


class InvalidArgument(PenstockError, ValueError):
    """An argument cannot be right; the text says what would be."""


class MessageTooLarge(InvalidArgument):
    """The topic takes no message of that size (`max.message.bytes`)."""


class TimedOut(PenstockError, TimeoutError):
    """It did not happen within the time given."""


class Unavailable(PenstockError):
    """No broker answers, or its disk refuses. Nothing was acknowledged; later it may work."""


class Denied(PenstockError):
    """The server does not know you, or does not let you."""


class Conflict(PenstockError):
    """The state of things does not allow it now."""


class OffsetLost(PenstockError):
    """The offset is before the start of the log or after its end."""


class Fenced(PenstockError):
    """Somebody newer with the same transactional id or instance id has taken over."""


class TransactionAborted(PenstockError):
    """The transaction was given up: nothing of it counts. Begin another one."""


class RequestFailed(PenstockError):
    """Whoever was asked could not answer; the text is their error."""


_BY_BROKER_ERROR: dict[type[BrokerError], type[PenstockError]] = {
    errors.BrokerError: Unavailable,
    errors.InvalidRequest: InvalidArgument,
    errors.MalformedRequest: InvalidArgument,
    errors.UnsupportedVersion: NotSupported,
    errors.RequestTimedOut: TimedOut,
    errors.ThrottlingQuotaExceeded: Unavailable,
    errors.UnknownTopicOrPartition: NotFound,
    errors.UnknownTopicId: NotFound,
    errors.InconsistentTopicId: NotFound,
    errors.TopicExists: AlreadyExists,
    errors.InvalidTopicName: InvalidArgument,
    errors.InvalidPartitions: InvalidArgument,
    errors.InvalidReplicationFactor: InvalidArgument,
    errors.InvalidReplicaAssignment: InvalidArgument,
    errors.InvalidConfig: InvalidArgument,
    errors.PolicyViolation: InvalidArgument,
    errors.OffsetOutOfRange: OffsetLost,
    errors.InvalidRecord: InvalidArgument,
    errors.RecordTooLarge: MessageTooLarge,
    errors.RecordListTooLarge: MessageTooLarge,
    errors.UnsupportedCompression: NotSupported,
    errors.UnsupportedMessageFormat: NotSupported,
    errors.InvalidRequiredAcks: InvalidArgument,
    errors.InvalidGroupId: InvalidArgument,
    errors.GroupIdNotFound: NotFound,
    errors.NonEmptyGroup: Conflict,
    errors.GroupSubscribedToTopic: Conflict,
    errors.GroupMaxSizeReached: Conflict,
    errors.IllegalGeneration: Conflict,
    errors.UnknownMember: Conflict,
    errors.InconsistentGroupProtocol: Conflict,
    errors.InvalidSessionTimeout: InvalidArgument,
    errors.RebalanceInProgress: Conflict,
    errors.OffsetMetadataTooLarge: InvalidArgument,
    errors.FencedInstanceId: Fenced,
    errors.UnreleasedInstanceId: Conflict,
    errors.FencedMemberEpoch: Conflict,
    errors.StaleMemberEpoch: Conflict,
    errors.UnsupportedAssignor: InvalidArgument,
    errors.InvalidRegularExpression: InvalidArgument,
    errors.InvalidProducerEpoch: Fenced,
    errors.ProducerFenced: Fenced,
    errors.InvalidTxnState: TransactionAborted,
    errors.InvalidProducerIdMapping: Fenced,
    errors.InvalidTransactionTimeout: InvalidArgument,
    errors.TransactionalIdNotFound: NotFound,
    errors.TransactionAbortable: TransactionAborted,
    errors.AccessDenied: Denied,
    errors.NotFound: NotFound,
    errors.PreconditionFailed: Conflict,
    errors.ResourceLocked: Conflict,
    errors.AccessRefused: Denied,
    errors.NotAllowed: Denied,
    errors.LoginRefused: Denied,
}


def of_broker_error(failure: BrokerError) -> PenstockError:
    """A refusal of the broker as the library tells it: the same sentence, in the small tree.

    >>> of_broker_error(errors.UnknownTopicOrPartition("there is no topic 'x'"))
    NotFound("there is no topic 'x'")
    """
    for kind in type(failure).__mro__:
        if kind in _BY_BROKER_ERROR:
            return _BY_BROKER_ERROR[kind](str(failure))
    return Unavailable(str(failure))


@contextmanager
def in_our_words() -> Iterator[None]:
    """Let refusals of the broker leave as the library's own errors."""
    try:
        yield
    except BrokerError as failure:
        raise of_broker_error(failure) from failure
