"""In which order a queue with `x-max-priority` gives out its messages: highest priority first.

Each level has the offsets of its messages in an array, 8 bytes a message, and a heap of those that
came back or became due; the lowest of both goes out first. An offset is PLAIN while it is ready or
delivered; which of the two, the dictionary of delivered offsets says, as there is no cursor (see
queue_order.py for the states). A message that is withdrawn stays in its array and is stepped over
when its turn comes.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterator, Sequence

from penstock.machines.offset_bytes import OffsetBytes
from penstock.machines.queue_order import HELD, PLAIN
from penstock.model.offset_ranges import Range, as_ranges

_TRIM_AT = 4096


class _Level:
    """The ready messages of one priority."""

    __slots__ = ("again", "head", "offsets")

    def __init__(self) -> None:
        self.offsets: array[int] = array("q")
        self.head = 0  # index of the next one
        self.again: list[int] = []  # a heap of those that came back or became due

    def trim(self) -> None:
        if self.head > _TRIM_AT and self.head > len(self.offsets) // 2:
            del self.offsets[: self.head]
            self.head = 0


class PriorityOrder:
    """Strict priorities; first in, first out within each."""

    __slots__ = ("_delivered", "_floor", "_held", "_levels", "_nonempty", "_states", "ready")

    def __init__(self, states: OffsetBytes, start: int) -> None:
        self._states = states
        self._floor = start
        self._levels: dict[int, _Level] = {}
        self._nonempty = 0  # bit n: level n may have messages
        self._delivered: dict[int, int] = {}  # offset: priority
        self._held: dict[int, int] = {}
        self.ready = 0

    def __repr__(self) -> str:
        return f"PriorityOrder({len(self._levels)} levels, {self.ready} ready)"

    @property
    def delivered(self) -> int:
        return len(self._delivered)

    def extend(self, low: int, high: int, priorities: bytes | None, held: Sequence[int]) -> int:
        if priorities is None:
            priorities = bytes(high - low)
        count = 0
        for offset in held:
            if self._states.get(offset) == PLAIN:
                self._states.put(offset, HELD)
                self._held[offset] = priorities[offset - low]
                self._level(priorities[offset - low])
                count += 1
        for start, stop in self._states.runs_of(PLAIN, low, high):
            self.ready += stop - start
            self._add(start, priorities[start - low : stop - low])
        return count

    def _add(self, low: int, priorities: bytes) -> None:
        if priorities.count(priorities[:1]) == len(priorities):
            self._level(priorities[0]).offsets.extend(range(low, low + len(priorities)))
            return
        for offset, priority in enumerate(priorities, low):
            self._level(priority).offsets.append(offset)

    def take(self, limit: int) -> list[Range]:
        taken: list[Range] = []
        low = high = -1
        for offset in self._pop(limit):
            if offset == high:
                high += 1
                continue
            if high > low:
                taken.append((low, high))
            low, high = offset, offset + 1
        if high > low:
            taken.append((low, high))
        return taken

    def _pop(self, limit: int) -> Iterator[int]:
        get = self._states.get if self._states else None
        while limit > 0 and self.ready:
            priority = self._nonempty.bit_length() - 1
            level = self._levels[priority]
            again, offsets, head = level.again, level.offsets, level.head
            if again and (head == len(offsets) or again[0] < offsets[head]):
                offset = heapq.heappop(again)
            elif head < len(offsets):
                offset = offsets[head]
                level.head += 1
            else:
                del level.offsets[:]
                level.head = 0
                self._nonempty ^= 1 << priority
                continue
            # Below the floor the states are forgotten, and everything is settled.
            if offset >= self._floor and (get is None or get(offset) == PLAIN):
                self._delivered[offset] = priority
                self.ready -= 1
                limit -= 1
                yield offset
            level.trim()

    def restore(self, low: int, high: int) -> None:
        for offset in range(low, high):
            self._again(offset, self._delivered.pop(offset))

    def release(self, offset: int) -> None:
        self._states.put(offset, PLAIN)
        self._again(offset, self._held.pop(offset))

    def withdraw(self, low: int, high: int, state: int) -> None:
        self._states.fill(low, high, state)
        self.ready -= high - low

    def settle(self, low: int, high: int) -> None:
        for offset in range(low, high):
            if self._delivered.pop(offset, None) is None:
                self.ready -= 1

    def ready_runs(self, low: int, high: int) -> Iterator[Range]:
        for start, stop in self._states.runs_of(PLAIN, low, high):
            yield from self._split(start, stop, delivered=False)

    def delivered_runs(self, low: int, high: int) -> Iterator[Range]:
        for start, stop in self._states.runs_of(PLAIN, low, high):
            yield from self._split(start, stop, delivered=True)

    def delivered_among(self, ranges: Sequence[Range], floor: int) -> list[Range]:
        delivered = self._delivered
        found: list[Range] = []
        for low, high in ranges:
            if high - low == 1:
                if low in delivered:
                    found.append((low, high))
            else:
                found += as_ranges(at for at in range(low, high) if at in delivered)
        return found

    def floor_moved(self, floor: int) -> None:
        self._floor = floor

    def _split(self, low: int, high: int, *, delivered: bool) -> Iterator[Range]:
        """The runs of [low, high) that are delivered, or those that are not."""
        if not self._delivered:
            if not delivered:
                yield low, high
            return
        start = low
        for offset in range(low, high):
            if (offset in self._delivered) is not delivered:
                if start < offset:
                    yield start, offset
                start = offset + 1
        if start < high:
            yield start, high

    def _again(self, offset: int, priority: int) -> None:
        self._nonempty |= 1 << priority
        heapq.heappush(self._levels[priority].again, offset)
        self.ready += 1

    def _level(self, priority: int) -> _Level:
        self._nonempty |= 1 << priority
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level()
        return level
