"""Which of the messages published to a queue it takes: no duplicates, and none beyond its limit.

A queue declared with `x-message-deduplication` takes each id once: that of the header
`x-deduplication-header`, or else the message id. Without a window an id counts while its message
is in the queue; with one (`x-deduplication-window-ms`, `x-cache-ttl`) for that long, whatever
becomes of the message. What was seen is found again in the log after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.errors import BrokerError
from penstock.machines.queue import Queue as Machine
from penstock.machines.seen_ids import SeenIds
from penstock.model.offset_ranges import Range
from penstock.model.queue_arguments import QueueRules
from penstock.model.queue_record import SOURCE, Message, StoredMessage, telling
from penstock.model.queue_settings import Overflow
from penstock.model.records import Headers
from penstock.services.queue_log import QueueLog

_MOST_SOURCES = 4096  # a crash leaves far fewer messages in two places


class Selection(NamedTuple):
    """What a queue takes of some messages, by index."""

    kept: Sequence[int] | None  # None: all
    refused: Sequence[int] = ()  # the publisher is told no; a duplicate is neither kept nor refused


ALL = Selection(None)


class Admission:
    """Decides for one queue."""

    __slots__ = ("_ids", "_log", "_machine", "_seen", "_sources")

    def __init__(self, machine: Machine, log: QueueLog, rules: QueueRules) -> None:
        self._machine = machine
        self._log = log
        self._seen: SeenIds | None = None
        self._ids: dict[int, bytes] = {}  # of the messages in the queue, if it has no window
        self._sources: SeenIds | None = None  # where messages came from that others sent here
        if rules.deduplicates:
            self._seen = SeenIds(
                window_ms=rules.deduplication_ms, capacity=rules.deduplication_size
            )

    @property
    def is_simple(self) -> bool:
        """Whether everything is taken, so that nobody need ask."""
        if self._seen is not None or self._sources is not None:
            return False
        return self._machine.settings.overflow is Overflow.DROP_HEAD

    def select(
        self, messages: Sequence[Message], extras: Sequence[Headers | None] | None, now_ms: int
    ) -> Selection:
        """Which of these the queue takes. `extras` are the further headers of each."""
        kept, refused = self._fitting(messages)
        if self._seen is not None:
            kept = [at for at in kept if self._is_new(messages[at], now_ms)]
        if self._sources is not None and extras is not None:
            kept = [at for at in kept if self._is_unknown(extras[at], now_ms)]
        return ALL if len(kept) == len(messages) else Selection(kept, refused)

    def _is_unknown(self, extra: Headers | None, now_ms: int) -> bool:
        """Whether no message came from the same place before, by its `penstock.source`."""
        assert self._sources is not None
        for name, value in extra or ():
            if name == SOURCE and value is not None:
                return self._sources.is_new(value, now_ms)
        return True

    def not_taken(
        self, messages: Sequence[Message], extras: Sequence[Headers | None] | None
    ) -> None:
        """These were selected and could not be written: they are no duplicates when they return."""
        for message in messages if self._seen is not None else ():
            found = id_of(message.properties)
            if self._seen is not None and found is not None:
                self._seen.forget(found)
        for extra in extras or ():
            for name, value in extra or ():
                if self._sources is not None and name == SOURCE and value is not None:
                    self._sources.forget(value)

    async def recall_sources(self, now_ms: int) -> None:
        """Before messages are sent here from elsewhere: see which came before a crash."""
        if self._sources is not None:
            return
        sources = SeenIds(capacity=_MOST_SOURCES)
        log = self._log.replica.log
        for offset in range(max(log.start_offset, log.end_offset - _MOST_SOURCES), log.end_offset):
            entry = await self._log.entry_or_wait(offset)
            if isinstance(entry, StoredMessage) and entry.source is not None:
                sources.is_new(entry.source, now_ms)
        self._sources = self._sources or sources

    def appended(self, base: int, messages: Sequence[Message]) -> None:
        """These were taken, and have these offsets."""
        if self._seen is not None and self._seen.window_ms is None:
            for offset, message in enumerate(messages, base):
                found = id_of(message.properties)
                if found is not None:
                    self._ids[offset] = found

    def settled(self, ranges: Sequence[Range]) -> None:
        """Messages left the queue: without a window, their ids may come again."""
        if not self._ids or self._seen is None:
            return
        for low, high in ranges:
            for offset in range(low, high):
                found = self._ids.pop(offset, None)
                if found is not None:
                    self._seen.forget(found)

    async def recall(self, now_ms: int) -> None:
        """Find in the log what was seen before a restart."""
        seen = self._seen
        if seen is None:
            return
        state, log = self._machine.state, self._log.replica.log
        low = state.floor
        if seen.window_ms is not None:
            since = now_ms - seen.window_ms
            first = await log.find_timestamp(since, upper_offset=log.end_offset)
            low = log.end_offset if first is None else first.offset
        for offset in range(max(low, log.start_offset), log.end_offset):
            try:
                entry = await self._log.entry_or_wait(offset)
            except BrokerError:
                return
            if isinstance(entry, StoredMessage) and entry.copy_of is None:
                self._recall_one(seen, offset, entry)

    def _recall_one(self, seen: SeenIds, offset: int, entry: StoredMessage) -> None:
        found = id_of(entry.properties)
        if found is None:
            return
        if seen.window_ms is not None:
            seen.is_new(found, entry.timestamp_ms, telling(entry.properties).deduplication_ms)
        elif self._machine.state.unsettled_among([(offset, offset + 1)]):
            seen.is_new(found, entry.timestamp_ms)
            self._ids[offset] = found

    def _is_new(self, message: Message, now_ms: int) -> bool:
        assert self._seen is not None
        found = id_of(message.properties)
        if found is None:
            return True
        return self._seen.is_new(found, now_ms, telling(message.properties).deduplication_ms)

    def _fitting(self, messages: Sequence[Message]) -> tuple[Sequence[int], Sequence[int]]:
        """Which of these fit into a queue that refuses what is too much, and which do not."""
        room, room_bytes = self._machine.room()
        if room is None and room_bytes is None:
            return range(len(messages)), ()
        pending, pending_bytes = self._log.pending, self._log.pending_bytes
        kept: list[int] = []
        refused: list[int] = []
        for index, message in enumerate(messages):
            size = len(message.body)
            if (room is not None and pending >= room) or (
                room_bytes is not None and pending_bytes + size > room_bytes
            ):
                refused.append(index)
                continue
            pending += 1
            pending_bytes += size
            kept.append(index)
        return kept, refused


def id_of(properties: bytes) -> bytes | None:
    """The id by which a message is recognised."""
    told = telling(properties)
    found = told.deduplication_id or told.message_id
    return None if found is None else found.encode("utf-8", "surrogateescape")
