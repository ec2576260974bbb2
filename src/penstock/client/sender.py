"""What both faces do with a message before a home gets it: prepare, deduplicate, account for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

from penstock.client.errors import PenstockError
from penstock.client.home import Home
from penstock.client.message import Message, Receipt, key_bytes
from penstock.client.outgoing import (
    NO_PARTITION,
    NO_WISHES,
    Outgoing,
    RecentIds,
    Row,
    Settle,
    Wishes,
    prepare,
)
from penstock.client.properties import RawHeaders
from penstock.client.room import Room
from penstock.client.serializer import Serializer, find_serializer, payload_bytes
from penstock.client.watch import Watch

log = logging.getLogger("penstock")

ROWS_AT_ONCE = 10_000
_ROW_OVERHEAD_BYTES = 16

Callback = Callable[[Receipt | None, PenstockError | None], None]


class PublishOptions(NamedTuple):
    """What `open` and `connect` say about publishing."""

    serializer: Serializer | str | None = None
    backpressure: str = "block"
    max_pending_messages: int = 100_000
    max_pending_bytes: int = 64 * 1024 * 1024
    deduplication_window: float = 120.0
    watch: Watch | None = None


class Rows(NamedTuple):
    """Some of many messages, and what they take."""

    rows: list[Row]
    size: int


class _Flight:
    """A message with an id: its receipt, or those who wait for it."""

    __slots__ = ("receipt", "waiting")

    def __init__(self) -> None:
        self.receipt: Receipt | None = None
        self.waiting: list[Settle] = []


class Landing:
    """What settles a message for which room was taken. It does not hold the message itself, or
    each would be a cycle for the garbage collector to find."""

    __slots__ = ("message_id", "sender", "settle", "size", "topic")

    def __init__(self, sender: Sender, outgoing: Outgoing, size: int, settle: Settle) -> None:
        self.sender = sender
        self.topic = outgoing.topic
        self.message_id = outgoing.message_id
        self.size = size
        self.settle = settle

    def __call__(self, receipt: Receipt | None, failure: PenstockError | None) -> None:
        self.sender.room.give_back(self.size)
        if self.message_id is not None:
            self.sender.landed(self.topic, self.message_id, receipt, failure)
        self.settle(receipt, failure)


def settle_all(messages: Sequence[Outgoing], receipts: Iterable[Receipt]) -> None:
    """Settle messages that are safe, and give all their room back at once."""
    taken: dict[Room, tuple[int, int]] = {}
    settled: list[tuple[Settle, Receipt]] = []
    for outgoing, receipt in zip(messages, receipts, strict=True):
        settle = outgoing.settle
        if type(settle) is Landing and settle.message_id is None:
            room = settle.sender.room
            size, count = taken.get(room, (0, 0))
            taken[room] = (size + settle.size, count + 1)
            settle = settle.settle
        settled.append((settle, receipt))
    for room, (size, count) in taken.items():
        room.give_back(size, count)
    for settle, receipt in settled:
        settle(receipt, None)


class Sender:
    """One per client; used from any thread."""

    def __init__(self, home: Home, options: PublishOptions) -> None:
        self.home = home
        self.room = Room(
            options.max_pending_messages, options.max_pending_bytes, options.backpressure
        )
        self.watch = options.watch
        if self.watch is not None and self.watch.meter is not None:
            self.watch.meter.watch(self.room)
        self._serializer = find_serializer(options.serializer)
        self._recent = RecentIds(options.deduplication_window)
        self._lock = threading.Lock()

    def serializer(self, wanted: Serializer | str | None) -> Serializer | None:
        """The one of this call, else the client's."""
        return self._serializer if wanted is None else find_serializer(wanted)

    def prepare(
        self, topic: str, payload: Any, wishes: Wishes, serializer: Serializer | str | None = None
    ) -> Outgoing:
        """A message as it will be sent."""
        serialize = self._serializer if serializer is None else find_serializer(serializer)
        if wishes is NO_WISHES:
            return prepare(topic, payload, serialize, wishes, 0)
        return prepare(topic, payload, serialize, wishes, self.home.now_ms())

    # --- ids that were used a moment ago ----------------------------------------------------------

    def is_duplicate(self, outgoing: Outgoing, settle: Settle) -> bool:
        """Whether a message with that id is on its way or has arrived; then `settle` gets its
        receipt. Else this one is remembered."""
        message_id = outgoing.message_id
        if message_id is None:
            return False
        with self._lock:
            flight = self._recent.find(outgoing.topic, message_id)
            if flight is None:
                self._recent.remember(outgoing.topic, message_id, _Flight())
                return False
            if flight.receipt is None:
                flight.waiting.append(settle)
                return True
        settle(flight.receipt.as_duplicate(), None)
        return True

    def forget(self, outgoing: Outgoing) -> None:
        """It will not be sent: its id is free again."""
        if outgoing.message_id is not None:
            self.landed(outgoing.topic, outgoing.message_id, None, None)

    def landed(
        self, topic: str, message_id: str, receipt: Receipt | None, failure: PenstockError | None
    ) -> None:
        """What became of a message with an id."""
        with self._lock:
            flight = self._recent.find(topic, message_id)
            if flight is None:
                return
            waiting, flight.waiting = flight.waiting, []
            flight.receipt = receipt
            if receipt is None:
                self._recent.forget(topic, message_id)
        for settle in waiting:
            settle(None if receipt is None else receipt.as_duplicate(), failure)

    # --- sending ----------------------------------------------------------------------------------

    def launch(self, outgoing: Outgoing, size: int, settle: Settle) -> None:
        """Send a message for which room was taken."""
        if self.watch is not None:
            settle = self.watch.begin(outgoing.topic, outgoing, settle)
        outgoing.settle = Landing(self, outgoing, size, settle)
        try:
            self.home.enqueue(outgoing)
        except BaseException:
            self.room.give_back(size)
            self.forget(outgoing)
            raise

    def rows(
        self,
        messages: Iterable[Any],
        wishes: Wishes,
        serializer: Serializer | str | None,
        key_of: Callable[[Any], str | bytes | None] | None,
        headers: RawHeaders = (),
    ) -> Iterator[Rows]:
        """Many messages as rows, some at a time; each gets `headers` beside its own."""
        serialize = self.serializer(serializer)
        model = prepare("", b"", None, wishes, self.home.now_ms())
        model.headers = [*model.headers, *headers]
        is_plain = wishes is NO_WISHES and serialize is None and key_of is None
        iterator = iter(messages)
        while items := list(islice(iterator, ROWS_AT_ONCE)):
            if is_plain and all(type(item) is bytes for item in items):
                rows: list[Row] = [(None, item, headers, -1, NO_PARTITION) for item in items]
                size = sum(map(len, items))
            else:
                rows = [
                    self._row(item, model, wishes, serialize, key_of, headers) for item in items
                ]
                size = sum(len(row[1] or b"") + len(row[0] or b"") for row in rows)
            yield Rows(rows, size + _ROW_OVERHEAD_BYTES * len(rows))

    def _row(
        self,
        item: Any,
        model: Outgoing,
        wishes: Wishes,
        serialize: Serializer | None,
        key_of: Callable[[Any], str | bytes | None] | None,
        headers: RawHeaders,
    ) -> Row:
        if isinstance(item, Message):
            out = prepare("", item, None, wishes, 0)
            own = [*out.headers, *headers] if headers else out.headers
            return (out.key, out.value, own, out.timestamp_ms, out.partition)
        key = model.key if key_of is None else key_bytes(key_of(item))
        value = payload_bytes(item, serialize)
        return (key, value, model.headers, model.timestamp_ms, model.partition)


def call_back(callback: Callback, receipt: Receipt | None, failure: PenstockError | None) -> None:
    """Tell a user's function; what it raises is its own business, but should be seen."""
    try:
        callback(receipt, failure)
    except Exception:
        log.exception("the delivery callback %r failed", callback)
