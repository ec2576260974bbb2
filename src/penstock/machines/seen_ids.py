"""Message ids that were seen lately: a message whose id is among them is a duplicate.

An id counts for `window_ms` from when it was first seen; a duplicate does not prolong it. At most
`capacity` ids are remembered, the oldest are forgotten first. Whoever owns this gives it back its
memory after a restart by adding the ids it finds in the log, oldest first.
"""

from __future__ import annotations

NEVER = 1 << 62


class SeenIds:
    """Ids with the time until which they count."""

    __slots__ = ("_until", "capacity", "window_ms")

    def __init__(self, *, window_ms: int | None = None, capacity: int | None = None) -> None:
        self.window_ms = window_ms  # None: as long as there is room
        self.capacity = capacity
        self._until: dict[bytes, int] = {}  # in the order in which they came

    def __len__(self) -> int:
        return len(self._until)

    def __repr__(self) -> str:
        return f"SeenIds({len(self._until)} of {self.capacity}, {self.window_ms} ms)"

    def is_new(self, message_id: bytes, now_ms: int, window_ms: int | None = None) -> bool:
        """Whether the id is none of those seen lately; from now on it is.

        `window_ms` is for this one alone.
        """
        until = self._until.get(message_id)
        if until is not None:
            if now_ms < until:
                return False
            del self._until[message_id]
        self._forget_old(now_ms)
        window = self.window_ms if window_ms is None else window_ms
        self._until[message_id] = NEVER if window is None else now_ms + window
        return True

    def forget(self, message_id: bytes) -> None:
        """A message with this id is no duplicate any more."""
        self._until.pop(message_id, None)

    def _forget_old(self, now_ms: int) -> None:
        """At most a few steps each time: every id that comes in pays for two that go."""
        for _ in range(2):
            oldest = next(iter(self._until), None)
            if oldest is None:
                return
            full = self.capacity is not None and len(self._until) >= self.capacity
            if not full and self._until[oldest] > now_ms:
                return
            del self._until[oldest]
