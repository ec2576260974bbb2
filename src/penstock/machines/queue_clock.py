"""What time does to the messages of a queue: scheduled ones become ready, others expire.

Expiry is true for each message, wherever it is in the queue. A time-to-live of the queue needs no
entry for a message (see `Timeline`); an expiration or a due time of its own needs one of 16 bytes
(see `DueTimes`). A message that somebody holds does not expire; it does when it comes back.

The clock only says what is to happen. The machine looks whether the message is still there.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.machines.due_times import DueTimes
from penstock.machines.timeline import Timeline

_COARSE_MS = 1000  # how exactly publish times are kept for a queue that has no time-to-live

Timed = Sequence[tuple[int, int]]  # offset, time in milliseconds


class QueueClock:
    """The times of one queue's messages."""

    __slots__ = (
        "_expiring",
        "_scheduled",
        "exempt",
        "expired_to",
        "overdue",
        "timeline",
        "ttl_ms",
    )

    def __init__(self, ttl_ms: int | None, start: int) -> None:
        self.timeline = Timeline(_COARSE_MS if ttl_ms is None else 1)
        self.ttl_ms = ttl_ms
        self._scheduled: DueTimes | None = None
        self._expiring: DueTimes | None = None
        self.overdue: set[int] = set()  # held by somebody when their own expiration came
        self.expired_to = start  # the queue's time-to-live has passed for everything below
        # Scheduled messages that became ready: the queue's time-to-live counts from then on, by an
        # entry of their own.
        self.exempt: set[int] = set()

    @property
    def marked(self) -> bool:
        """Whether messages with times of their own may be waiting."""
        return bool(self._scheduled or self._expiring or self.overdue or self.exempt)

    def set_ttl(self, ttl_ms: int | None) -> None:
        """A time-to-live that changes counts for the messages that are there, too."""
        self.ttl_ms = ttl_ms
        self.timeline.step_ms = _COARSE_MS if ttl_ms is None else 1

    def published(self, low: int, time_ms: int, expiries: Timed, schedules: Timed) -> None:
        """Messages from `low` on were published at `time_ms`, some with times of their own."""
        self.timeline.note(low, time_ms)
        if expiries:
            if self._expiring is None:
                self._expiring = DueTimes()
            self._expiring.push_all(expiries)
        if schedules:
            if self._scheduled is None:
                self._scheduled = DueTimes()
            self._scheduled.push_all(schedules)

    def expire_at(self, offset: int, time_ms: int) -> None:
        if self._expiring is None:
            self._expiring = DueTimes()
        self._expiring.push(time_ms, offset)

    def became_due(self, offset: int, now_ms: int) -> None:
        """A scheduled message is ready now; the queue's time-to-live begins."""
        if self.ttl_ms is not None:
            self.expire_at(offset, now_ms + self.ttl_ms)
        self.exempt.add(offset)

    def due(self, now_ms: int) -> list[int]:
        """Scheduled messages whose time has come."""
        return self._scheduled.pop_until(now_ms) if self._scheduled else []

    def expired(self, now_ms: int) -> list[int]:
        """Messages whose own expiration has come."""
        return self._expiring.pop_until(now_ms) if self._expiring else []

    def cut(self, now_ms: int, end: int) -> tuple[int, int] | None:
        """The next stretch of messages that have outlived the queue's time-to-live."""
        if self.ttl_ms is None:
            return None
        upto = self.timeline.cut(now_ms - self.ttl_ms, end)
        if upto is None:
            return None
        low, self.expired_to = self.expired_to, max(self.expired_to, upto)
        return low, self.expired_to

    def is_overdue(self, offset: int) -> bool:
        """Whether a message that comes back has expired meanwhile."""
        if offset in self.overdue:
            return True
        ttl_passed = self.ttl_ms is not None and offset < self.expired_to
        return ttl_passed and offset not in self.exempt

    def overdue_in(self, low: int, high: int) -> bool:
        """Whether `is_overdue` may be true of any in a range."""
        return bool(self.overdue) or (self.ttl_ms is not None and low < self.expired_to)

    def forget_below(self, floor: int) -> None:
        """Everything below is done with."""
        self.timeline.forget_below(floor)
        if self._expiring is not None:
            self._expiring.forget_below(floor)
        if self._scheduled is not None:
            self._scheduled.forget_below(floor)

    def settled(self, low: int, high: int) -> None:
        """These messages are done with."""
        if self.overdue:
            self.overdue.difference_update(range(low, high))
        if self.exempt:
            self.exempt.difference_update(range(low, high))

    def next_ms(self) -> int | None:
        """When something happens next, or None."""
        times = []
        if self._scheduled and (due := self._scheduled.next_ms()) is not None:
            times.append(due)
        if self._expiring and (due := self._expiring.next_ms()) is not None:
            times.append(due)
        if self.ttl_ms is not None and (first := self.timeline.first_ms()) is not None:
            times.append(first + self.ttl_ms)
        return min(times, default=None)
