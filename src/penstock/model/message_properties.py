"""The properties of an AMQP message: a view over the publisher's own bytes.

    flags u16 | one value per flag, from bit 15 down          (AMQP 0-9-1 §4.2.6.1)

    15 content-type     shortstr     10 correlation-id  shortstr      5 type        shortstr
    14 content-encoding shortstr      9 reply-to        shortstr      4 user-id     shortstr
    13 headers          table         8 expiration      shortstr      3 app-id      shortstr
    12 delivery-mode    octet         7 message-id      shortstr      2 cluster-id  shortstr
    11 priority         octet         6 timestamp       u64

The bytes are stored with the message and delivered as they came; `parse` only finds where each
property lies, and checks that all of them, headers included, are well formed, so that no publisher
can make a consumer choke. An edit (`with_headers`, `without`) copies every other property byte for
byte. Bytes are never decoded to be encoded again.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from penstock.errors import MalformedRequest
from penstock.model.field_table import (
    decode_table,
    encode_table,
    read_entries,
    skip_table,
    write_entries,
)

CONTENT_TYPE = 1 << 15
CONTENT_ENCODING = 1 << 14
HEADERS = 1 << 13
DELIVERY_MODE = 1 << 12
PRIORITY = 1 << 11
CORRELATION_ID = 1 << 10
REPLY_TO = 1 << 9
EXPIRATION = 1 << 8
MESSAGE_ID = 1 << 7
TIMESTAMP = 1 << 6
TYPE = 1 << 5
USER_ID = 1 << 4
APP_ID = 1 << 3
CLUSTER_ID = 1 << 2
_IN_ORDER = tuple(1 << bit for bit in range(15, 1, -1))
_OCTETS = DELIVERY_MODE | PRIORITY

NO_PROPERTIES = b"\x00\x00"
PERSISTENT = b"\x10\x00\x02"

# Publishers repeat short property lists (delivery mode, content type); long ones differ by message.
_REMEMBERED_BYTES = 48


class MessageProperties:
    """Where each property of one message lies, and what it says."""

    __slots__ = ("_spans", "flags", "raw")

    def __init__(self, raw: bytes, flags: int, spans: Mapping[int, tuple[int, int]]) -> None:
        self.raw = raw
        self.flags = flags
        self._spans = spans

    def __repr__(self) -> str:
        return f"<MessageProperties {self.flags:#06x} {self.raw!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageProperties) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    # --- what they say ----------------------------------------------------------------------------

    @property
    def content_type(self) -> str | None:
        return self._text(CONTENT_TYPE)

    @property
    def content_encoding(self) -> str | None:
        return self._text(CONTENT_ENCODING)

    @property
    def delivery_mode(self) -> int | None:
        return self._octet(DELIVERY_MODE)

    @property
    def priority(self) -> int | None:
        return self._octet(PRIORITY)

    @property
    def correlation_id(self) -> str | None:
        return self._text(CORRELATION_ID)

    @property
    def reply_to(self) -> str | None:
        return self._text(REPLY_TO)

    @property
    def expiration(self) -> str | None:
        return self._text(EXPIRATION)

    @property
    def message_id(self) -> str | None:
        return self._text(MESSAGE_ID)

    @property
    def timestamp(self) -> int | None:
        """Seconds since 1970, as the publisher wrote them."""
        span = self._spans.get(TIMESTAMP)
        return None if span is None else int.from_bytes(self.raw[span[0] : span[1]], "big")

    @property
    def type(self) -> str | None:
        return self._text(TYPE)

    @property
    def user_id(self) -> str | None:
        return self._text(USER_ID)

    @property
    def app_id(self) -> str | None:
        return self._text(APP_ID)

    @property
    def cluster_id(self) -> str | None:
        return self._text(CLUSTER_ID)

    @property
    def has_headers(self) -> bool:
        return self.flags & HEADERS != 0

    @property
    def headers(self) -> dict[str, object]:
        """The header table as values; empty when there is none."""
        span = self._spans.get(HEADERS)
        return {} if span is None else decode_table(self.raw[span[0] : span[1]])

    @property
    def header_entries(self) -> dict[str, bytes]:
        """The header table as each value's own bytes (see `field_table.read_entries`)."""
        span = self._spans.get(HEADERS)
        return {} if span is None else read_entries(self.raw[span[0] : span[1]])

    def _text(self, flag: int) -> str | None:
        span = self._spans.get(flag)
        if span is None:
            return None
        # A property that is not UTF-8 is still delivered untouched; here it only has to compare.
        return self.raw[span[0] + 1 : span[1]].decode("utf-8", "surrogateescape")

    def _octet(self, flag: int) -> int | None:
        span = self._spans.get(flag)
        return None if span is None else self.raw[span[0]]

    # --- edits ------------------------------------------------------------------------------------

    def without(self, flags: int) -> bytes:
        """The property bytes lacking the given ones."""
        return self._edited({flag: None for flag in _IN_ORDER if flag & flags})

    def with_text(self, flag: int, text: str) -> bytes:
        """The property bytes with one short string set."""
        return self._edited({flag: _short_string(text)})

    def with_headers(
        self, entries: Mapping[str, bytes], *, without: int = 0, keep_empty: bool = False
    ) -> bytes:
        """The property bytes with another header table; an empty one only if it is to be kept."""
        changes: dict[int, bytes | None] = {flag: None for flag in _IN_ORDER if flag & without}
        changes[HEADERS] = write_entries(entries) if entries or keep_empty else None
        return self._edited(changes)

    def _edited(self, changes: Mapping[int, bytes | None]) -> bytes:
        flags, parts = self.flags, [b""]
        for flag in _IN_ORDER:
            if flag in changes:
                value = changes[flag]
                if value is None:
                    flags &= ~flag
                else:
                    flags |= flag
                    parts.append(value)
            elif flag in self._spans:
                start, end = self._spans[flag]
                parts.append(self.raw[start:end])
        parts[0] = flags.to_bytes(2, "big")
        return b"".join(parts)


def parse(raw: bytes) -> MessageProperties:
    """The view over property bytes; MalformedRequest when they are not what their flags say."""
    if len(raw) <= _REMEMBERED_BYTES:
        return _parse_remembered(raw)
    return _parse(raw)


def _parse(raw: bytes) -> MessageProperties:
    end = len(raw)
    if end < 2:
        raise MalformedRequest("a content header without property flags")
    flags = raw[0] << 8 | raw[1]
    if flags & 3:
        raise MalformedRequest(f"property flags {flags:#06x} name properties that do not exist")
    spans: dict[int, tuple[int, int]] = {}
    position = 2
    for flag in _IN_ORDER:
        if not flags & flag:
            continue
        if position >= end:
            raise MalformedRequest("a content header ends before its last property")
        if flag == HEADERS:
            after = skip_table(raw, position, end)
        elif flag & _OCTETS:
            after = position + 1
        elif flag == TIMESTAMP:
            after = position + 8
        else:
            after = position + 1 + raw[position]
        spans[flag] = (position, after)
        position = after
    if position != end:
        raise MalformedRequest("a content header whose properties are not as long as it says")
    return MessageProperties(raw, flags, spans)


_parse_remembered = lru_cache(maxsize=1024)(_parse)


def build(
    *,
    content_type: str | None = None,
    headers: Mapping[str, object] | None = None,
    delivery_mode: int | None = None,
    priority: int | None = None,
    correlation_id: str | None = None,
    reply_to: str | None = None,
    expiration: str | None = None,
    message_id: str | None = None,
    timestamp: int | None = None,
    type: str | None = None,
    user_id: str | None = None,
    app_id: str | None = None,
) -> bytes:
    """Property bytes from values, for messages that did not come through AMQP."""
    values = {
        CONTENT_TYPE: content_type, HEADERS: headers, DELIVERY_MODE: delivery_mode,
        PRIORITY: priority, CORRELATION_ID: correlation_id, REPLY_TO: reply_to,
        EXPIRATION: expiration, MESSAGE_ID: message_id, TIMESTAMP: timestamp, TYPE: type,
        USER_ID: user_id, APP_ID: app_id,
    }  # fmt: skip
    flags, parts = 0, [b""]
    for flag in _IN_ORDER:
        value = values.get(flag)
        if value is None:
            continue
        flags |= flag
        if isinstance(value, str):
            parts.append(_short_string(value))
        elif isinstance(value, Mapping):
            parts.append(encode_table(value))
        else:
            assert isinstance(value, int)
            parts.append(value.to_bytes(1 if flag & _OCTETS else 8, "big"))
    parts[0] = flags.to_bytes(2, "big")
    return b"".join(parts)


def _short_string(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    if len(encoded) > 255:
        raise ValueError(f"a short string of {len(encoded)} bytes; 255 is the most")
    return bytes((len(encoded),)) + encoded
