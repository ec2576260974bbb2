"""Deliveries that are somebody's only for a time: the visibility time-out, or acquisition lock.

Used by queues with a lock duration (every share group, KIP-932; AMQP queues when asked). Who holds
a message, and until when, is kept for each; a queue without locks does not have this object.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Iterator, Sequence


class Locks:
    """Holder and deadline by offset."""

    __slots__ = ("_deadlines", "_held")

    def __init__(self) -> None:
        self._held: dict[int, tuple[int, Hashable]] = {}
        # A heap of (deadline, low, high). An entry is out of date when a message in it has since
        # been settled, renewed or locked anew: `_held` decides.
        self._deadlines: list[tuple[int, int, int]] = []

    def __len__(self) -> int:
        return len(self._held)

    def lock(self, low: int, high: int, holder: Hashable, deadline_ms: int) -> None:
        held = (deadline_ms, holder)
        self._held.update(dict.fromkeys(range(low, high), held))
        heapq.heappush(self._deadlines, (deadline_ms, low, high))

    def unlock(self, low: int, high: int) -> None:
        for offset in range(low, high):
            self._held.pop(offset, None)

    def holds(self, offset: int, holder: Hashable) -> bool:
        held = self._held.get(offset)
        return held is not None and held[1] == holder

    def held_by(self, holder: Hashable) -> list[int]:
        """Everything somebody holds, in rising order."""
        return sorted(offset for offset, held in self._held.items() if held[1] == holder)

    def only(self, offsets: Iterable[int], holder: Hashable) -> Iterator[int]:
        """Those of `offsets` that `holder` holds."""
        return (offset for offset in offsets if self.holds(offset, holder))

    def renew(self, offsets: Sequence[int], holder: Hashable, deadline_ms: int) -> list[int]:
        """Hold on to these until `deadline_ms`; returns those that were the holder's to renew."""
        renewed = list(self.only(offsets, holder))
        for offset in renewed:
            self.lock(offset, offset + 1, holder, deadline_ms)
        return renewed

    def expired(self, now_ms: int) -> list[int]:
        """Messages whose time is up, in rising order. They stay locked until unlocked."""
        found: list[int] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            _, low, high = heapq.heappop(self._deadlines)
            for offset in range(low, high):
                held = self._held.get(offset)
                if held is not None and held[0] <= now_ms:
                    found.append(offset)
        return sorted(set(found))

    def next_ms(self) -> int | None:
        """When the next time may be up."""
        return self._deadlines[0][0] if self._deadlines else None
