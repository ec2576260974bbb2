"""One callback at one time of the wall clock, which can be moved.

An event loop counts seconds from when it is asked and cannot count years; this one asks the clock,
and waits for a far time in pieces.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.runtime.clock import Clock, MovableClock

_PIECE_SECONDS = 3600.0


class Timer:
    """Calls back once when its time has come, on the event loop."""

    __slots__ = ("__weakref__", "_callback", "_clock", "_handle", "due_ms")

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self.due_ms: int | None = None  # stays when it has rung, until it is set anew
        if isinstance(clock, MovableClock):
            clock.watch(self)

    def __repr__(self) -> str:
        return f"Timer({self.due_ms})"

    def set(self, due_ms: int | None) -> None:
        """Ring at that time and no other; None: not at all."""
        if due_ms == self.due_ms and (due_ms is None or self._handle is not None):
            return
        self.due_ms = due_ms
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if due_ms is not None:
            self._wait(due_ms)

    def cancel(self) -> None:
        self.set(None)

    def clock_moved(self) -> None:
        """A test moved the clock: the time may have come."""
        if self._handle is not None and self.due_ms is not None:
            self._handle.cancel()
            self._wait(self.due_ms)

    def _wait(self, due_ms: int) -> None:
        seconds = min(max(0.0, (due_ms - self._clock.now_ms()) / 1000), _PIECE_SECONDS)
        self._handle = asyncio.get_running_loop().call_later(seconds, self._rings)

    def _rings(self) -> None:
        self._handle = None
        assert self.due_ms is not None
        if self._clock.now_ms() < self.due_ms:
            self._wait(self.due_ms)
            return
        self._callback()
