"""Kafka's error codes, and the one table from our errors to them.

The numbers are the protocol's (kafka.apache.org/protocol, "Error Codes"). A subclass that has no
row takes its parent's; a test proves that every error of `penstock.errors` finds a row.
"""

from __future__ import annotations

from penstock import errors

NONE = 0
UNKNOWN_SERVER_ERROR = -1
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
MESSAGE_TOO_LARGE = 10
OFFSET_METADATA_TOO_LARGE = 12
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_TOPIC_EXCEPTION = 17
RECORD_LIST_TOO_LARGE = 18
NOT_ENOUGH_REPLICAS = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
INVALID_REQUIRED_ACKS = 21
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
INVALID_COMMIT_OFFSET_SIZE = 28
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
CLUSTER_AUTHORIZATION_FAILED = 31
INVALID_TIMESTAMP = 32
UNSUPPORTED_VERSION = 35
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_REPLICA_ASSIGNMENT = 39
INVALID_CONFIG = 40
INVALID_REQUEST = 42
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
POLICY_VIOLATION = 44
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47
INVALID_TXN_STATE = 48
INVALID_PRODUCER_ID_MAPPING = 49
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
TRANSACTION_COORDINATOR_FENCED = 52
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
OPERATION_NOT_ATTEMPTED = 55
KAFKA_STORAGE_ERROR = 56
LOG_DIR_NOT_FOUND = 57
UNKNOWN_PRODUCER_ID = 59
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
TOPIC_DELETION_DISABLED = 73
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNSUPPORTED_COMPRESSION_TYPE = 76
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82
ELECTION_NOT_NEEDED = 84
NO_REASSIGNMENT_IN_PROGRESS = 85
GROUP_SUBSCRIBED_TO_TOPIC = 86
INVALID_RECORD = 87
UNSTABLE_OFFSET_COMMIT = 88
THROTTLING_QUOTA_EXCEEDED = 89
PRODUCER_FENCED = 90
RESOURCE_NOT_FOUND = 91
UNKNOWN_TOPIC_ID = 100
INCONSISTENT_TOPIC_ID = 103
TRANSACTIONAL_ID_NOT_FOUND = 105
FETCH_SESSION_TOPIC_ID_ERROR = 106
FENCED_MEMBER_EPOCH = 110
UNRELEASED_INSTANCE_ID = 111
UNSUPPORTED_ASSIGNOR = 112
STALE_MEMBER_EPOCH = 113
MISMATCHED_ENDPOINT_TYPE = 114
UNSUPPORTED_ENDPOINT_TYPE = 115
TRANSACTION_ABORTABLE = 120
INVALID_RECORD_STATE = 121
SHARE_SESSION_NOT_FOUND = 122
INVALID_SHARE_SESSION_EPOCH = 123
INVALID_REGULAR_EXPRESSION = 128
SHARE_SESSION_LIMIT_REACHED = 133

TABLE: dict[type[errors.BrokerError], int] = {
    errors.InvalidRequest: INVALID_REQUEST,
    errors.MalformedRequest: INVALID_REQUEST,
    errors.UnsupportedVersion: UNSUPPORTED_VERSION,
    errors.RequestTimedOut: REQUEST_TIMED_OUT,
    errors.ThrottlingQuotaExceeded: THROTTLING_QUOTA_EXCEEDED,
    errors.UnknownTopicOrPartition: UNKNOWN_TOPIC_OR_PARTITION,
    errors.UnknownTopicId: UNKNOWN_TOPIC_ID,
    errors.InconsistentTopicId: INCONSISTENT_TOPIC_ID,
    errors.TopicExists: TOPIC_ALREADY_EXISTS,
    errors.InvalidTopicName: INVALID_TOPIC_EXCEPTION,
    errors.InvalidPartitions: INVALID_PARTITIONS,
    errors.InvalidReplicationFactor: INVALID_REPLICATION_FACTOR,
    errors.InvalidReplicaAssignment: INVALID_REPLICA_ASSIGNMENT,
    errors.InvalidConfig: INVALID_CONFIG,
    errors.PolicyViolation: POLICY_VIOLATION,
    errors.OffsetOutOfRange: OFFSET_OUT_OF_RANGE,
    errors.CorruptRecord: CORRUPT_MESSAGE,
    errors.InvalidRecord: INVALID_RECORD,
    errors.InvalidTimestamp: INVALID_TIMESTAMP,
    errors.RecordTooLarge: MESSAGE_TOO_LARGE,
    errors.RecordListTooLarge: RECORD_LIST_TOO_LARGE,
    errors.UnsupportedCompression: UNSUPPORTED_COMPRESSION_TYPE,
    errors.UnsupportedMessageFormat: UNSUPPORTED_FOR_MESSAGE_FORMAT,
    errors.InvalidRequiredAcks: INVALID_REQUIRED_ACKS,
    errors.NotEnoughReplicas: NOT_ENOUGH_REPLICAS,
    errors.NotEnoughReplicasAfterAppend: NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    errors.NotLeader: NOT_LEADER_OR_FOLLOWER,
    errors.FencedLeaderEpoch: FENCED_LEADER_EPOCH,
    errors.UnknownLeaderEpoch: UNKNOWN_LEADER_EPOCH,
    errors.StorageError: KAFKA_STORAGE_ERROR,
    errors.FetchSessionNotFound: FETCH_SESSION_ID_NOT_FOUND,
    errors.InvalidFetchSessionEpoch: INVALID_FETCH_SESSION_EPOCH,
    errors.FetchSessionTopicIdMismatch: FETCH_SESSION_TOPIC_ID_ERROR,
    errors.ElectionNotNeeded: ELECTION_NOT_NEEDED,
    errors.CoordinatorNotAvailable: COORDINATOR_NOT_AVAILABLE,
    errors.CoordinatorLoading: COORDINATOR_LOAD_IN_PROGRESS,
    errors.NotCoordinator: NOT_COORDINATOR,
    errors.InvalidGroupId: INVALID_GROUP_ID,
    errors.GroupIdNotFound: GROUP_ID_NOT_FOUND,
    errors.NonEmptyGroup: NON_EMPTY_GROUP,
    errors.GroupSubscribedToTopic: GROUP_SUBSCRIBED_TO_TOPIC,
    errors.GroupMaxSizeReached: GROUP_MAX_SIZE_REACHED,
    errors.IllegalGeneration: ILLEGAL_GENERATION,
    errors.UnknownMember: UNKNOWN_MEMBER_ID,
    errors.MemberIdRequired: MEMBER_ID_REQUIRED,
    errors.InconsistentGroupProtocol: INCONSISTENT_GROUP_PROTOCOL,
    errors.InvalidSessionTimeout: INVALID_SESSION_TIMEOUT,
    errors.RebalanceInProgress: REBALANCE_IN_PROGRESS,
    errors.OffsetMetadataTooLarge: OFFSET_METADATA_TOO_LARGE,
    errors.InvalidCommitOffsetSize: INVALID_COMMIT_OFFSET_SIZE,
    errors.FencedInstanceId: FENCED_INSTANCE_ID,
    errors.UnreleasedInstanceId: UNRELEASED_INSTANCE_ID,
    errors.FencedMemberEpoch: FENCED_MEMBER_EPOCH,
    errors.StaleMemberEpoch: STALE_MEMBER_EPOCH,
    errors.UnsupportedAssignor: UNSUPPORTED_ASSIGNOR,
    errors.InvalidRegularExpression: INVALID_REGULAR_EXPRESSION,
    errors.UnstableOffsetCommit: UNSTABLE_OFFSET_COMMIT,
    errors.InvalidRecordState: INVALID_RECORD_STATE,
    errors.ShareSessionNotFound: SHARE_SESSION_NOT_FOUND,
    errors.InvalidShareSessionEpoch: INVALID_SHARE_SESSION_EPOCH,
    errors.ShareSessionLimitReached: SHARE_SESSION_LIMIT_REACHED,
    errors.OutOfOrderSequence: OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.DuplicateSequence: DUPLICATE_SEQUENCE_NUMBER,
    errors.UnknownProducerId: UNKNOWN_PRODUCER_ID,
    errors.InvalidProducerEpoch: INVALID_PRODUCER_EPOCH,
    errors.ProducerFenced: PRODUCER_FENCED,
    errors.InvalidTxnState: INVALID_TXN_STATE,
    errors.InvalidProducerIdMapping: INVALID_PRODUCER_ID_MAPPING,
    errors.InvalidTransactionTimeout: INVALID_TRANSACTION_TIMEOUT,
    errors.ConcurrentTransactions: CONCURRENT_TRANSACTIONS,
    errors.TransactionalIdNotFound: TRANSACTIONAL_ID_NOT_FOUND,
    errors.TransactionCoordinatorFenced: TRANSACTION_COORDINATOR_FENCED,
    errors.TransactionAbortable: TRANSACTION_ABORTABLE,
    errors.NotFound: UNKNOWN_TOPIC_OR_PARTITION,
    errors.PreconditionFailed: INVALID_REQUEST,
    errors.ResourceLocked: TOPIC_AUTHORIZATION_FAILED,
    errors.AccessRefused: TOPIC_AUTHORIZATION_FAILED,
    errors.NotAllowed: CLUSTER_AUTHORIZATION_FAILED,
    errors.LoginRefused: CLUSTER_AUTHORIZATION_FAILED,
    errors.SubscriptionEnded: UNKNOWN_TOPIC_OR_PARTITION,
    errors.AccessDenied: CLUSTER_AUTHORIZATION_FAILED,
}

_DENIED = {
    "topic": TOPIC_AUTHORIZATION_FAILED,
    "group": GROUP_AUTHORIZATION_FAILED,
    "transactional_id": TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def error_code(failure: BaseException) -> int:
    """Kafka's code for a failure; anything that is not ours is UNKNOWN_SERVER_ERROR."""
    if isinstance(failure, errors.AccessDenied):
        return _DENIED.get(failure.resource, CLUSTER_AUTHORIZATION_FAILED)
    for kind in type(failure).__mro__:
        if kind in TABLE:
            return TABLE[kind]
    return UNKNOWN_SERVER_ERROR
