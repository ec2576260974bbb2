"""Working in the background without taking the processor from the foreground.

Python threads share one interpreter lock. A thread that computes without pause holds it for 5 ms at
a time, and the event loop waits that long after every system call. So background work runs for a
moment, then sleeps: the loop is never kept waiting for longer than `work_ms`.
"""

from __future__ import annotations

import time


class GivenUp(Exception):
    """Nobody wants the work any more."""


class Pace:
    """Call `tick` often: it sleeps when the work has gone on for long enough."""

    __slots__ = ("_given_up", "_rest_seconds", "_since", "_work_seconds")

    def __init__(self, work_ms: float = 0.5, rest_ms: float = 0.5) -> None:
        self._work_seconds = work_ms / 1000
        self._rest_seconds = rest_ms / 1000
        self._since = time.perf_counter()
        self._given_up = False

    def __repr__(self) -> str:
        return f"Pace({self._work_seconds * 1000} ms, {self._rest_seconds * 1000} ms)"

    def give_up(self) -> None:
        """Let the next `tick` raise `GivenUp`. Another thread may call this."""
        self._given_up = True

    def tick(self) -> None:
        if self._given_up:
            raise GivenUp
        if time.perf_counter() - self._since >= self._work_seconds:
            if self._rest_seconds:
                time.sleep(self._rest_seconds)
            self._since = time.perf_counter()
