"""When the messages of a queue were published, as far as a time-to-live needs it.

Offsets rise with time, so a time-to-live that all messages share needs no entry for each: one for
each moment at which something was published is enough, and of a cut-off time the offset follows.

    starts  0     40    95
    times   10:00 10:01 10:07     offsets 40 to 94 were published at 10:01

Publish times that run backwards (a clock that was set) are taken as the latest one seen: a message
may then live too long, never too short.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right

_TRIM_AT = 1024  # passed entries


class Timeline:
    """Publish times by offset, in steps of at least `step_ms`."""

    __slots__ = ("_began_ms", "_passed", "_starts", "_times", "step_ms")

    def __init__(self, step_ms: int = 1) -> None:
        self.step_ms = step_ms
        self._starts: array[int] = array("q")
        self._times: array[int] = array("q")
        self._passed = 0  # entries that `cut` has left behind
        self._began_ms = 0  # first time within the newest entry

    def __len__(self) -> int:
        return len(self._starts) - self._passed

    def note(self, offset: int, time_ms: int) -> None:
        """Messages from `offset` on were published at `time_ms`."""
        times = self._times
        if len(times) > self._passed and time_ms < self._began_ms + self.step_ms:
            # Within the step: the entry takes the later time, so that nothing expires early.
            if time_ms > times[-1]:
                times[-1] = time_ms
            return
        self._began_ms = time_ms
        self._starts.append(offset)
        times.append(time_ms)

    def first_ms(self) -> int | None:
        """When the oldest messages that are not cut off yet were published."""
        return self._times[self._passed] if len(self) else None

    def cut(self, time_ms: int, end: int) -> int | None:
        """The offset below which everything was published at or before `time_ms`, if any is.

        Each stretch is cut off once. `end` is where the messages end.
        """
        index = bisect_right(self._times, time_ms, self._passed)
        if index == self._passed:
            return None
        self._passed = index
        offset = self._starts[index] if index < len(self._starts) else end
        if index > _TRIM_AT and index > len(self._starts) // 2:
            del self._starts[:index], self._times[:index]
            self._passed = 0
        return offset

    def forget_below(self, offset: int) -> None:
        """Messages below are settled: entries that speak only of them can go."""
        while len(self) > 1 and self._starts[self._passed + 1] <= offset:
            self._passed += 1
        if self._passed > _TRIM_AT and self._passed > len(self._starts) // 2:
            del self._starts[: self._passed], self._times[: self._passed]
            self._passed = 0

    def clear(self) -> None:
        del self._starts[:], self._times[:]
        self._passed = 0
