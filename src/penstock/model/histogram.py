"""Durations counted in buckets: one bisect and three additions, so it may stand on hot paths."""

from __future__ import annotations

from bisect import bisect_left

# Upper bounds in seconds; what is longer goes into one bucket more.
BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
)  # fmt: skip


class Histogram:
    """How many, how long in all, and how they spread."""

    __slots__ = ("buckets", "count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)

    def __repr__(self) -> str:
        return f"<Histogram {self.count} in {self.seconds:.3f}s>"

    def observe(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        self.buckets[bisect_left(BOUNDS, seconds)] += 1
