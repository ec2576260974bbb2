"""The queue machine: what can be done with the messages of one subscription to one partition.

An AMQP queue is the one subscription of its log; a share group is a subscription of its own. The
messages are offsets [floor, end) of the log; here it is decided who gets which and what becomes of
them. The states are explained in queue_order.py, the records in model/queue_journal.py.

    verb                what it does to messages                       records it asks for
    extend              new ones are ready, or held until due          -
    take                ready -> delivered                             DELIVERED, later, by `handed`
    ack                 delivered -> settled                           ACKED
    give_back           delivered -> ready, or dying past the limit    RETURNED
    reject              delivered -> dying or settled                  ACKED
    tick                due -> ready; expired -> dying or settled;     ACKED, RETURNED
                        lock over -> ready
    make_room           the oldest ready -> dying or settled           ACKED
    purge               ready -> settled                               PURGED
    bury                dying -> settled                               DEAD_LETTERED

A verb changes at once what a crash may forget, and returns the records for what it may not. The
service applies the records and journals them; until a record is in the journal, a crash undoes it,
which means that the message is delivered again. Messages that are dying are given as `DeadLetters`:
the service copies them to where they go, waits until the copies are safe, and then buries them.

Nothing here costs a Python object for a message that waits. Nothing here knows what is in one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from penstock.machines.queue_bytes import MeasuredOrder
from penstock.machines.queue_clock import QueueClock
from penstock.machines.queue_locks import Locks
from penstock.machines.queue_order import DYING, HELD, FifoOrder
from penstock.machines.queue_outcome import NO_MARKS, NOTHING, DeadLetters, Marks, Outcome
from penstock.machines.queue_priorities import PriorityOrder
from penstock.machines.queue_state import QueueState
from penstock.model.offset_ranges import Range, as_ranges, merge_ranges, without
from penstock.model.queue_journal import (
    NOTHING_MARKED,
    SETTLING,
    Acked,
    Checkpoint,
    DeadLettered,
    Delivered,
    JournalRecord,
    Purged,
    Returned,
    Seen,
)
from penstock.model.queue_settings import DeadReason, Overflow, QueueSettings


class Queue:
    """One subscription to one partition. See the module for its verbs."""

    __slots__ = ("_clock", "_handed", "_locks", "_state", "settings")

    def __init__(self, settings: QueueSettings) -> None:
        self.settings = settings
        self._state = QueueState(PriorityOrder if settings.max_priority else FifoOrder)
        self._clock = QueueClock(settings.message_ttl_ms, 0)
        self._locks = Locks() if settings.lock_ms is not None else None
        self._handed: list[Range] = []

    def __repr__(self) -> str:
        return f"Queue({self._state!r})"

    # --- recovery ---------------------------------------------------------------------------------

    @property
    def state(self) -> QueueState:
        """To look at, and for recovery (see queue_state.py)."""
        return self._state

    def apply(self, record: JournalRecord) -> None:
        """A record of the journal: replayed, or one that a verb asked for."""
        state = self._state
        floor = state.floor
        state.apply(record)
        if state.floor != floor:
            self._clock.forget_below(state.floor)
        if (self._clock.marked or self._locks is not None) and isinstance(record, SETTLING):
            for low, high in record.ranges:
                self._clock.settled(low, high)
                if self._locks is not None:
                    self._locks.unlock(low, high)

    def recovered(self) -> None:
        """The journal was replayed; the messages come next, by `extend`."""
        self._state.recovered()
        self._clock.expired_to = self._state.floor
        if self.settings.max_length_bytes is not None:
            self._state.order = MeasuredOrder(self._state.order)

    def checkpoint(self) -> Checkpoint:
        """A record that makes all earlier ones of the journal superfluous."""
        self._maybe_unmark()
        return self._state.checkpoint()

    def seen(self) -> Seen:
        """A record of how far the messages were looked at; spares a restart looking again."""
        self._maybe_unmark()
        return Seen(self._state.seen, self._state.marked)

    def _maybe_unmark(self) -> None:
        if not self._clock.marked:
            self._state.marked = NOTHING_MARKED

    def reconfigure(self, settings: QueueSettings) -> None:
        """The rules change; they hold for the messages that are there, too.

        Priorities and locks cannot come or go. A limit in bytes that is new needs the sizes of the
        messages: `measure`.
        """
        assert bool(settings.max_priority) == bool(self.settings.max_priority)
        assert (settings.lock_ms is None) == (self.settings.lock_ms is None)
        self.settings = settings
        self._clock.set_ttl(settings.message_ttl_ms)
        order = self._state.order
        if settings.max_length_bytes is not None and not isinstance(order, MeasuredOrder):
            self._state.order = MeasuredOrder(order)

    def measure(self, low: int, sizes: Sequence[int]) -> None:
        """The sizes of messages from `low` on that came before there was a limit in bytes."""
        state = self._state
        assert isinstance(state.order, MeasuredOrder)
        state.order.measure(low, sizes)
        state.order.count_ready(state.floor, state.end)

    # --- numbers ----------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        """Messages that could be delivered now."""
        return self._state.order.ready

    @property
    def ready_bytes(self) -> int:
        """Their bytes, in a queue that is limited in bytes; else 0."""
        order = self._state.order
        return order.ready_bytes if isinstance(order, MeasuredOrder) else 0

    @property
    def delivered(self) -> int:
        """Messages that somebody holds."""
        return self._state.order.delivered

    @property
    def held(self) -> int:
        """Messages that wait for the time they are scheduled for."""
        return self._state.held

    @property
    def dying(self) -> int:
        """Messages on their way to the dead letters."""
        return self._state.dying

    @property
    def unsettled(self) -> int:
        return self.ready + self.delivered + self.held + self.dying

    def delivery_count(self, offset: int) -> int:
        """How often a message came back."""
        counts = self._state.counts
        return counts.get(offset) if counts else 0

    def next_ms(self) -> int | None:
        """When `tick` will have something to do, or None."""
        times = [self._clock.next_ms(), self._locks.next_ms() if self._locks else None]
        return min((time for time in times if time is not None), default=None)

    # --- messages come ----------------------------------------------------------------------------

    def extend(self, end: int, time_ms: int, marks: Marks = NO_MARKS) -> None:
        """The messages up to `end`, published at `time_ms`, may be delivered from now on."""
        state = self._state
        low = state.end
        if low >= end:
            return
        if marks.sizes is not None and isinstance(state.order, MeasuredOrder):
            state.order.measure(low, marks.sizes)
        self._clock.published(low, time_ms, marks.expiries, marks.schedules)
        scheduled = [offset for offset, _ in marks.schedules]
        state.extend(end, marks.priorities, scheduled)
        if (marks.expiries or scheduled) and state.marked == NOTHING_MARKED:
            state.marked = low
        state.seen = max(state.seen, end)

    def room(self) -> tuple[int | None, int | None]:
        """(messages, bytes) that may still be published where publishing is refused; None: any."""
        settings = self.settings
        if settings.overflow is Overflow.DROP_HEAD:
            return None, None
        messages = size = None
        if settings.max_length is not None:
            messages = max(0, settings.max_length - self.ready)
        if settings.max_length_bytes is not None:
            size = max(0, settings.max_length_bytes - self.ready_bytes)
        return messages, size

    def make_room(self, demand: int = 0) -> Outcome:
        """Push out the oldest ready messages of a queue that is too long.

        `demand` is how many messages waiting consumers are about to take: those do not count.
        """
        settings = self.settings
        if settings.overflow is not Overflow.DROP_HEAD:
            return NOTHING
        order = self._state.order
        dropped: list[Range] = []
        if settings.max_length is not None:
            dropped += order.take(max(0, order.ready - settings.max_length - demand))
        if settings.max_length_bytes is not None and isinstance(order, MeasuredOrder):
            while order.ready_bytes > settings.max_length_bytes and order.ready > demand:
                dropped += order.take(1)
        return self._dispose(dropped, DeadReason.MAXLEN)

    # --- messages go ------------------------------------------------------------------------------

    def take(self, limit: int, now_ms: int = 0, holder: Hashable = None) -> list[Range]:
        """Deliver up to `limit` ready messages: ranges, in the order in which to send them."""
        taken = self._state.order.take(limit)
        self._handed += taken
        if self._locks is not None:
            deadline_ms = now_ms + (self.settings.lock_ms or 0)
            for low, high in taken:
                self._locks.lock(low, high, holder, deadline_ms)
        return taken

    def handed(self) -> Delivered | None:
        """A record of what was taken since the last one, and is still with somebody."""
        if not self._handed:
            return None
        ranges = merge_ranges(self._handed)
        self._handed.clear()
        still = self._delivered(ranges)
        return Delivered(tuple(still)) if still else None

    def ack(self, offsets: Sequence[int], holder: Hashable = None) -> Outcome:
        """The holder is done with these. What is not delivered to it is left alone."""
        ranges = self._held_ranges(offsets, holder)
        return Outcome((Acked(tuple(ranges)),)) if ranges else NOTHING

    def reject(self, offsets: Sequence[int], holder: Hashable = None) -> Outcome:
        """The holder does not want these, and nobody else shall have them."""
        return self._dispose(self._held_ranges(offsets, holder), DeadReason.REJECTED)

    def give_back(
        self, offsets: Sequence[int], holder: Hashable = None, *, counted: bool = True
    ) -> Outcome:
        """These are ready again, in their old place. Without `counted`, as if never taken.

        Those that came back too often, or expired meanwhile, die.
        """
        return self._give_back(self._held_ranges(offsets, holder), counted)

    def renew(self, offsets: Sequence[int], holder: Hashable, now_ms: int) -> list[int]:
        """The holder needs more time for these; returns those it still had."""
        if self._locks is None:
            return []
        return self._locks.renew(offsets, holder, now_ms + (self.settings.lock_ms or 0))

    def holds(self, offset: int, holder: Hashable) -> bool:
        """Whether a message is locked by that holder."""
        return self._locks is not None and self._locks.holds(offset, holder)

    def held_by(self, holder: Hashable) -> list[int]:
        """Everything that holder has locked."""
        return self._locks.held_by(holder) if self._locks is not None else []

    def bury(self, ranges: Sequence[Range]) -> DeadLettered:
        """The copies of these dying messages are safe."""
        return DeadLettered(tuple(merge_ranges(ranges)))

    def purge(self) -> Purged | None:
        """Settle everything that is ready."""
        ranges = tuple(self._state.order.ready_runs(self._state.floor, self._state.end))
        return Purged(tuple(merge_ranges(ranges))) if ranges else None

    # --- time passes ------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> Outcome:
        """Whatever was to happen until now."""
        state, clock = self._state, self._clock
        for offset in clock.due(now_ms):
            if offset >= state.floor and state.states.get(offset) == HELD:
                state.order.release(offset)
                state.held -= 1
                clock.became_due(offset, now_ms)
        outcome = self._dispose(self._expired(now_ms), DeadReason.EXPIRED)
        # After the expiry: a message whose time is up in both ways is not ready again.
        if self._locks is not None and (over := self._locks.expired(now_ms)):
            outcome = outcome.and_then(self._give_back(self._delivered(as_ranges(over)), True))
        return outcome

    def _expired(self, now_ms: int) -> list[Range]:
        state, clock = self._state, self._clock
        gone: list[Range] = []
        for offset in clock.expired(now_ms):
            if offset < state.floor:
                continue
            if any(state.order.ready_runs(offset, offset + 1)):
                gone.append((offset, offset + 1))
            elif any(state.order.delivered_runs(offset, offset + 1)):
                clock.overdue.add(offset)
        stretch = clock.cut(now_ms, state.end)
        if stretch is not None:
            low, high = max(stretch[0], state.floor), stretch[1]
            for run in state.order.ready_runs(low, high):
                gone += self._without_exempt(run)
        return merge_ranges(gone)

    def _without_exempt(self, run: Range) -> list[Range]:
        exempt = self._clock.exempt
        if not exempt:
            return [run]
        return as_ranges(offset for offset in range(*run) if offset not in exempt)

    # --- inside -----------------------------------------------------------------------------------

    def _held_ranges(self, offsets: Sequence[int], holder: Hashable) -> list[Range]:
        """Those of the offsets that are delivered, and to that holder if deliveries are locked."""
        ordered = sorted(offsets)
        if self._locks is not None and holder is not None:
            ordered = list(self._locks.only(ordered, holder))
        return self._delivered(as_ranges(ordered))

    def _delivered(self, ranges: Sequence[Range]) -> list[Range]:
        return self._state.order.delivered_among(ranges, self._state.floor)

    def _give_back(self, ranges: Sequence[Range], counted: bool) -> Outcome:
        returned: list[tuple[int, int, int]] = []
        exhausted: list[Range] = []
        overdue: list[Range] = []
        limit = self.settings.delivery_limit
        for low, high, count in self._counted(ranges, counted):
            if limit is not None and counted and count > limit:
                exhausted.append((low, high))
                continue
            if self._clock.overdue_in(low, high):
                late = as_ranges(at for at in range(low, high) if self._clock.is_overdue(at))
                overdue += late
                returned += [(*run, count) for run in without(low, high, late)]
            else:
                returned.append((low, high, count))
        for low, high, _ in returned:
            if self._locks is not None:
                self._locks.unlock(low, high)
            if not counted:
                self._state.order.restore(low, high)
        back = Outcome((Returned(tuple(returned)),)) if counted and returned else NOTHING
        return back.and_then(self._dispose(exhausted, DeadReason.DELIVERY_LIMIT)).and_then(
            self._dispose(overdue, DeadReason.EXPIRED)
        )

    def _counted(self, ranges: Sequence[Range], counted: bool) -> list[tuple[int, int, int]]:
        """The ranges split by how often, with this time, their messages came back."""
        one = 1 if counted else 0
        counts = self._state.counts
        if not counts:
            return [(low, high, one) for low, high in ranges]
        return [
            (start, stop, count + one)
            for low, high in ranges
            for start, stop, count in counts.runs(low, high)
        ]

    def _dispose(self, ranges: Sequence[Range], reason: DeadReason) -> Outcome:
        """Messages that are ready or delivered go: to the dead letters if there is such a place."""
        if not ranges:
            return NOTHING
        ranges = merge_ranges(ranges)
        if not self.settings.dead_letters:
            return Outcome((Acked(tuple(ranges)),))
        state = self._state
        for low, high in ranges:
            for start, stop in list(state.order.ready_runs(low, high)):
                state.order.withdraw(start, stop, DYING)
            for start, stop in list(state.order.delivered_runs(low, high)):
                state.order.settle(start, stop)
                state.states.fill(start, stop, DYING)
            state.dying += high - low
            if self._locks is not None:
                self._locks.unlock(low, high)
        return Outcome((), (DeadLetters(ranges, reason),))
