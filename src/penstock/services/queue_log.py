"""The messages of one queue in the log of its topic: appended as batches, read back by offset.

What AMQP published is known when it is appended. What others wrote to the topic (Kafka producers,
an earlier run of the broker) is read from the log, batch by batch, when readers may see it. Either
way a queue gets `Arrival`s: runs of offsets with what its machine must know of them. Records that
are no messages (markers, aborted transactions, gaps that compaction left, moved copies) are named,
so that the queue can settle them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import NamedTuple

from penstock.errors import CorruptRecord
from penstock.log.chunk import LogChunk
from penstock.machines.queue_outcome import NO_MARKS, Marks
from penstock.model.batch import BatchHeader, whole_batches
from penstock.model.offset_ranges import Range, as_ranges
from penstock.model.queue_record import (
    NOTHING_TELLING,
    Message,
    StoredMessage,
    build_messages,
    read_messages,
    telling,
)
from penstock.model.queue_settings import QueueSettings
from penstock.model.records import Headers, read_records
from penstock.model.topic import topic_id_text
from penstock.services.queue_pages import Entry, Page, Pages
from penstock.services.replica import Appended, Replica

_log = logging.getLogger("penstock")

READ_BYTES = 256 << 10
_SCAN_BYTES = 512 << 10  # of messages that are looked at before others have their turn


class Arrival(NamedTuple):
    """Messages [low, high) as the machine must know them."""

    low: int
    high: int
    time_ms: int
    marks: Marks = NO_MARKS
    skipped: Sequence[Range] = ()  # offsets in it that are no messages
    ids: Sequence[tuple[int, str]] = ()  # (offset, message id), if the queue looks for duplicates


class QueueLog:
    """The log of one queue."""

    __slots__ = ("_name", "_own", "pages", "replica")

    def __init__(self, replica: Replica, name: str) -> None:
        self.replica = replica
        self.pages = Pages()
        self._name = name
        self._own: deque[Arrival] = deque()  # appended here, not visible yet

    def __repr__(self) -> str:
        return f"<QueueLog {self.replica!r} {self.pages.size} bytes in memory>"

    # --- writing ----------------------------------------------------------------------------------

    def append(
        self,
        messages: Sequence[Message],
        now_ms: int,
        settings: QueueSettings,
        *,
        extras: Sequence[Headers | None] | None = None,
        dues: Sequence[int | None] | None = None,
        copies: bool = False,
        keep: bool = True,
    ) -> Appended:
        """Append messages as one batch. `dues` are the times before which not to deliver.

        With `copies` they are no messages but bytes of older ones. With `keep` they stay in memory.
        """
        batch = build_messages(messages, now_ms, extras)
        appended = self.replica.append_own(batch, now_ms)
        base = appended.base_offset
        if copies:
            skipped = ((base, appended.end_offset),)
            self._own.append(Arrival(base, appended.end_offset, now_ms, skipped=skipped))
            return appended
        marks = marks_of(base, messages, now_ms, settings, dues)
        self._own.append(Arrival(base, appended.end_offset, now_ms, marks))
        if keep:
            self.pages.add(Page(base, messages, len(batch)))
        return appended

    def source(self, offset: int) -> bytes:
        """Where a message of this log is, for the `penstock.source` of its copy elsewhere.

        With the id of the topic: another one of that name has the same offsets.
        """
        topic_id = topic_id_text(self.replica.log.topic_id)
        return f"{self.replica.topic}/{offset}/{topic_id}".encode()

    @property
    def pending(self) -> int:
        """Messages appended here that are not visible yet."""
        return sum(arrival.high - arrival.low for arrival in self._own if not arrival.skipped)

    @property
    def pending_bytes(self) -> int:
        """Bytes of their bodies, if the queue measures its messages."""
        return sum(sum(arrival.marks.sizes or ()) for arrival in self._own)

    # --- what has become visible ------------------------------------------------------------------

    def arrivals(self, low: int, high: int, settings: QueueSettings) -> Iterator[Arrival | None]:
        """What lies in [low, high), in order; None when the disk must be waited for: `fetch`."""
        while low < high:
            while self._own and self._own[0].high <= low:
                self._own.popleft()
            own = self._own[0] if self._own else None
            if own is not None and own.low == low:
                if own.high > high:
                    return
                self._own.popleft()
                yield own
                low = own.high
                continue
            stop = high if own is None else min(high, own.low)
            chunk = self.replica.log.try_read(low, READ_BYTES, upper_offset=stop)
            if chunk is None:
                yield None
                return
            for arrival in self._read(chunk, low, stop, settings):
                yield arrival
                low = arrival.high
            if not chunk.data:  # nothing there at all: a gap up to the end
                yield Arrival(low, stop, 0, skipped=((low, stop),))
                low = stop

    async def scan(self, low: int, high: int, settings: QueueSettings) -> AsyncIterator[Arrival]:
        """`arrivals`, with as much patience as it takes, reading much at a time."""
        while low < high:
            try:
                chunk = await self._patient_read(low, _SCAN_BYTES, high)
            except CorruptRecord as damage:
                # Nobody can have what is in there; whatever is behind it, somebody must.
                behind = min(high, await self.replica.log.offset_behind_damage(low))
                _log.error("messages %d to %d of a queue are lost: %s", low, behind, damage)
                yield Arrival(low, behind, 0, skipped=((low, behind),))
                low = behind
                continue
            if not chunk.data:
                yield Arrival(low, high, 0, skipped=((low, high),))
                return
            for arrival in self._read(chunk, low, high, settings):
                yield arrival
                low = arrival.high
            await asyncio.sleep(0)  # what the page cache has is read without ever waiting

    async def fetch(self, low: int, high: int) -> None:
        """Wait until the bytes at `low` are in the page cache."""
        await self._patient_read(low, READ_BYTES, high)

    async def _patient_read(self, low: int, size: int, high: int) -> LogChunk:
        return await self.replica.log.read(low, size, upper_offset=high)

    def _read(
        self, chunk: LogChunk, low: int, high: int, settings: QueueSettings
    ) -> Iterator[Arrival]:
        """The batches of a chunk as arrivals, together covering [low, its end) without gaps."""
        aborted = self._aborted(low, chunk.next_offset)
        view = memoryview(chunk.data)
        at = 0
        for header in whole_batches(view):
            data = view[at : at + header.size]
            at += header.size
            stop = min(header.next_offset, high)
            if stop <= low:
                continue
            if low < header.base_offset:  # however much compaction took away: it is one step
                gap = min(header.base_offset, stop)
                yield Arrival(low, gap, header.max_timestamp, skipped=((low, gap),))
                low = gap
            if header.is_control or _is_aborted(header, aborted):
                yield Arrival(low, stop, header.max_timestamp, skipped=((low, stop),))
            else:
                yield self._arrival(data, header, low, stop, settings)
            low = stop

    def _arrival(
        self, data: memoryview, header: BatchHeader, low: int, high: int, settings: QueueSettings
    ) -> Arrival:
        stored = self._stored(data)
        messages = [one for one in stored if low <= one.offset < high and one.copy_of is None]
        present = [message.offset for message in messages]
        skipped: Sequence[Range] = ()
        if len(present) < high - low:
            known = frozenset(present)
            skipped = as_ranges(at for at in range(low, high) if at not in known)
        marks = marks_of_stored(low, high, messages, settings)
        return Arrival(low, high, header.max_timestamp, marks, skipped)

    def _stored(self, data: memoryview) -> list[StoredMessage]:
        try:
            return read_messages(data, self._name)
        except CorruptRecord:
            # Its checksum is right, its records are not: a producer's mistake. It holds no message.
            return []

    def _aborted(self, low: int, high: int) -> dict[int, list[tuple[int, int]]]:
        found: dict[int, list[tuple[int, int]]] = {}
        for one in self.replica.log.aborted_between(low, high):
            found.setdefault(one.producer_id, []).append((one.first_offset, one.last_offset))
        return found

    # --- reading messages -------------------------------------------------------------------------

    def entry(self, place: int) -> Entry | None:
        """The message at a place in the log, if it can be had without waiting.

        None as well when it is not a message any more; `entry_or_wait` tells these apart.
        """
        page = self.pages.find(place)
        if page is None:
            page = self._load_page(place, self._chunk_now(place))
        return None if page is None else page.entries[place - page.base]

    async def entry_or_wait(self, place: int) -> Entry | None:
        """The message at a place in the log; None when there is none."""
        page = self.pages.find(place)
        if page is None:
            log = self.replica.log
            if not log.start_offset <= place < log.end_offset:
                return None
            try:
                chunk = await log.read(place, READ_BYTES, upper_offset=log.end_offset)
            except CorruptRecord:
                return None
            page = self._load_page(place, chunk)
        return None if page is None else page.entries[place - page.base]

    def is_at_hand(self, place: int) -> bool:
        """Whether `entry` will answer for this place without waiting."""
        if self.pages.find(place) is not None:
            return True
        return self._load_page(place, self._chunk_now(place)) is not None

    def _chunk_now(self, place: int) -> LogChunk | None:
        log = self.replica.log
        if not log.start_offset <= place < log.end_offset:
            return None
        try:
            return log.try_read(place, READ_BYTES, upper_offset=log.end_offset)
        except CorruptRecord:
            return None

    def _load_page(self, place: int, chunk: LogChunk | None) -> Page | None:
        """Keep the batches of a chunk as pages; returns the one that has the place."""
        if chunk is None or not chunk.data:
            return None
        wanted: Page | None = None
        view = memoryview(chunk.data)
        at = 0
        for header in whole_batches(view):
            data = view[at : at + header.size]
            at += header.size
            entries: list[Entry | None] = [None] * (header.last_offset_delta + 1)
            if not header.is_control:
                for message in self._stored(data):
                    entries[message.offset - header.base_offset] = message
            page = Page(header.base_offset, entries, header.size)
            self.pages.add(page)
            if page.base <= place < page.end:
                wanted = page
        if wanted is not None:
            self.pages.use(wanted)
        return wanted


def _is_aborted(header: BatchHeader, aborted: dict[int, list[tuple[int, int]]]) -> bool:
    if not header.is_transactional:
        return False
    spans = aborted.get(header.producer_id, ())
    return any(first <= header.base_offset <= last for first, last in spans)


def gaps_in(header: BatchHeader, data: memoryview, low: int, high: int) -> list[Range]:
    """Offsets of a batch that compaction has emptied."""
    gaps = [(low, header.base_offset)] if low < header.base_offset else []
    if header.record_count == header.last_offset_delta + 1:
        return gaps
    known = frozenset(record.offset for record in read_records(data))
    start = max(low, header.base_offset)
    return gaps + as_ranges(offset for offset in range(start, high) if offset not in known)


# --- what the machine must know of messages -------------------------------------------------------


def marks_of(
    base: int,
    messages: Sequence[Message],
    now_ms: int,
    settings: QueueSettings,
    dues: Sequence[int | None] | None,
) -> Marks:
    """The marks of messages that were just published."""
    expiries: list[tuple[int, int]] = []
    schedules: list[tuple[int, int]] = []
    priorities = bytearray(len(messages)) if settings.max_priority else None
    if dues is not None:
        schedules = [(base + at, due) for at, due in enumerate(dues) if due and due > now_ms]
    properties = b""
    told = NOTHING_TELLING
    for index, message in enumerate(messages):
        if message.properties != properties:
            properties = message.properties
            told = telling(properties)
        if told is NOTHING_TELLING:
            continue
        due_ms = None if dues is None else dues[index]
        if told.expiration_ms is not None:
            expiries.append((base + index, max(now_ms, due_ms or 0) + told.expiration_ms))
        if priorities is not None:
            priorities[index] = min(told.priority, settings.max_priority)
    sizes = None
    if settings.max_length_bytes is not None:
        sizes = [len(message.body) for message in messages]
    if not (expiries or schedules or priorities or sizes):
        return NO_MARKS
    return Marks(None if priorities is None else bytes(priorities), expiries, schedules, sizes)


def marks_of_stored(
    low: int, high: int, messages: Sequence[StoredMessage], settings: QueueSettings
) -> Marks:
    """The marks of messages that were read from the log."""
    expiries: list[tuple[int, int]] = []
    schedules: list[tuple[int, int]] = []
    priorities = bytearray(high - low) if settings.max_priority else None
    sizes = [0] * (high - low) if settings.max_length_bytes is not None else None
    properties, told, lives_ms, level = b"", NOTHING_TELLING, None, 0
    for offset, timestamp_ms, _, _, raw, body, due_ms, _, _, _ in messages:
        if sizes is not None:
            sizes[offset - low] = len(body)
        if due_ms is not None and due_ms > timestamp_ms:
            schedules.append((offset, due_ms))
        if raw is not properties:
            properties, told = raw, telling(raw)
            lives_ms, level = told.expiration_ms, min(told.priority, settings.max_priority)
        if lives_ms is not None:
            expiries.append((offset, max(timestamp_ms, due_ms or 0) + lives_ms))
        if level and priorities is not None:
            priorities[offset - low] = level
    return Marks(None if priorities is None else bytes(priorities), expiries, schedules, sizes)
