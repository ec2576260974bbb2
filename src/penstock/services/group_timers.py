"""The clocks of all groups, in one heap with one wake-up.

Every heartbeat moves its member's deadline, so moving must cost almost nothing: a deadline that
moves later only changes a number, and the heap entry that comes up too early is put back. A timer
that has come up is not gone until somebody `take`s it: work that was waiting in line (a heartbeat
that arrived just before) may move it first, and then nothing happens.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable

from penstock.machines.decision import Timer
from penstock.runtime.clock import Clock

_Key = tuple[str, Timer]  # group id, and which of its clocks


class GroupTimers:
    """Deadlines by group and timer; `fire(group_id, timer)` is called when one comes up."""

    def __init__(self, clock: Clock, fire: Callable[[str, Timer], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._deadlines: dict[_Key, float] = {}
        self._queued: dict[_Key, float] = {}  # when the heap will look at the key
        self._heap: list[tuple[float, _Key]] = []
        self._wake_up: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._deadlines)

    def __repr__(self) -> str:
        return f"<GroupTimers {len(self._deadlines)} armed>"

    def arm(self, group_id: str, timer: Timer, after_ms: int) -> None:
        """Let the timer come up after `after_ms`, instead of when it would have."""
        key = (group_id, timer)
        deadline = self._clock.monotonic() + after_ms / 1000
        self._deadlines[key] = deadline
        queued = self._queued.get(key)
        if queued is None or queued > deadline:
            self._queue(key, deadline)

    def is_armed(self, group_id: str, timer: Timer) -> bool:
        return (group_id, timer) in self._deadlines

    def disarm(self, group_id: str, timer: Timer) -> None:
        self._deadlines.pop((group_id, timer), None)

    def take(self, group_id: str, timer: Timer) -> bool:
        """Whether the timer is due; if so it is disarmed, and the caller must act."""
        key = (group_id, timer)
        deadline = self._deadlines.get(key)
        if deadline is None or deadline > self._clock.monotonic():
            return False
        del self._deadlines[key]
        return True

    def run_due(self) -> None:
        """Fire what is due. The wake-up calls it; so may a test that moves the clock by hand."""
        now = self._clock.monotonic()
        due: list[_Key] = []
        while self._heap and self._heap[0][0] <= now:
            looked_at, key = heapq.heappop(self._heap)
            if self._queued.get(key) != looked_at:
                continue  # an earlier look was queued after this one
            del self._queued[key]
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue
            if deadline > now:
                self._queue(key, deadline)
            else:
                due.append(key)
        for group_id, timer in due:
            self._fire(group_id, timer)
        self._schedule()

    def close(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
        self._deadlines.clear()
        self._queued.clear()
        self._heap.clear()

    def _queue(self, key: _Key, deadline: float) -> None:
        self._queued[key] = deadline
        heapq.heappush(self._heap, (deadline, key))
        if self._heap[0][1] is key:
            self._schedule()

    def _schedule(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None
        if self._heap:
            delay = max(0.0, self._heap[0][0] - self._clock.monotonic())
            self._wake_up = asyncio.get_running_loop().call_later(delay, self.run_due)
