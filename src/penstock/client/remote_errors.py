"""What librdkafka's errors mean in the library's words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.client.errors import (
    AlreadyExists,
    Closed,
    Conflict,
    Denied,
    Fenced,
    InvalidArgument,
    MessageTooLarge,
    NotFound,
    NotSupported,
    OffsetLost,
    PenstockError,
    QueueFull,
    TimedOut,
    TransactionAborted,
    Unavailable,
)

_NAMES: dict[type[PenstockError], str] = {
    NotFound: (
        "UNKNOWN_TOPIC_OR_PART UNKNOWN_TOPIC_ID _UNKNOWN_TOPIC GROUP_ID_NOT_FOUND "
        "TRANSACTIONAL_ID_NOT_FOUND _UNKNOWN_GROUP RESOURCE_NOT_FOUND _NOENT"
    ),
    AlreadyExists: "TOPIC_ALREADY_EXISTS",
    MessageTooLarge: "MSG_SIZE_TOO_LARGE RECORD_LIST_TOO_LARGE",
    InvalidArgument: (
        "_INVALID_ARG _UNKNOWN_PARTITION TOPIC_EXCEPTION INVALID_PARTITIONS INVALID_CONFIG "
        "INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_REQUEST POLICY_VIOLATION "
        "INVALID_RECORD INVALID_TIMESTAMP INVALID_GROUP_ID INVALID_TRANSACTION_TIMEOUT "
        "INVALID_REGULAR_EXPRESSION UNSUPPORTED_ASSIGNOR INVALID_SESSION_TIMEOUT "
        "OFFSET_METADATA_TOO_LARGE"
    ),
    OffsetLost: "OFFSET_OUT_OF_RANGE _AUTO_OFFSET_RESET",
    Denied: (
        "_AUTHENTICATION SASL_AUTHENTICATION_FAILED TOPIC_AUTHORIZATION_FAILED "
        "GROUP_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED "
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED _SSL"
    ),
    Fenced: (
        "_FENCED PRODUCER_FENCED INVALID_PRODUCER_EPOCH FENCED_INSTANCE_ID "
        "INVALID_PRODUCER_ID_MAPPING"
    ),
    TransactionAborted: "INVALID_TXN_STATE TRANSACTION_ABORTABLE _STATE",
    Conflict: (
        "NON_EMPTY_GROUP GROUP_SUBSCRIBED_TO_TOPIC UNKNOWN_MEMBER_ID ILLEGAL_GENERATION "
        "REBALANCE_IN_PROGRESS FENCED_MEMBER_EPOCH STALE_MEMBER_EPOCH INCONSISTENT_GROUP_PROTOCOL "
        "GROUP_MAX_SIZE_REACHED UNRELEASED_INSTANCE_ID _CONFLICT"
    ),
    NotSupported: (
        "UNSUPPORTED_VERSION _UNSUPPORTED_FEATURE UNSUPPORTED_COMPRESSION_TYPE _NOT_IMPLEMENTED "
        "UNSUPPORTED_FOR_MESSAGE_FORMAT"
    ),
    QueueFull: "_QUEUE_FULL",
    TimedOut: "_TIMED_OUT _MSG_TIMED_OUT REQUEST_TIMED_OUT _TIMED_OUT_QUEUE",
    Closed: "_DESTROY",
}
# What to do, where librdkafka's words leave it open.
_ADVICE = {
    "MSG_SIZE_TOO_LARGE": " (the topic's max.message.bytes is the limit)",
    "TOPIC_EXCEPTION": (
        " (a name has 1 to 249 ASCII letters, digits, '.', '_' and '-'; some are the server's own)"
    ),
    "_UNKNOWN_PARTITION": " (admin.topic(...) tells which there are)",
}
_BY_NAME = {name: kind for kind, names in _NAMES.items() for name in names.split()}


def of_kafka_error(error: Any, what: str = "") -> PenstockError:
    """A KafkaError as one of ours; `what` begins the sentence, if anything."""
    text = str(error.str()).removeprefix("Broker: ").removeprefix("Local: ")
    if what:
        text = f"{what}: {text}"
    text += _ADVICE.get(error.name(), "")
    kind = _BY_NAME.get(error.name(), Unavailable)
    if kind is TransactionAborted and error.name() == "_STATE" and "fenced" in text.lower():
        kind = Fenced
    return kind(text)


def of_refusal(failure: Exception, what: str = "") -> Exception:
    """What a call of librdkafka raised, as one of ours; what is not its own stays as it is."""
    from confluent_kafka import KafkaException

    if isinstance(failure, KafkaException):
        return of_kafka_error(failure.args[0], what)
    if "closed" in str(failure).lower():  # "Consumer closed", "Producer closed"
        return Closed(str(failure))
    return failure


@contextmanager
def kafka_errors(what: str = "") -> Iterator[None]:
    """Let librdkafka's exceptions leave as the library's."""
    from confluent_kafka import KafkaException

    try:
        yield
    except (KafkaException, RuntimeError) as failure:
        ours = of_refusal(failure, what)
        if ours is failure:
            raise
        raise ours from failure
