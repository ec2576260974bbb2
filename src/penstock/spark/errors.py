"""What can go wrong between Spark and a broker, as sentences.

Nothing here knows Spark's or the broker's own error trees; messages name what to change.
"""

from __future__ import annotations


class SparkConnectorError(Exception):
    """The root: every error of the data source and the pipelines is one of these."""


class OptionError(SparkConnectorError, ValueError):
    """An option of the data source is missing, unknown or contradicts another."""


class BrokerUnreachable(SparkConnectorError):
    """Nobody answered, or nobody answered in time."""


class BrokerRefused(SparkConnectorError):
    """The broker answered with an error code of Kafka's protocol."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(f"{what}: {error_name(code)}")
        self.what = what
        self.code = code

    def __reduce__(self) -> tuple[type[BrokerRefused], tuple[str, int]]:
        return type(self), (self.what, self.code)


class DataLoss(SparkConnectorError):
    """Records that the query still had to read are gone."""


class CorruptBatch(SparkConnectorError):
    """A record batch whose bytes do not match its checksum, or cannot be read."""


class BadRow(SparkConnectorError):
    """A value that cannot be decoded, under `onError=fail`."""


NONE = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
TOPIC_ALREADY_EXISTS = 36

_NAMES = {
    -1: "unknown server error",
    1: "offset out of range",
    2: "corrupt message",
    3: "there is no such topic or partition",
    5: "leader not available",
    6: "not the leader",
    7: "request timed out",
    10: "message too large for the topic (max.message.bytes)",
    14: "coordinator is loading",
    15: "coordinator not available",
    16: "not the coordinator",
    17: "invalid topic name",
    18: "the batch is larger than a segment",
    19: "not enough replicas in sync",
    20: "not enough replicas in sync after the append",
    22: "illegal generation of the group",
    25: "the group has members of its own; commit needs a group nobody consumes with",
    29: "topic authorization failed",
    30: "group authorization failed",
    31: "cluster authorization failed",
    32: "invalid timestamp",
    33: "this SASL mechanism is not offered",
    35: "the broker does not speak this version of the protocol",
    36: "the topic exists already",
    37: "invalid partition count",
    38: "invalid replication factor",
    40: "invalid configuration",
    44: "policy violation",
    45: "sequence out of order",
    47: "the producer was fenced by a newer one",
    48: "the transaction is in another state",
    49: "the producer id and the transactional id do not belong together",
    50: "transaction.timeout.ms is above the broker's transaction.max.timeout.ms",
    51: "an earlier transaction is still being completed",
    53: "transactional id authorization failed",
    58: "SASL authentication failed",
    87: "invalid record",
    90: "the producer was fenced by a newer one",
}

# Waiting, asking for the leader or the coordinator again, and repeating may help with these.
RETRIABLE = frozenset({3, 5, 6, 7, 8, 9, 13, 14, 15, 16, 19, 20, 51, 56, 72, 74, 75, 76, 78, 100})


def error_name(code: int) -> str:
    """A code of Kafka's protocol in words."""
    return _NAMES.get(code, f"error {code} of Kafka's protocol")
