"""The state of one queue: which messages are ready, delivered, held, dying, settled; and replay.

Two kinds of state. What must survive a crash (the floor, what is settled above it, how often
messages came back, where their bytes were moved to) changes only in `apply`, by a record of the
journal (model/queue_journal.py), which cannot fail. What a crash may forget (who holds what, what
is on its way to the dead letters) is changed by the verbs of `Queue`.

    state = QueueState(order)             empty, replaying
    for record in journal: state.apply(record)
    state.recovered()                     now live; whatever was delivered counts as come back
    state.extend(end, ...)                the messages of the log, from the floor to its end

Every offset from the floor to the end is a message, or settled: gaps of the log are settled by the
service that finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from penstock.machines.delivery_counts import DeliveryCounts
from penstock.machines.offset_bytes import OffsetBytes
from penstock.machines.queue_order import (
    DYING,
    HANDED,
    HELD,
    PLAIN,
    READY,
    SETTLED,
    Order,
)
from penstock.model.offset_ranges import Range
from penstock.model.queue_journal import (
    NOTHING_MARKED,
    Acked,
    Checkpoint,
    DeadLettered,
    Delivered,
    JournalRecord,
    Moved,
    Purged,
    Returned,
    Seen,
    Truncated,
)

NewOrder = Callable[[OffsetBytes, int], Order]


class QueueState:
    """Offsets [floor, end) with a state each. Below the floor everything is settled."""

    __slots__ = (
        "_live",
        "_new_order",
        "counts",
        "dying",
        "end",
        "floor",
        "held",
        "marked",
        "moved",
        "order",
        "seen",
        "states",
    )

    def __init__(self, new_order: NewOrder) -> None:
        self.floor = 0
        self.end = 0
        self.seen = 0
        self.marked = NOTHING_MARKED
        self.held = 0
        self.dying = 0
        self.states = OffsetBytes()
        self.counts = DeliveryCounts()
        self.moved: dict[int, int] = {}
        self._new_order = new_order
        self.order = new_order(self.states, 0)
        self._live = False

    def __repr__(self) -> str:
        return (
            f"QueueState({self.floor}..{self.end}, {self.order.ready} ready, "
            f"{self.order.delivered} delivered, {self.held} held, {self.dying} dying)"
        )

    # --- replay -----------------------------------------------------------------------------------

    def apply(self, record: JournalRecord) -> None:
        """The only way in which what must survive a crash changes."""
        match record:
            case Acked(ranges) | DeadLettered(ranges) | Purged(ranges):
                for low, high in ranges:
                    self._settle(low, high)
            case Returned(counted):
                for low, high, count in counted:
                    self._came_back(low, high, count)
            case Delivered(ranges):
                if not self._live:
                    for low, high in ranges:
                        self._was_handed(max(low, self.floor), high)
            case Moved(moves):
                for offset, place in moves:
                    if self._unsettled(offset):
                        self.moved[offset] = place
                    self._settle(place, place + 1)
            case Seen(seen, marked):
                self.seen, self.marked = seen, marked
            case Truncated(end):
                self._truncate(end)
            case Checkpoint():
                self._restore(record)

    def recovered(self) -> None:
        """The journal is at its end. Whatever was delivered has now come back once more."""
        assert not self._live
        top = self.states.top()
        for low, high in list(self.states.runs_of(HANDED, self.floor, top)):
            self.counts.add_one(low, high)
            self.states.fill(low, high, PLAIN)
        self._absorb(top)
        self._live = True
        self.end = self.floor
        self.order = self._new_order(self.states, self.floor)

    def orphans(self, end: int) -> Truncated | None:
        """A record to journal before anything is appended, if the log lost messages at its end.

        Otherwise what the journal says of the lost ones would be believed of the messages that
        get their offsets next.
        """
        known = self.states.find_other(PLAIN, end, self.states.top()) < self.states.top()
        came_back = any(count for _, _, count in self.counts.runs(end, self.counts.top()))
        moved = any(place >= end for place in self.moved.values())
        if self.floor > end or self.seen > end or known or came_back or moved:
            return Truncated(end)
        return None

    def checkpoint(self) -> Checkpoint:
        """Everything that replay would need, in one record."""
        assert self._live
        return Checkpoint(
            self.floor,
            self.seen,
            self.marked,
            tuple(self.states.runs_of(SETTLED, self.floor, self.end)),
            tuple(run for run in self.counts.runs(self.floor, self.end) if run[2]),
            tuple(self.order.delivered_runs(self.floor, self.end)),
            tuple(sorted(self.moved.items())),
        )

    # --- the log ----------------------------------------------------------------------------------

    def extend(self, end: int, priorities: bytes | None, scheduled: Sequence[int]) -> None:
        """The messages from here to `end` can be delivered, the scheduled ones when due."""
        assert self._live
        self.held += self.order.extend(self.end, end, priorities, scheduled)
        self.end = end
        self._absorb(end)

    def missing_below(self, start: int) -> Acked | None:
        """A record that settles what the log no longer holds, if it is not settled."""
        ranges = tuple(self._unsettled_runs(start))
        return Acked(ranges) if ranges else None

    def place_of(self, offset: int) -> int:
        """Where in the log the bytes of a message are."""
        return self.moved.get(offset, offset) if self.moved else offset

    def needed_from(self) -> int:
        """The first offset of the log whose bytes are still needed."""
        lowest = next((low for low, _ in self._unsettled_runs(self.end)), self.end)
        return min([lowest, *self.moved.values()])

    def unsettled_places(self, below: int) -> list[tuple[int, int]]:
        """(offset, place) of each unsettled message whose bytes are below that offset."""
        found = [
            (offset, offset)
            for low, high in self._unsettled_runs(below)
            for offset in range(low, high)
        ]
        return found + [(at, place) for at, place in self.moved.items() if place < below]

    def unsettled_among(self, ranges: Sequence[Range]) -> list[Range]:
        """The parts of these ranges that are not settled."""
        found: list[Range] = []
        for low, high in ranges:
            low = max(low, self.floor)
            while (low := self.states.find_other(SETTLED, low, high)) < high:
                stop = self.states.find(SETTLED, low, high)
                found.append((low, stop))
                low = stop
        return found

    def _unsettled_runs(self, below: int) -> Iterator[Range]:
        """Messages that are not settled and whose bytes are where their offset says."""
        low, limit = self.floor, min(below, self.end)
        while (low := self.states.find_other(SETTLED, low, limit)) < limit:
            high = self.states.find(SETTLED, low, limit)
            start = low
            if self.moved:
                for offset in range(low, high):
                    if offset in self.moved:
                        if start < offset:
                            yield start, offset
                        start = offset + 1
            if start < high:
                yield start, high
            low = high

    # --- inside -----------------------------------------------------------------------------------

    def _unsettled(self, offset: int) -> bool:
        return offset >= self.floor and self.states.get(offset) != SETTLED

    def _settle(self, low: int, high: int) -> None:
        """Messages in any state are done with."""
        floor = self.floor
        if low < floor:
            low = floor
        if low >= high:
            return
        end = self.end
        states = self.states
        if high > end:
            states.fill(max(low, end), high, SETTLED)  # of messages this replay has not reached
        middle = min(high, end)
        if low < middle:
            if states.alike(low, middle, PLAIN):
                self.order.settle(low, middle)
            else:
                self._settle_runs(low, middle)
            if low > floor:
                states.fill(low, middle, SETTLED)
        if low == floor:
            self.floor = high
            self._absorb(end if self._live else states.top())
        if self.moved:
            few = range(low, high) if high - low < len(self.moved) else list(self.moved)
            for offset in few:
                if low <= offset < high:
                    self.moved.pop(offset, None)

    def _settle_runs(self, low: int, high: int) -> None:
        for start, stop, state in list(self.states.runs(low, high)):
            if state == PLAIN:
                self.order.settle(start, stop)
            elif state == READY:
                self.order.withdraw(start, stop, SETTLED)
            elif state == HELD:
                self.held -= stop - start
            elif state == DYING:
                self.dying -= stop - start

    def _absorb(self, limit: int) -> None:
        """Move the floor over what is settled right above it."""
        states = self.states
        if states:
            if self.floor < limit:
                self.floor = states.find_other(SETTLED, self.floor, limit)
            states.forget_below(self.floor)
        self.order.floor_moved(self.floor)
        if self.counts:
            self.counts.forget_below(self.floor)
        if self.floor == self.end and self._live:
            states.clear()
            self.counts.clear()

    def _came_back(self, low: int, high: int, count: int) -> None:
        low = max(low, self.floor)
        if low >= high:
            return
        if self._live:
            self.order.restore(low, high)
        else:
            for start, stop in list(self.states.runs_of(HANDED, low, high)):
                self.states.fill(start, stop, PLAIN)
        self.counts.put(low, high, count)

    def _was_handed(self, low: int, high: int) -> None:
        """Replay: delivered. If it was delivered before, a crash took it back in between."""
        for start, stop, state in list(self.states.runs(low, high)):
            if state == HANDED:
                self.counts.add_one(start, stop)
            elif state == PLAIN:
                self.states.fill(start, stop, HANDED)

    def _truncate(self, end: int) -> None:
        assert not self._live or self.end <= end
        self.states.forget_from(end)
        self.counts.forget_from(end)
        self.floor = min(self.floor, end)
        self.seen = min(self.seen, end)
        self.moved = {at: to for at, to in self.moved.items() if at < end and to < end}

    def _restore(self, record: Checkpoint) -> None:
        assert not self._live
        self.floor, self.seen, self.marked = record.floor, record.seen, record.marked
        self.states.clear()
        self.counts.clear()
        for low, high in record.settled:
            self.states.fill(low, high, SETTLED)
        for low, high in record.delivered:
            self.states.fill(low, high, HANDED)
        for low, high, count in record.returned:
            self.counts.put(low, high, count)
        self.moved = dict(record.moved)
