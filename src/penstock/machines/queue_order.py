"""In which order a queue gives out its messages: by offset.

Every offset of the window has a state, one byte (see `OffsetBytes`), and the cursor gives the
most common one its meaning, so that the ordinary way of a message writes nothing at all:

    floor                     cursor                        end
      |  PLAIN: delivered       |  PLAIN: ready               |
      |  READY: ready again     |                             |
      |  HELD, DYING, SETTLED   |  HELD, DYING, SETTLED       |

Taking from the head moves the cursor; acknowledging what the floor points at moves the floor.
Messages that come back lie below the cursor and therefore go out first, in their old order.

`FifoOrder` and `PriorityOrder` (queue_priorities.py) have the same methods; the queue machine does
not know which of them it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from penstock.machines.offset_bytes import OffsetBytes
from penstock.model.offset_ranges import Range

PLAIN = 0  # as the cursor says: delivered below it, ready from it on
READY = 1  # ready although below the cursor: it came back, or its time came
HELD = 2  # waits for the time it is scheduled for
DYING = 3  # out of the queue, and on its way to the dead letters
SETTLED = 4  # done with
HANDED = 5  # only during replay: was delivered, and nothing more is known


class Order(Protocol):
    """What the machine asks of an order. Ranges are [low, high) and lie within the window."""

    @property
    def ready(self) -> int:
        """Messages that could be delivered."""

    @property
    def delivered(self) -> int:
        """Messages that somebody holds."""

    def extend(self, low: int, high: int, priorities: bytes | None, held: Sequence[int]) -> int:
        """New messages, with a priority each; returns how many of `held` are now HELD.

        Those that have a state already, known from replay, keep it.
        """

    def take(self, limit: int) -> list[Range]:
        """Up to `limit` messages are delivered: the next ones, as ranges in the order to go out."""

    def restore(self, low: int, high: int) -> None:
        """Messages that were delivered are ready again, in their old place."""

    def release(self, offset: int) -> None:
        """A message that was HELD is ready."""

    def withdraw(self, low: int, high: int, state: int) -> None:
        """Messages that are ready get another state."""

    def settle(self, low: int, high: int) -> None:
        """PLAIN messages, delivered or ready, are done with.

        The caller writes the state, or moves the floor over them.
        """

    def ready_runs(self, low: int, high: int) -> Iterator[Range]:
        """The ready messages in a range. Withdrawing what was yielded is allowed."""

    def delivered_runs(self, low: int, high: int) -> Iterator[Range]:
        """The delivered messages in a range. Restoring what was yielded is allowed."""

    def delivered_among(self, ranges: Sequence[Range], floor: int) -> list[Range]:
        """Those of the messages in the ranges, from the floor on, that are delivered."""

    def floor_moved(self, floor: int) -> None:
        """Everything below `floor` is SETTLED."""


class FifoOrder:
    """First in, first out: a cursor, and exceptions to it."""

    __slots__ = ("_again", "_again_from", "_ahead", "_states", "cursor", "delivered", "end")

    def __init__(self, states: OffsetBytes, start: int) -> None:
        self._states = states
        self.cursor = start
        self.end = start
        self.delivered = 0
        self._ahead = 0  # offsets from the cursor on that are not PLAIN
        self._again = 0  # offsets below the cursor that are READY
        self._again_from = start  # none of them is below this

    def __repr__(self) -> str:
        return f"FifoOrder(cursor={self.cursor}, end={self.end}, again={self._again})"

    @property
    def ready(self) -> int:
        return self.end - self.cursor - self._ahead + self._again

    def extend(self, low: int, high: int, priorities: bytes | None, held: Sequence[int]) -> int:
        count = 0
        for offset in held:
            if self._states.get(offset) == PLAIN:
                self._states.put(offset, HELD)
                count += 1
        if self._states:
            self._ahead += high - low - self._states.count(PLAIN, low, high)
        self.end = high
        return count

    def take(self, limit: int) -> list[Range]:
        taken: list[Range] = []
        while limit > 0 and self._again:
            low = self._states.find(READY, self._again_from, self.cursor)
            high = self._states.find_other(READY, low, min(self.cursor, low + limit))
            self._states.fill(low, high, PLAIN)
            self._again -= high - low
            self._again_from = high
            self.delivered += high - low
            limit -= high - low
            taken.append((low, high))
        while limit > 0 and self.cursor < self.end:
            low = self.cursor
            if self._ahead:
                low = self._states.find(PLAIN, low, self.end)
                self._ahead -= low - self.cursor
                self.cursor = low
            high = min(low + limit, self.end)
            if self._ahead:
                high = self._states.find_other(PLAIN, low, high)
            if high == low:
                break
            self.cursor = high
            self.delivered += high - low
            limit -= high - low
            taken.append((low, high))
        return taken

    def restore(self, low: int, high: int) -> None:
        self._states.fill(low, high, READY)
        self.delivered -= high - low
        self._mark_again(low, high - low)

    def release(self, offset: int) -> None:
        if offset < self.cursor:
            self._states.put(offset, READY)
            self._mark_again(offset, 1)
        else:
            self._states.put(offset, PLAIN)
            self._ahead -= 1

    def withdraw(self, low: int, high: int, state: int) -> None:
        self._states.fill(low, high, state)
        self._again -= max(0, min(high, self.cursor) - low)
        self._ahead += max(0, high - max(low, self.cursor))

    def settle(self, low: int, high: int) -> None:
        if high <= self.cursor:
            self.delivered -= high - low
        else:
            self.delivered -= max(0, self.cursor - low)
            self._ahead += high - max(low, self.cursor)

    def ready_runs(self, low: int, high: int) -> Iterator[Range]:
        if self._again:
            start = max(low, self._again_from)
            yield from self._states.runs_of(READY, start, min(high, self.cursor))
        start = max(low, self.cursor)
        if self._ahead:
            yield from self._states.runs_of(PLAIN, start, high)
        elif start < high:
            yield start, high

    def delivered_runs(self, low: int, high: int) -> Iterator[Range]:
        return self._states.runs_of(PLAIN, low, min(high, self.cursor))

    def delivered_among(self, ranges: Sequence[Range], floor: int) -> list[Range]:
        found: list[Range] = []
        cursor, states = self.cursor, self._states
        for run in ranges:
            low, high = run
            if low >= floor and high <= cursor and states.alike(low, high, PLAIN):
                found.append(run)
            else:
                found += states.runs_of(PLAIN, max(low, floor), min(high, cursor))
        return found

    def floor_moved(self, floor: int) -> None:
        if floor > self.cursor:
            # All between are SETTLED, which were exceptions ahead.
            self._ahead -= floor - self.cursor
            self.cursor = floor

    def _mark_again(self, low: int, count: int) -> None:
        self._again_from = low if not self._again else min(self._again_from, low)
        self._again += count
