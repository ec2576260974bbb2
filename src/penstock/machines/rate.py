"""How fast something happens, and how long it must pause to keep within a bound.

Two meters, as Kafka has them. `WindowedRate` (bytes, request time) averages over a window of
samples and answers with the pause that brings the average back to the bound. `TokenBucket`
(creating and deleting topics, KIP-599) lets bursts through at once and then makes them wait. Both
take the time as an argument; a clock that jumps back is treated as one that stands still.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Meter(Protocol):
    """Counts, and says how many milliseconds to pause."""

    last_ms: int

    def record(self, amount: float, now_ms: int) -> int:
        """Count `amount`; the pause it asks for, 0 within the bound."""

    def excess_ms(self, now_ms: int) -> int:
        """The pause that is due now, without counting anything."""


class WindowedRate:
    """A rate averaged over `samples` windows of `window_ms`, the newest still filling."""

    __slots__ = ("_bound", "_samples", "_total", "_window_ms", "_windows", "last_ms")

    def __init__(self, bound: float, samples: int, window_ms: int) -> None:
        assert bound > 0
        self._bound = bound  # per second
        self._samples = samples
        self._window_ms = window_ms
        self._windows: deque[list[float]] = deque()  # [start in ms, amount]
        self._total = 0.0
        self.last_ms = 0

    def record(self, amount: float, now_ms: int) -> int:
        now_ms = self._advance(now_ms)
        windows = self._windows
        if not windows or windows[-1][0] + self._window_ms <= now_ms:
            windows.append([now_ms, 0.0])
        windows[-1][1] += amount
        self._total += amount
        return self._excess(now_ms)

    def excess_ms(self, now_ms: int) -> int:
        return self._excess(self._advance(now_ms))

    def _advance(self, now_ms: int) -> int:
        self.last_ms = now_ms = max(now_ms, self.last_ms)
        oldest = now_ms - self._samples * self._window_ms
        while self._windows and self._windows[0][0] <= oldest:
            self._total -= self._windows.popleft()[1]
        if not self._windows:
            self._total = 0.0  # what rounding left over
        return now_ms

    def _excess(self, now_ms: int) -> int:
        if not self._windows:
            return 0
        # A meter that has just begun is measured as if it had been quiet before: one batch in its
        # first millisecond is not a rate of thousands of batches a second.
        elapsed_ms = now_ms - self._windows[0][0]
        missing = self._samples - 1 - elapsed_ms // self._window_ms
        span_ms = max(elapsed_ms + max(0, missing) * self._window_ms, 1)
        rate = self._total * 1000 / span_ms
        if rate <= self._bound:
            return 0
        return round((rate - self._bound) / self._bound * span_ms)


class TokenBucket:
    """Tokens come at the bound's rate up to a burst; a request may overdraw, the next one waits."""

    __slots__ = ("_bound", "_burst", "_tokens", "last_ms")

    def __init__(self, bound: float, samples: int, window_ms: int) -> None:
        assert bound > 0
        self._bound = bound  # tokens per second
        self._burst = bound * samples * window_ms / 1000
        self._tokens = self._burst
        self.last_ms = 0

    def record(self, amount: float, now_ms: int) -> int:
        self._refill(now_ms)
        self._tokens = min(self._burst, self._tokens - amount)
        return self._excess()

    def excess_ms(self, now_ms: int) -> int:
        self._refill(now_ms)
        return self._excess()

    def _refill(self, now_ms: int) -> None:
        passed_ms = max(0, now_ms - self.last_ms) if self.last_ms else 0
        self.last_ms = max(now_ms, self.last_ms)
        self._tokens = min(self._burst, self._tokens + passed_ms * self._bound / 1000)

    def _excess(self) -> int:
        return round(-self._tokens * 1000 / self._bound) if self._tokens < 0 else 0
