"""Things that happen to a message at a certain time: becoming due, or expiring.

A binary heap of all of them costs over a hundred bytes a message and three microseconds to enter.
Here they lie in an array for each second, 16 bytes a message, and only the seconds that have come
are put in order. Of ten million messages that expire within the hour, the clock looks at the few
thousand of this second.

    push(due, offset)      O(1)
    pop_until(now)         those that are due, earliest first

Single offsets are not taken out before their time: whoever pops one looks whether it still
matters. A second of which none does is let go as a whole (`forget_below`), so that messages which
may live for days and are gone in a moment do not pile up.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Iterable

_BUCKET_MS = 1000
_FORGET_EVERY = 16_384


class DueTimes:
    """Offsets by the millisecond at which something happens to them."""

    __slots__ = ("_buckets", "_later", "_near", "_near_until", "_pushed", "_tops")

    def __init__(self) -> None:
        self._near: list[tuple[int, int]] = []  # a heap: what is due before _near_until
        self._near_until = 0
        self._buckets: dict[int, array[int]] = {}  # second: due, offset, due, offset, ...
        self._tops: dict[int, int] = {}  # second: the highest offset in its bucket
        self._later: list[int] = []  # a heap of the seconds in _buckets
        self._pushed = 0  # since it was last looked what can be forgotten

    def __repr__(self) -> str:
        return f"DueTimes({len(self)} waiting)"

    def __len__(self) -> int:
        return len(self._near) + sum(len(bucket) for bucket in self._buckets.values()) // 2

    def __bool__(self) -> bool:
        return bool(self._near or self._buckets)

    def push(self, due_ms: int, offset: int) -> None:
        if due_ms < self._near_until:
            heapq.heappush(self._near, (due_ms, offset))
            return
        second = due_ms // _BUCKET_MS
        bucket = self._buckets.get(second)
        if bucket is None:
            bucket = self._buckets[second] = array("q")
            heapq.heappush(self._later, second)
        bucket.append(due_ms)
        bucket.append(offset)
        self._tops[second] = max(offset, self._tops.get(second, offset))
        self._pushed += 1

    def push_all(self, timed: Iterable[tuple[int, int]]) -> None:
        """Many at once, as (offset, when); those that follow each other are mostly due together."""
        second, bucket = -1, array("q")
        for offset, due_ms in timed:
            if due_ms // _BUCKET_MS == second:
                bucket.append(due_ms)
                bucket.append(offset)
                self._pushed += 1
                if offset > self._tops[second]:
                    self._tops[second] = offset
                continue
            self.push(due_ms, offset)
            known = self._buckets.get(due_ms // _BUCKET_MS)
            if known is not None and due_ms >= self._near_until:
                second, bucket = due_ms // _BUCKET_MS, known

    def next_ms(self) -> int | None:
        """When the next one is due, or None."""
        if not self._near:
            if not self._later:
                return None
            self._open(heapq.heappop(self._later))
        return self._near[0][0]

    def forget_below(self, floor: int) -> None:
        """No offset below matters any more. Looks only now and then, so call it as you like."""
        if self._pushed < _FORGET_EVERY:
            return
        self._pushed = 0
        for second in [second for second, top in self._tops.items() if top < floor]:
            del self._buckets[second], self._tops[second]
        self._later = list(self._buckets)
        heapq.heapify(self._later)

    def pop_until(self, now_ms: int) -> list[int]:
        """The offsets that are due at `now_ms`, earliest first; each is given once."""
        while self._later and self._later[0] * _BUCKET_MS <= now_ms:
            self._open(heapq.heappop(self._later))
        near = self._near
        due: list[int] = []
        while near and near[0][0] <= now_ms:
            due.append(heapq.heappop(near)[1])
        return due

    def clear(self) -> None:
        self._near.clear()
        self._buckets.clear()
        self._tops.clear()
        self._later.clear()

    def _open(self, second: int) -> None:
        bucket = self._buckets.pop(second)
        del self._tops[second]
        pairs = zip(bucket[::2], bucket[1::2], strict=True)
        if self._near:
            for pair in pairs:
                heapq.heappush(self._near, pair)
        else:
            self._near = sorted(pairs)  # a sorted list is a heap
        self._near_until = max(self._near_until, (second + 1) * _BUCKET_MS)
