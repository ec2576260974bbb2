"""A message on its way from a caller to a log, with whoever waits for its receipt.

caller's thread                     the home's thread
prepare: bytes, headers, key
take room
enqueue ───────────────────────────▶ partition, batch, append, sync
                                     settle: receipt or failure, room given back
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from penstock.client.arguments import INT_MAX, check_text, check_whole
from penstock.client.errors import InvalidArgument, PenstockError
from penstock.client.message import (
    NO_TIMESTAMP,
    Message,
    Moment,
    Receipt,
    Seconds,
    due_ms,
    key_bytes,
    milliseconds,
    moment_ms,
)
from penstock.client.properties import (
    MESSAGE_ID,
    HeaderValue,
    Properties,
    RawHeaders,
    write_headers,
    write_properties,
)
from penstock.client.serializer import Serializer, payload_bytes

Settle = Callable[[Receipt | None, PenstockError | None], None]
NO_PARTITION = -1

# Key, value, headers, timestamp in milliseconds, partition: one of many messages to a topic. It is
# a plain tuple because there may be millions of them.
Row = tuple[bytes | None, bytes | None, RawHeaders, int, int]
_OVERHEAD_BYTES = 64  # what a message costs beside its content, about


class Outgoing:
    """One message, ready for a log. `settle` is called once, on a thread of the home."""

    __slots__ = (
        "headers",
        "key",
        "message_id",
        "partition",
        "settle",
        "timestamp_ms",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        headers: RawHeaders = (),
        partition: int = NO_PARTITION,
        timestamp_ms: int = NO_TIMESTAMP,
        message_id: str | None = None,
    ) -> None:
        self.topic = topic
        self.value = value
        self.key = key
        self.headers = headers
        self.partition = partition
        self.timestamp_ms = timestamp_ms
        self.message_id = message_id
        self.settle: Settle = _nobody_waits

    @property
    def size(self) -> int:
        """How many bytes it will take, about."""
        size = _OVERHEAD_BYTES + len(self.value or b"") + len(self.key or b"")
        for name, value in self.headers:
            size += len(name) + len(value or b"")
        return size

    def __repr__(self) -> str:
        return f"<Outgoing to {self.topic} key={self.key!r}>"


def _nobody_waits(receipt: Receipt | None, failure: PenstockError | None) -> None:
    """Until somebody does."""


class Wishes(NamedTuple):
    """Everything that can be said of a message beside its topic and payload."""

    key: str | bytes | None = None
    headers: Mapping[str, HeaderValue] | RawHeaders | None = None
    partition: int | None = None
    timestamp: Moment | None = None
    priority: int = 0
    ttl: Seconds | None = None
    delay: Seconds | None = None
    deliver_at: Moment | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None


NO_WISHES = Wishes()


def wishes_of(given: Mapping[str, Any]) -> Wishes:
    """The keyword arguments of a call, as wishes."""
    if not given:
        return NO_WISHES
    try:
        return Wishes(**given)
    except TypeError:
        unknown = ", ".join(sorted(set(given) - set(Wishes._fields)))
        known = ", ".join(Wishes._fields)
        raise TypeError(f"a message has no {unknown}; it can have {known}") from None


def prepare(
    topic: str, payload: Any, serializer: Serializer | None, wishes: Wishes, now_ms: int
) -> Outgoing:
    """A message of `payload`; a `Message` brings its own wishes along, which win."""
    if type(topic) is not str:
        check_text(topic, "a topic")
    if isinstance(payload, Message):
        return _of_message(topic, payload, wishes)
    value = payload_bytes(payload, serializer)
    if wishes is NO_WISHES:
        return Outgoing(topic, value)
    priority = wishes.priority
    if priority and not (isinstance(priority, int) and 0 <= priority <= 255):
        raise InvalidArgument(f"priority is 0 to 255, not {priority!r}")
    if wishes.partition is not None:
        check_whole(wishes.partition, "a partition", NO_PARTITION, INT_MAX)
    headers = write_headers(wishes.headers)
    headers += write_properties(_properties(wishes, now_ms))
    timestamp_ms = NO_TIMESTAMP
    if wishes.timestamp is not None:
        timestamp_ms = moment_ms(wishes.timestamp, "timestamp")
    return Outgoing(
        topic,
        value,
        key_bytes(wishes.key),
        headers,
        NO_PARTITION if wishes.partition is None else wishes.partition,
        timestamp_ms,
        wishes.message_id,
    )


def _properties(wishes: Wishes, now_ms: int) -> Properties:
    return Properties(
        wishes.message_id,
        wishes.correlation_id,
        wishes.reply_to,
        wishes.priority,
        None if wishes.ttl is None else milliseconds(wishes.ttl, "ttl"),
        due_ms(wishes.delay, wishes.deliver_at, now_ms),
    )


def _of_message(topic: str, message: Message, wishes: Wishes) -> Outgoing:
    key = key_bytes(wishes.key) if message.key is None else message.key
    partition = message.partition
    if message.offset >= 0 or partition < 0:  # where it was read from is not where it must go
        partition = NO_PARTITION if wishes.partition is None else wishes.partition
    headers = list(message.raw_headers)
    known = {name for name, _ in headers}
    headers += [pair for pair in write_headers(wishes.headers) if pair[0] not in known]
    given = next((value for name, value in headers if name == MESSAGE_ID), None)
    return Outgoing(
        topic,
        message.value,
        key,
        headers,
        partition,
        message.timestamp_ms if message.offset < 0 else NO_TIMESTAMP,
        None if given is None else given.decode("utf-8", "surrogateescape"),
    )


class RecentIds:
    """Message ids of the last moments, and the receipts of those that have arrived.

    What is remembered is this client's: two clients, or one before and after a restart, do not know
    of each other's. A consumer that must be sure uses `penstock.sql.Inbox`.
    """

    def __init__(self, window_s: float, most: int = 100_000) -> None:
        self._window_s = window_s
        self._most = most
        self._seen: OrderedDict[tuple[str, str], tuple[float, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, topic: str, message_id: str) -> Any:
        """What `remember` was given for that id within the window, else None."""
        self._forget_old()
        found = self._seen.get((topic, message_id))
        return None if found is None else found[1]

    def remember(self, topic: str, message_id: str, outcome: Any) -> None:
        if self._window_s > 0:
            self._seen[topic, message_id] = (time.monotonic(), outcome)

    def forget(self, topic: str, message_id: str) -> None:
        """It failed: the next one with that id is no duplicate."""
        self._seen.pop((topic, message_id), None)

    def _forget_old(self) -> None:
        oldest = time.monotonic() - self._window_s
        while self._seen:
            key, (at, _) = next(iter(self._seen.items()))
            if at > oldest and len(self._seen) <= self._most:
                return
            del self._seen[key]
