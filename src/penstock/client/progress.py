"""How far a subscription has come: what to yield next, and what may be committed.

Chunks of the log go in, wanted messages come out one by one. Unwanted ones (filtered out, expired)
count as done. One that is not due yet is set aside while others pass it; until it is done, the
committed offset of its partition stays below it, so that a restart brings it again, and with it
whatever came after it. All of this is a function of the calls made; nothing here waits.

    offset      5    6    7    8    9   10        5, 6 done; 7 set aside until it is due;
                ✔    ✔    ◷    ✔    ▸    ·        8 done; 9 yielded and being worked on; 10 ready
                          ↑ commit                committed: 7
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Protocol

from penstock.client.filter import Filter
from penstock.client.message import Message
from penstock.model.ids import TopicPartition

MOST_SET_ASIDE = 10_000


class Chunk(Protocol):
    """A piece of one partition, in order."""

    @property
    def place(self) -> TopicPartition:
        """The partition."""

    @property
    def next_offset(self) -> int:
        """Where the next piece begins."""

    def messages(self) -> Iterable[Message]:
        """What readers may see of it."""


class _Lane:
    """One partition."""

    __slots__ = ("done", "epoch", "fetched", "ready", "set_aside")

    def __init__(self, position: int) -> None:
        self.done = position  # everything below was yielded and finished, or was unwanted
        self.fetched = position  # everything below is in here or done
        self.ready = 0  # how many of the ready messages are of this partition
        self.set_aside: set[int] = set()
        self.epoch = object()  # changes when what was fetched before means nothing any more


class Progress:
    """The messages of a subscription between the log and the one who iterates."""

    def __init__(self, wanted: Filter | None = None, *, keep_expired: bool = False) -> None:
        self._filter = wanted
        self._keep_expired = keep_expired
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._ready: deque[tuple[Message, _Lane, object]] = deque()
        self._aside: list[tuple[int, int, Message, _Lane, object]] = []
        self._count = 0
        self._current: list[tuple[Message, _Lane, object]] = []

    def __repr__(self) -> str:
        return f"<Progress {len(self._ready)} ready, {len(self._aside)} set aside>"

    # --- partitions come and go -------------------------------------------------------------------

    def begin(self, place: TopicPartition, position: int) -> None:
        """Read `place` from `position` on; what was fetched of it before is forgotten."""
        old = self._lanes.get(place)
        self._lanes[place] = _Lane(position)
        if old is not None:
            self._drop(old)

    def end(self, place: TopicPartition) -> None:
        """The partition is somebody else's now."""
        lane = self._lanes.pop(place, None)
        if lane is not None:
            self._drop(lane)

    def _drop(self, lane: _Lane) -> None:
        lane.epoch = object()
        self._ready = deque(entry for entry in self._ready if entry[1] is not lane)
        self._aside = [entry for entry in self._aside if entry[3] is not lane]
        heapq.heapify(self._aside)
        self._current = [entry for entry in self._current if entry[1] is not lane]

    # --- in ---------------------------------------------------------------------------------------

    @property
    def wants_more(self) -> bool:
        """Whether there is room for another chunk."""
        return not self._ready and len(self._aside) < MOST_SET_ASIDE

    def fetched(self) -> dict[TopicPartition, int]:
        """Where the next chunk of each partition begins."""
        return {place: lane.fetched for place, lane in self._lanes.items()}

    def take(self, chunk: Chunk, now_ms: int) -> None:
        """A chunk has been fetched. One of a partition that was given up is ignored."""
        lane = self._lanes.get(chunk.place)
        if lane is None or chunk.next_offset <= lane.fetched:
            return
        begin = lane.fetched
        lane.fetched = chunk.next_offset
        wanted, keep_expired = self._filter, self._keep_expired
        for message in chunk.messages():
            if message.offset < begin:  # the front of a batch that is entered in its middle
                continue
            if wanted is not None and not wanted.matches(message):
                continue
            if message.raw_headers:
                if not keep_expired and message.is_expired(now_ms):
                    continue
                due_ms = message.properties.due_ms
                if due_ms is not None and due_ms > now_ms:
                    self._set_aside(message, due_ms, lane)
                    continue
            lane.ready += 1
            self._ready.append((message, lane, lane.epoch))

    def _set_aside(self, message: Message, due_ms: int, lane: _Lane) -> None:
        lane.set_aside.add(message.offset)
        self._count += 1
        heapq.heappush(self._aside, (due_ms, self._count, message, lane, lane.epoch))

    # --- out --------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Whoever got messages is done with them: they ask for the next ones."""
        for message, lane, epoch in self._current:
            if lane.epoch is epoch:
                self._finished(message, lane)
        self._current.clear()

    def _finished(self, message: Message, lane: _Lane) -> None:
        lane.set_aside.discard(message.offset)
        lane.done = max(lane.done, message.offset + 1)

    def next(self, now_ms: int) -> Message | None:
        """The next message, which is being worked on from now on."""
        aside = self._aside
        while aside and aside[0][0] <= now_ms:
            _, _, message, lane, epoch = heapq.heappop(aside)
            if self._keep_expired or not message.is_expired(now_ms):
                self._current.append((message, lane, epoch))
                return message
            lane.set_aside.discard(message.offset)
        if not self._ready:
            return None
        entry = self._ready.popleft()
        entry[1].ready -= 1
        self._current.append(entry)
        return entry[0]

    def next_due_ms(self) -> int | None:
        """When the first of those set aside is due."""
        return self._aside[0][0] if self._aside else None

    # --- what may be committed --------------------------------------------------------------------

    def position(self, place: TopicPartition, *, with_current: bool) -> int | None:
        """The offset to go on from after a restart, None for a partition that is not ours.

        `with_current`: count what is being worked on as done.
        """
        lane = self._lanes.get(place)
        if lane is None:
            return None
        done = lane.done
        open_offsets = set(lane.set_aside)
        for message, owner, _ in self._current:
            if owner is lane:
                if with_current:
                    done = max(done, message.offset + 1)
                    open_offsets.discard(message.offset)
                else:
                    open_offsets.add(message.offset)
        if not lane.ready:
            done = lane.fetched
        return min(done, *open_offsets) if open_offsets else done

    def positions(self, *, with_current: bool) -> dict[TopicPartition, int]:
        """The offsets of every partition."""
        found = {}
        for place in self._lanes:
            position = self.position(place, with_current=with_current)
            assert position is not None
            found[place] = position
        return found


def changed(
    positions: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """What there is to commit: positions that differ from what was committed last."""
    return {place: at for place, at in positions.items() if committed.get(place) != at}
