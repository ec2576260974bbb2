"""The options of the data source: names and refusals of Spark's Kafka connector, and ours.

Parsed once on the driver into frozen values that are pickled to the executors. What is wrong is an
`OptionError` before anything runs. Names are compared without case, as everywhere in Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.spark.cluster import READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from penstock.spark.connection import Security
from penstock.spark.errors import OptionError
from penstock.spark.queues import DEFAULT_VHOST, topic_of_queue

Options = Mapping[str, str]
STRATEGIES = ("assign", "subscribe", "subscribePattern", "queue")

# What the connector itself decides; the same refusals as Spark's.
_NOT_YOURS = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys are read as binary; convert them with DataFrame operations",
    "value.deserializer": "values are read as binary; use valueFormat or DataFrame operations",
    "key.serializer": "keys are written as binary or string columns",
    "value.serializer": "values are written as binary or string columns",
    "enable.auto.commit": "use commitGroup to show progress as a consumer group",
    "interceptor.classes": "interceptors may change keys and values, which breaks the promises",
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_DURATION = re.compile(r"^\s*(\d+)\s*([a-z]*)\s*$")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Connect(NamedTuple):
    """Where the brokers are and how to talk to them."""

    servers: str
    security: Security
    patience_s: float
    client_id: str = "penstock-spark"
    retries: int | None = None
    retry_pause_s: float = 0.02


def connect_options(options: Options) -> Connect:
    """`kafka.bootstrap.servers` (or without `kafka.`), security, and how long to keep asking."""
    servers = options.get("kafka.bootstrap.servers") or options.get("bootstrap.servers")
    if not servers:
        raise OptionError("the option 'kafka.bootstrap.servers' must be given")
    for place in servers.split(","):
        host, _, port = place.strip().rpartition(":")
        if not host or not port.isdecimal():
            raise OptionError(f"kafka.bootstrap.servers: {place!r} is not HOST:PORT")
    for name, why in _NOT_YOURS.items():
        if options.get(f"kafka.{name}") is not None:
            raise OptionError(f"the option 'kafka.{name}' is not supported: {why}")
    patience_ms = number(options, "kafka.default.api.timeout.ms", 60_000, least=1)
    # Spark's connector tries three times within 30 ms. Without the option we are patient instead:
    # a broker that restarts is back in a second or two.
    tries = options.get("fetchOffset.numRetries")
    pause_ms = number(options, "fetchOffset.retryIntervalMs", 20)
    return Connect(
        servers,
        _security(options),
        patience_ms / 1000,
        options.get("kafka.client.id") or options.get("groupIdPrefix") or "penstock-spark",
        None if tries is None else _whole("fetchOffset.numRetries", tries, 0),
        pause_ms / 1000,
    )


def _security(options: Options) -> Security:
    protocol = options.get("kafka.security.protocol", "PLAINTEXT").upper()
    if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise OptionError(f"kafka.security.protocol={protocol} is unknown")
    username = options.get("kafka.sasl.username", "")
    password = options.get("kafka.sasl.password", "")
    jaas = options.get("kafka.sasl.jaas.config", "")
    if jaas:
        said = dict(re.findall(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"', jaas))
        username, password = said.get("username", username), said.get("password", password)
    mechanism = ""
    if protocol.startswith("SASL"):
        mechanism = options.get("kafka.sasl.mechanism", "GSSAPI").upper()
        if mechanism not in _MECHANISMS:
            raise OptionError(
                f"kafka.sasl.mechanism={mechanism}: this source knows {', '.join(_MECHANISMS)}; "
                'for others use Spark\'s own format("kafka")'
            )
    for name in ("truststore", "keystore"):
        if options.get(f"kafka.ssl.{name}.location") and (
            options.get(f"kafka.ssl.{name}.type", "").upper() != "PEM"
        ):
            raise OptionError(f"kafka.ssl.{name}.location needs kafka.ssl.{name}.type=PEM here")
    keystore = options.get("kafka.ssl.keystore.location", "")
    return Security(
        protocol,
        mechanism,
        username,
        password,
        options.get("kafka.ssl.ca.location") or options.get("kafka.ssl.truststore.location", ""),
        options.get("kafka.ssl.certificate.location") or keystore,
        options.get("kafka.ssl.key.location", ""),
        options.get("kafka.ssl.endpoint.identification.algorithm", "https") != "",
    )


class Subscription(NamedTuple):
    """Which partitions a query reads: one of the strategies."""

    strategy: str
    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: tuple[TopicPartition, ...] = ()


def subscription(options: Options) -> Subscription:
    """Exactly one of subscribe, subscribePattern, assign, queue."""
    given = [name for name in STRATEGIES if options.get(name) is not None]
    if not given:
        raise OptionError(f"one of {', '.join(STRATEGIES)} must be given")
    if len(given) > 1:
        raise OptionError(f"only one of {', '.join(STRATEGIES)} can be given, not {given}")
    (strategy,) = given
    text = options[strategy].strip()
    if strategy == "assign":
        assigned = tuple(sorted(_assigned(text)))
        if not assigned:
            raise OptionError("no partition to read: the option 'assign' is empty")
        return Subscription(strategy, assigned=assigned)
    if strategy == "subscribePattern":
        if not text:
            raise OptionError("the option 'subscribePattern' is empty")
        try:
            re.compile(text)
        except re.error as failure:
            raise OptionError(f"subscribePattern {text!r}: {failure}") from None
        return Subscription(strategy, pattern=text)
    topics = tuple(sorted({name.strip() for name in text.split(",") if name.strip()}))
    if not topics:
        raise OptionError(f"no topics to subscribe to: the option '{strategy}' is empty")
    if strategy == "queue":
        vhost = options.get("vhost", DEFAULT_VHOST)
        topics = tuple(topic_of_queue(vhost, name) for name in topics)
    return Subscription(strategy, topics=topics)


def _assigned(text: str) -> set[TopicPartition]:
    example = '{"topic":[0,1],"other":[2]}'
    found = set()
    for topic, partitions in _json_object("assign", text, example).items():
        if not isinstance(partitions, list) or not all(type(p) is int for p in partitions):
            raise OptionError(f"assign: expected e.g. {example}, got {text}")
        found |= {TopicPartition(topic, partition) for partition in partitions}
    return found


class Bound(NamedTuple):
    """Where to start or end: a word, exact offsets, or times."""

    kind: str  # earliest latest group offsets timestamp timestamps
    offsets: tuple[tuple[TopicPartition, int], ...] = ()
    timestamp: int = 0


def bound(options: Options, side: str, default: str) -> Bound:
    """`side` is starting or ending. Precedence as in Spark: one timestamp, timestamps by
    partition, offsets."""
    if (text := options.get(f"{side}Timestamp")) is not None:
        return Bound("timestamp", timestamp=_whole(f"{side}Timestamp", text, 0))
    if (text := options.get(f"{side}OffsetsByTimestamp")) is not None:
        return Bound("timestamps", _by_partition(f"{side}OffsetsByTimestamp", text))
    text = options.get(f"{side}Offsets", default).strip()
    if text.lower() in ("earliest", "latest", "group"):
        return Bound(text.lower())
    return Bound("offsets", _by_partition(f"{side}Offsets", text))


def _by_partition(name: str, text: str) -> tuple[tuple[TopicPartition, int], ...]:
    example = '{"topic":{"0":23,"1":-2}}'
    found = {}
    for topic, partitions in _json_object(name, text, example).items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{name}: expected e.g. {example}, got {text}")
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int:
                raise OptionError(f"{name}: expected e.g. {example}, got {text}")
            found[TopicPartition(topic, int(partition))] = offset
    return tuple(sorted(found.items()))


def _json_object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise OptionError(f"{name}: expected e.g. {example}, got {text}")
    return value


def _whole(name: str, text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise OptionError(f"{name}: {text!r} is not a whole number") from None
    if value < least:
        raise OptionError(f"{name}: {value} is less than {least}")
    return value


def number(options: Options, name: str, default: int, least: int = 0) -> int:
    """A whole number not below `least`."""
    text = options.get(name)
    return default if text is None else _whole(name, text, least)


def optional_number(options: Options, name: str) -> int | None:
    """A positive whole number, or None when it is not given."""
    text = options.get(name)
    return None if text is None else _whole(name, text, 1)


def flag(options: Options, name: str, default: bool) -> bool:
    """true or false."""
    text = options.get(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name}: {text!r} is neither true nor false")
    return text.lower() == "true"


def choice(options: Options, name: str, default: str, valid: tuple[str, ...]) -> str:
    """One of a few words."""
    text = options.get(name, default).lower()
    if text not in valid:
        raise OptionError(f"{name}: {text!r} is none of {', '.join(valid)}")
    return text


def duration_ms(options: Options, name: str, default_ms: int) -> int:
    """Milliseconds, or with a unit: 500ms, 30s, 15m, 1h."""
    text = options.get(name)
    if text is None:
        return default_ms
    found = _DURATION.match(text.lower())
    if not found or found[2] not in ("", *_UNITS_MS):
        raise OptionError(f"{name}: {text!r} is not a duration such as 30s or 15m")
    return int(found[1]) * _UNITS_MS.get(found[2], 1)


def isolation(options: Options) -> int:
    """Committed records only, unless asked otherwise (Spark's own connector shows all)."""
    word = choice(
        options, "kafka.isolation.level", "read_committed", ("read_committed", "read_uncommitted")
    )
    return READ_COMMITTED if word == "read_committed" else READ_UNCOMMITTED
