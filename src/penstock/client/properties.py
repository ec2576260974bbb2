"""The one mapping between the fields of a message and the headers of a record.

    field             record header            as
    message_id        message-id               text
    correlation_id    correlation-id           text
    reply_to          reply-to                 text
    priority          priority                 decimal
    ttl               expiration               decimal milliseconds after the timestamp
    due               penstock.due             decimal milliseconds since 1970
    retry_count       penstock.retry-count     decimal

These are the names that the AMQP door gives and takes too (`docs/message-properties.md`). A value
that cannot be read is taken as absent: a stranger's header must not stop a consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.client.arguments import utf8
from penstock.client.errors import InvalidArgument

RawHeaders = Sequence[tuple[str, bytes | None]]
HeaderValue = str | bytes | int | float | bool | None

MESSAGE_ID = "message-id"
CORRELATION_ID = "correlation-id"
REPLY_TO = "reply-to"
PRIORITY = "priority"
EXPIRATION = "expiration"
DUE = "penstock.due"
RETRY_COUNT = "penstock.retry-count"

NAMES = frozenset({MESSAGE_ID, CORRELATION_ID, REPLY_TO, PRIORITY, EXPIRATION, DUE, RETRY_COUNT})


class Properties(NamedTuple):
    """What the headers of a record say about it as a message."""

    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    priority: int = 0
    ttl_ms: int | None = None
    due_ms: int | None = None
    retry_count: int = 0


NONE = Properties()


def read_properties(headers: RawHeaders) -> Properties:
    """The properties among the headers.

    >>> read_properties([("message-id", b"a-1"), ("priority", b"5")]).priority
    5
    """
    found = {name: value for name, value in headers if name in NAMES and value is not None}
    if not found:
        return NONE
    return Properties(
        _text(found.get(MESSAGE_ID)),
        _text(found.get(CORRELATION_ID)),
        _text(found.get(REPLY_TO)),
        _number(found.get(PRIORITY)) or 0,
        _number(found.get(EXPIRATION)),
        _number(found.get(DUE)),
        _number(found.get(RETRY_COUNT)) or 0,
    )


def write_properties(properties: Properties) -> list[tuple[str, bytes | None]]:
    """The headers that say these properties; nothing for what is at its default."""
    if properties == NONE:
        return []
    pairs: list[tuple[str, str | int | None]] = [
        (MESSAGE_ID, properties.message_id),
        (CORRELATION_ID, properties.correlation_id),
        (REPLY_TO, properties.reply_to),
        (PRIORITY, properties.priority or None),
        (EXPIRATION, properties.ttl_ms),
        (DUE, properties.due_ms),
        (RETRY_COUNT, properties.retry_count or None),
    ]
    return [(name, _encode(str(value))) for name, value in pairs if value is not None]


def write_headers(
    headers: Mapping[str, HeaderValue] | RawHeaders | None,
) -> list[tuple[str, bytes | None]]:
    """A user's headers as a record has them: text as UTF-8, numbers and truth as their words.

    >>> write_headers({"source": "web", "attempt": 2})
    [('source', b'web'), ('attempt', b'2')]
    """
    if not headers:
        return []
    pairs = headers.items() if isinstance(headers, Mapping) else _pairs(headers)
    return [(_name(name), _value(name, value)) for name, value in pairs]


def read_headers(headers: RawHeaders) -> dict[str, str]:
    """The headers that are the user's own, as text.

    Bytes that are not UTF-8 survive as surrogates and come out the same when written again.
    """
    return {
        name: (value or b"").decode("utf-8", "surrogateescape")
        for name, value in headers
        if name not in NAMES
    }


def _pairs(headers: object) -> list[tuple[str, Any]]:
    """Headers as a list; what has the form of none is refused."""
    pairs: list[Any] = list(headers) if isinstance(headers, Iterable) else [headers]
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise InvalidArgument(f"headers are a dict, or pairs of name and value, not {headers!r}")
    return pairs


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of a header is text, not {type(name).__name__}: {name!r}")
    return name


def _value(name: str, value: object) -> bytes | None:
    match value:
        case None | bytes():
            return value
        case str():
            return _encode(value)
        case bool():
            return b"true" if value else b"false"
        case int() | float():
            return str(value).encode()
        case bytearray() | memoryview():
            return bytes(value)
    raise InvalidArgument(
        f"header {name!r} is a {type(value).__name__}: give text, bytes or a number"
    )


def _encode(text: str) -> bytes:
    return utf8(text, "surrogateescape")


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _number(data: bytes | None) -> int | None:
    return int(data) if data is not None and data.isdigit() and len(data) <= 16 else None
