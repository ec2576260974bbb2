"""The time, as something that can be handed in.

`SystemClock` is the machine's; `ManualClock` stands still until a test or a simulation moves it;
`MovableClock` is the machine's and can be moved forward, for tests of whole brokers.
Nothing below `app` asks the machine for the time by itself.
"""

from __future__ import annotations

import time
import weakref
from typing import Protocol


class Clock(Protocol):
    """Two questions: what time is it for people, and how much time has passed."""

    def now_ms(self) -> int:
        """Wall-clock milliseconds since 1970; may jump."""

    def monotonic(self) -> float:
        """Seconds that only ever grow; for measuring and waiting."""


class SystemClock:
    """The machine's clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that is told what time it is."""

    __slots__ = ("_now_ms", "_seconds")

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._seconds = 0.0

    def __repr__(self) -> str:
        return f"ManualClock({self._now_ms})"

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._seconds

    def advance(self, milliseconds: int) -> None:
        """Let time pass on both faces of the clock."""
        assert milliseconds >= 0, "time does not run backwards; use set_wall for that"
        self._now_ms += milliseconds
        self._seconds += milliseconds / 1000

    def set_wall(self, now_ms: int) -> None:
        """Correct the wall clock, as NTP would; the monotonic face does not notice."""
        self._now_ms = now_ms


class Watcher(Protocol):
    """Somebody who waits for a time of the wall clock."""

    def clock_moved(self) -> None:
        """It may be later than you think."""


class MovableClock:
    """The machine's clock, and a test's hand that moves its wall face forward.

    The monotonic face is left alone: connections and sessions live in real time.
    """

    __slots__ = ("_ahead_ms", "_watchers")

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._watchers: weakref.WeakSet[Watcher] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"MovableClock({self._ahead_ms / 1000} s ahead)"

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._ahead_ms

    def monotonic(self) -> float:
        return time.monotonic()

    def watch(self, watcher: Watcher) -> None:
        """Tell somebody whenever the clock is moved, for as long as they exist."""
        self._watchers.add(watcher)

    def advance(self, milliseconds: int) -> None:
        """Let time pass at once. Called on the loop of those who watch."""
        assert milliseconds >= 0, "time does not run backwards"
        self._ahead_ms += milliseconds
        for watcher in list(self._watchers):
            watcher.clock_moved()
