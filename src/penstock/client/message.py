"""A message, and the receipt for having published one.

`Message` is what consumers get and what `publish_many` and `send_ordered` take when a payload alone
is not enough. Its fields that are record headers underneath are read when they are asked for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock.client.amqp_headers import visible_headers
from penstock.client.arguments import utf8
from penstock.client.errors import InvalidArgument
from penstock.client.properties import (
    HeaderValue,
    Properties,
    RawHeaders,
    read_headers,
    read_properties,
    write_headers,
    write_properties,
)

Seconds = float | timedelta
Moment = datetime | float  # a float is seconds since 1970, as time.time() gives them

NO_TIMESTAMP = -1


def milliseconds(span: Seconds, what: str) -> int:
    """A span of time as whole milliseconds."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if not isinstance(seconds, int | float) or not 0 <= seconds < 1e11:
        raise InvalidArgument(f"{what} cannot be {span!r}: give seconds, 0 or more")
    return round(seconds * 1000)


def moment_ms(moment: Moment, what: str) -> int:
    """A moment as milliseconds since 1970. A datetime without a zone is local time."""
    seconds = moment.timestamp() if isinstance(moment, datetime) else moment
    if not isinstance(seconds, int | float) or not 0 <= seconds < 1e11:
        raise InvalidArgument(
            f"{what} cannot be {moment!r}: give a datetime, or seconds since 1970 like time.time()"
        )
    return round(seconds * 1000)


def key_bytes(key: str | bytes | None) -> bytes | None:
    """A key as the log has it."""
    if key is None or type(key) is bytes:
        return key
    if isinstance(key, str):
        return utf8(key, "surrogateescape")
    if isinstance(key, bytes | bytearray | memoryview):
        return bytes(key)
    raise InvalidArgument(f"a key is text or bytes, not {type(key).__name__}: {key!r}")


class Message:
    """One message.

    >>> message = Message(b'{"id": 7}', key="user-1", headers={"source": "web"}, priority=5)
    >>> message.key, message.headers, message.priority, message.json()
    (b'user-1', {'source': 'web'}, 5, {'id': 7})
    """

    __slots__ = (
        "_properties",
        "key",
        "offset",
        "partition",
        "raw_headers",
        "timestamp_ms",
        "topic",
        "value",
    )

    def __init__(
        self,
        payload: bytes | str | None = b"",
        *,
        topic: str = "",
        partition: int = -1,
        offset: int = -1,
        key: str | bytes | None = None,
        headers: Mapping[str, HeaderValue] | RawHeaders | None = None,
        timestamp: Moment | None = None,
        priority: int = 0,
        ttl: Seconds | None = None,
        delay: Seconds | None = None,
        deliver_at: Moment | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        retry_count: int = 0,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key_bytes(key)
        self.value: bytes | None = payload.encode() if isinstance(payload, str) else payload
        self.timestamp_ms = NO_TIMESTAMP if timestamp is None else moment_ms(timestamp, "timestamp")
        properties = Properties(
            message_id,
            correlation_id,
            reply_to,
            priority,
            None if ttl is None else milliseconds(ttl, "ttl"),
            due_ms(delay, deliver_at, time.time_ns() // 1_000_000),
            retry_count,
        )
        self.raw_headers: RawHeaders = write_headers(headers) + write_properties(properties)
        self._properties: Properties | None = None

    @classmethod
    def stored(
        cls,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: RawHeaders,
    ) -> Message:
        """A message as it lies in a log.

        >>> Message.stored("orders", 0, 7, 1000, None, b"a", ()).message_id
        'orders-0-7'
        """
        self = cls.__new__(cls)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.raw_headers = headers
        self._properties = None
        return self

    def __repr__(self) -> str:
        where = f"{self.topic}-{self.partition}@{self.offset}" if self.topic else "unpublished"
        return f"<Message {where} key={self.key!r} {len(self.payload)} bytes>"

    # --- what it says -----------------------------------------------------------------------------

    @property
    def payload(self) -> bytes:
        """The content. A tombstone (`is_tombstone`) has none and gives b""."""
        return self.value or b""

    @property
    def is_tombstone(self) -> bool:
        """Whether the value is null: in a compacted topic, that its key is deleted."""
        return self.value is None

    @property
    def text(self) -> str:
        """The payload as UTF-8."""
        return self.payload.decode()

    def json(self) -> Any:
        """The payload as JSON.

        >>> Message('{"id": 7}').json()
        {'id': 7}
        """
        return json.loads(self.payload)

    @property
    def timestamp(self) -> datetime | None:
        """When it was published, in UTC."""
        if self.timestamp_ms < 0:
            return None
        return datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def headers(self) -> dict[str, str]:
        """The user's headers as text. `raw_headers` has every pair, in bytes."""
        return read_headers(visible_headers(self.raw_headers))

    # --- properties -------------------------------------------------------------------------------

    @property
    def properties(self) -> Properties:
        """What the headers say about the message, in milliseconds and text."""
        if self._properties is None:
            self._properties = read_properties(visible_headers(self.raw_headers))
        return self._properties

    @property
    def message_id(self) -> str:
        """The id it was given; else its place, which nobody else has either."""
        given = self.properties.message_id
        return f"{self.topic}-{self.partition}-{self.offset}" if given is None else given

    @property
    def priority(self) -> int:
        return self.properties.priority

    @property
    def ttl(self) -> float | None:
        """How many seconds after its timestamp it is worth nothing any more."""
        ttl_ms = self.properties.ttl_ms
        return None if ttl_ms is None else ttl_ms / 1000

    @property
    def deliver_at(self) -> datetime | None:
        """Before this nobody is to see it."""
        due = self.properties.due_ms
        return None if due is None else datetime.fromtimestamp(due / 1000, UTC)

    @property
    def correlation_id(self) -> str | None:
        return self.properties.correlation_id

    @property
    def reply_to(self) -> str | None:
        return self.properties.reply_to

    @property
    def retry_count(self) -> int:
        """How often it has been tried before."""
        return self.properties.retry_count

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time to live is over.

        >>> Message("a", timestamp=1000.0, ttl=60).is_expired(now_ms=1_061_000)
        True
        """
        properties = self.properties
        if properties.ttl_ms is None:
            return False
        return max(self.timestamp_ms, properties.due_ms or 0) + properties.ttl_ms <= now_ms


def due_ms(delay: Seconds | None, deliver_at: Moment | None, now_ms: int) -> int | None:
    """When a message may be seen, from either way of saying it."""
    if delay is not None and deliver_at is not None:
        raise InvalidArgument("give delay or deliver_at, not both")
    if delay is not None:
        return now_ms + milliseconds(delay, "delay")
    return None if deliver_at is None else moment_ms(deliver_at, "deliver_at")


class Receipt:
    """Where a message went. To have one means that the message is as safe as its topic promises.

    `duplicate`: a message with the same id was published a moment ago; this is that one's receipt.
    `dropped`: there was no room and the policy was "drop"; the message is nowhere.
    """

    __slots__ = (
        "_message_id",
        "dropped",
        "duplicate",
        "offset",
        "partition",
        "timestamp_ms",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int = NO_TIMESTAMP,
        message_id: str | None = None,
        *,
        duplicate: bool = False,
        dropped: bool = False,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self._message_id = message_id
        self.duplicate = duplicate
        self.dropped = dropped

    @property
    def message_id(self) -> str:
        """As `Message.message_id` of the message at that place."""
        if self._message_id is None:
            return f"{self.topic}-{self.partition}-{self.offset}"
        return self._message_id

    def as_duplicate(self) -> Receipt:
        """The same place, for somebody who published the same message again.

        >>> Receipt("orders", 0, 7).as_duplicate()
        <Receipt orders-0@7 orders-0-7 duplicate>
        """
        return Receipt(
            self.topic,
            self.partition,
            self.offset,
            self.timestamp_ms,
            self._message_id,
            duplicate=True,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Receipt):
            return NotImplemented
        return self._as_tuple() == other._as_tuple()

    def __hash__(self) -> int:
        return hash(self._as_tuple())

    def _as_tuple(self) -> tuple[object, ...]:
        return (self.topic, self.partition, self.offset, self.message_id, self.dropped)

    def __repr__(self) -> str:
        if self.dropped:
            return f"<Receipt {self.topic} dropped>"
        again = " duplicate" if self.duplicate else ""
        return f"<Receipt {self.topic}-{self.partition}@{self.offset} {self.message_id}{again}>"
