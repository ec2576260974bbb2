"""AMQP properties as the headers of a message, for readers of queues and of their topics.

Values of other types than text become text; what AMQP says in properties are the headers that the
library knows (`properties.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from penstock.client.properties import (
    CORRELATION_ID,
    EXPIRATION,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    RawHeaders,
)
from penstock.model.message_properties import parse

PROPERTIES_HEADER = "amqp.properties"
KEY_HEADER = "kafka.key"
DELAY_HEADER = "x-delay"
_PLUMBING = frozenset({"amqp.exchange", "amqp.routing-key", PROPERTIES_HEADER})


def read_amqp(raw: bytes) -> tuple[list[tuple[str, bytes | None]], bytes | None, int]:
    """The headers of a message, its key and its timestamp, from property bytes."""
    parsed = parse(raw)
    pairs: list[tuple[str, bytes | None]] = []
    key: bytes | None = None
    for name, value in parsed.headers.items():
        data = _as_bytes(value)
        if name == KEY_HEADER:
            key = data
        elif name != DELAY_HEADER:
            pairs.append((name, data))
    texts = {
        MESSAGE_ID: parsed.message_id,
        CORRELATION_ID: parsed.correlation_id,
        REPLY_TO: parsed.reply_to,
        EXPIRATION: parsed.expiration,
        PRIORITY: None if parsed.priority is None else str(parsed.priority),
    }
    pairs += [
        (name, text.encode("utf-8", "surrogateescape"))
        for name, text in texts.items()
        if text is not None
    ]
    timestamp = parsed.timestamp
    return pairs, key, -1 if timestamp is None else timestamp * 1000


def visible_headers(headers: RawHeaders) -> RawHeaders:
    """The headers of a record as a reader of the topic sees them, wherever it was published."""
    raw = next((value for name, value in headers if name == PROPERTIES_HEADER), None)
    if raw is None:
        return headers
    pairs, _, _ = read_amqp(raw)
    return pairs + [(name, value) for name, value in headers if name not in _PLUMBING]


def _as_bytes(value: object) -> bytes:
    match value:
        case bytes():
            return value
        case str():
            return value.encode("utf-8", "surrogateescape")
        case bool():
            return b"true" if value else b"false"
        case None:
            return b""
        case dict() | list():
            return json.dumps(_plain(value), separators=(",", ":")).encode()
    return str(value).encode()


def _plain(value: object) -> object:
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case str() | bool() | int() | float() | None:
            return value
        case bytes():
            return value.decode("utf-8", "surrogateescape")
        case Sequence():
            return [_plain(item) for item in value]
    return str(value)
