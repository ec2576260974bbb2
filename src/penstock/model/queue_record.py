"""An AMQP message as a record of a log, and any record of a log as an AMQP message.

    record value                     the body, byte for byte
    record key                       null
    header amqp.exchange             where it was published to
    header amqp.routing-key          with which key
    header amqp.properties           the content header's property flags and list, byte for byte
    header penstock.due              milliseconds since 1970, decimal: not to be delivered before
    header penstock.source           where a dead letter comes from: `<topic>/<offset>/<topic id>`
    header penstock.copy-of          decimal offset: only the bytes of an older message, moved here
    header penstock.targets          of a message that is delayed for long: where it goes when due

A record that a Kafka producer wrote has no `amqp.properties`. Its headers then become the message's
headers (as strings), its key the header `kafka.key`, its timestamp the timestamp; the headers named
in `_PROPERTIES` become the properties of that name. docs/amqp-mapping.md has the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from penstock.errors import CorruptRecord
from penstock.model import message_properties
from penstock.model.batch import read_header
from penstock.model.field_table import LongString
from penstock.model.message_properties import EXPIRATION, HEADERS, MESSAGE_ID, PRIORITY
from penstock.model.records import Headers, new_builder, raw_records, read_records

EXCHANGE = "amqp.exchange"
ROUTING_KEY = "amqp.routing-key"
PROPERTIES = "amqp.properties"
DUE = "penstock.due"
SOURCE = "penstock.source"
COPY_OF = "penstock.copy-of"
TARGETS = "penstock.targets"
KAFKA_KEY = "kafka.key"

_MOST_MS = 1 << 53  # a time further away than that is a mistake


class Message:
    """A message to be published."""

    __slots__ = ("body", "exchange", "properties", "routing_key")

    def __init__(
        self,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes | bytearray | memoryview,
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties  # flags and list of the content header, as they came
        self.body = body

    def __repr__(self) -> str:
        return f"Message({self.exchange!r}, {self.routing_key!r}, {len(self.body)} bytes)"


class StoredMessage(NamedTuple):
    """A message as it lies in a log."""

    offset: int
    timestamp_ms: int
    exchange: str
    routing_key: str
    properties: bytes
    body: bytes
    due_ms: int | None = None
    source: bytes | None = None
    copy_of: int | None = None
    targets: bytes | None = None


def record_headers(message: Message, extra: Headers = ()) -> list[tuple[str, bytes | None]]:
    """The headers of a message's record."""
    return [
        (EXCHANGE, message.exchange.encode("utf-8", "surrogateescape")),
        (ROUTING_KEY, message.routing_key.encode("utf-8", "surrogateescape")),
        (PROPERTIES, message.properties),
        *extra,
    ]


def build_messages(
    messages: Sequence[Message], timestamp_ms: int, extras: Sequence[Headers | None] | None = None
) -> bytearray:
    """One batch of messages. `extras` has further headers for each, or None."""
    builder = new_builder()
    append = builder.append
    if extras is not None:
        for delta, (message, extra) in enumerate(zip(messages, extras, strict=True)):
            headers = record_headers(message, extra or ())
            append(delta, timestamp_ms, None, _bytes(message.body), headers)
        return _built(builder)
    exchange = routing_key = properties = None
    headers = []
    for delta, message in enumerate(messages):
        # Publishers repeat themselves: the headers of the message before will mostly do.
        if (
            message.properties != properties
            or message.routing_key != routing_key
            or message.exchange != exchange
        ):
            exchange, routing_key = message.exchange, message.routing_key
            properties = message.properties
            headers = record_headers(message)
        body = message.body
        append(delta, timestamp_ms, None, body if type(body) is bytes else bytes(body), headers)
    return _built(builder)


def _built(builder: Any) -> bytearray:
    batch: bytearray = builder.build()
    return batch


def _bytes(body: bytes | bytearray | memoryview) -> bytes:
    return body if type(body) is bytes else bytes(body)


def read_messages(batch: bytes | bytearray | memoryview, queue: str) -> list[StoredMessage]:
    """The messages of a data batch whose checksum has been checked."""
    try:
        compressed = read_header(batch).codec
        records: Iterable[Any] = read_records(batch) if compressed else raw_records(bytes(batch))
        return _read_all(records, queue)
    except CorruptRecord:
        raise
    except Exception as failure:  # the compiled reader raises its own family, and IndexError
        raise CorruptRecord(f"unreadable records in a batch of queue {queue}: {failure}") from None


def _read_all(records: Iterable[Any], queue: str) -> list[StoredMessage]:
    messages: list[StoredMessage] = []
    new, known = tuple.__new__, None
    exchange = routing_key = ""
    properties = message_properties.NO_PROPERTIES
    for record in records:
        headers = record.headers
        # Publishers repeat themselves: what the message before had will mostly do.
        if headers != known:
            is_plain = len(headers) == 3 and headers[0][0] == EXCHANGE
            if not is_plain or headers[2][0] != PROPERTIES:
                messages.append(_read(record, queue))
                continue
            known = headers
            exchange, routing_key = _text(headers[0][1]), _text(headers[1][1])
            properties = headers[2][1] or message_properties.NO_PROPERTIES
        value = record.value or b""
        fields = (record.offset, record.timestamp, exchange, routing_key, properties, value)
        messages.append(new(StoredMessage, (*fields, None, None, None, None)))
    return messages


def _read(record: Any, queue: str) -> StoredMessage:
    headers: Headers = record.headers
    offset: int = record.offset
    timestamp: int = record.timestamp
    value: bytes = record.value or b""
    fields = dict(headers)
    properties = fields.get(PROPERTIES)
    if properties is None:
        key: bytes | None = record.key
        properties = _from_kafka(headers, key, timestamp)
    copy_of = number(fields.get(COPY_OF))
    return StoredMessage(
        offset,
        timestamp,
        _text(fields.get(EXCHANGE)),
        _text(fields[ROUTING_KEY]) if ROUTING_KEY in fields else queue,
        properties,
        value,
        number(fields.get(DUE)),
        fields.get(SOURCE),
        copy_of,
        fields.get(TARGETS),
    )


def _text(data: bytes | None) -> str:
    return (data or b"").decode("utf-8", "surrogateescape")


def number(data: bytes | None) -> int | None:
    """A decimal number in a header, None when there is none or it is nonsense."""
    if data is None or not data.isdigit() or len(data) > 16:
        return None
    value = int(data)
    return value if value < _MOST_MS else None


# --- what a Kafka producer wrote ------------------------------------------------------------------

_PROPERTIES = {  # header: property
    "content-type": "content_type",
    "correlation-id": "correlation_id",
    "reply-to": "reply_to",
    "expiration": "expiration",
    "message-id": "message_id",
    "type": "type",
    "user-id": "user_id",
    "app-id": "app_id",
}


_OURS = frozenset({DUE, SOURCE, COPY_OF, TARGETS, EXCHANGE, ROUTING_KEY})


def _from_kafka(headers: Headers, key: bytes | None, timestamp_ms: int) -> bytes:
    table: dict[str, object] = {}
    texts: dict[str, str] = {}
    priority: int | None = None
    for name, value in headers:
        data = value or b""
        if name in _OURS:
            continue
        if name == "priority":
            priority = number(data)
        elif name in _PROPERTIES and len(data) <= 255:
            texts[_PROPERTIES[name]] = _text(data)
        elif len(name.encode()) <= 255:
            table[name] = LongString(data)
    if key is not None:
        table[KAFKA_KEY] = LongString(key)
    return message_properties.build(
        headers=table or None,
        delivery_mode=2,
        priority=None if priority is None else min(priority, 255),
        timestamp=max(0, timestamp_ms) // 1000,
        **texts,  # all of them are short strings
    )


# --- what a queue must know of a message ----------------------------------------------------------

_TELLING = EXPIRATION | PRIORITY | HEADERS | MESSAGE_ID


class Telling(NamedTuple):
    """The properties that change how a queue treats a message."""

    priority: int = 0
    expiration_ms: int | None = None
    message_id: str | None = None
    delay_ms: int | None = None  # header x-delay
    deduplication_id: str | None = None  # header x-deduplication-header
    deduplication_ms: int | None = None  # header x-cache-ttl
    copies: tuple[str, ...] = ()  # headers CC and BCC: more routing keys


NOTHING_TELLING = Telling()


def telling(properties: bytes) -> Telling:
    """What the properties tell. Most messages tell nothing, which costs two look-ups to see."""
    if not (properties[0] << 8 | properties[1]) & _TELLING:
        return NOTHING_TELLING
    return _telling(properties)


@lru_cache(maxsize=512)
def _telling(properties: bytes) -> Telling:
    flags = properties[0] << 8 | properties[1]
    parsed = message_properties.parse(properties)
    delay_ms = deduplication_id = deduplication_ms = None
    copies: tuple[str, ...] = ()
    if flags & HEADERS and _may_tell(properties):
        headers = parsed.headers
        delay_ms = _whole(headers.get("x-delay"))
        deduplication_ms = _whole(headers.get("x-cache-ttl"))
        wanted = headers.get("x-deduplication-header")
        deduplication_id = None if wanted is None else str(wanted)
        copies = tuple(key for name in ("CC", "BCC") for key in _strings(headers.get(name)))
    return Telling(
        parsed.priority or 0,
        _whole(parsed.expiration),
        parsed.message_id,
        delay_ms,
        deduplication_id,
        deduplication_ms,
        copies,
    )


def _may_tell(properties: bytes) -> bool:
    return b"CC" in properties or b"x-de" in properties or b"x-cache-ttl" in properties


def _whole(value: object) -> int | None:
    if isinstance(value, str):
        digits = value.removeprefix("+")
        value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return min(value, _MOST_MS) if isinstance(value, int) and value >= 0 else None


def _strings(value: object) -> list[str]:
    return [key for key in value if isinstance(key, str)] if isinstance(value, list) else []


def without_bcc(properties: bytes) -> bytes:
    """The properties as consumers get them: nobody is told who else got a blind copy."""
    if b"BCC" not in properties:
        return properties
    parsed = message_properties.parse(properties)
    entries = parsed.header_entries
    if entries.pop("BCC", None) is None:
        return properties
    return parsed.with_headers(entries, keep_empty=True)


def shown(message: Message) -> Message:
    """The message as others may see it: without the header BCC."""
    stripped = without_bcc(message.properties)
    if stripped is message.properties:
        return message
    return Message(message.exchange, message.routing_key, stripped, message.body)
