"""How often each message came back, for those that did.

A byte a message, in the chunks of `OffsetBytes`; the rare message that came back 255 times or more
has its number in a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.machines.offset_bytes import OffsetBytes

_MANY = 255
_INCREMENT = bytes(min(count + 1, _MANY) for count in range(256))


class DeliveryCounts:
    """Counts by offset, 0 for every message that never came back."""

    __slots__ = ("_bytes", "_many")

    def __init__(self) -> None:
        self._bytes = OffsetBytes()
        self._many: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._bytes)

    def get(self, offset: int) -> int:
        count = self._bytes.get(offset)
        return count if count < _MANY else self._many[offset]

    def put(self, low: int, high: int, count: int) -> None:
        """Every message in [low, high) came back `count` times."""
        if count >= _MANY:
            self._many.update(dict.fromkeys(range(low, high), count))
        self._bytes.fill(low, high, min(count, _MANY))

    def add_one(self, low: int, high: int) -> None:
        """Every message in [low, high) came back once more."""
        self._bytes.translate(low, high, _INCREMENT)
        for start, stop in self._bytes.runs_of(_MANY, low, high):
            for offset in range(start, stop):
                self._many[offset] = self._many.get(offset, _MANY - 1) + 1

    def any_at_least(self, count: int, low: int, high: int) -> bool:
        """Whether a message in [low, high) came back `count` times or more."""
        return any(found >= count for _, _, found in self.runs(low, high))

    def runs(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """[low, high) as runs (from, to, count) of equal count, 0 included."""
        for start, stop, count in self._bytes.runs(low, high):
            if count < _MANY:
                yield start, stop, count
            else:
                for offset in range(start, stop):
                    yield offset, offset + 1, self._many[offset]

    def top(self) -> int:
        """An offset above every message that came back; 0 when none did."""
        return self._bytes.top()

    def forget_below(self, offset: int) -> None:
        self._bytes.forget_below(offset)
        if self._many:
            self._many = {at: count for at, count in self._many.items() if at >= offset}

    def forget_from(self, offset: int) -> None:
        self._bytes.forget_from(offset)
        self._many = {at: count for at, count in self._many.items() if at < offset}

    def clear(self) -> None:
        self._bytes.clear()
        self._many.clear()
