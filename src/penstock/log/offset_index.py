"""Where in a segment's file an offset is to be looked for: Kafka's `.index`.

Entries of 8 bytes, sorted, one for about every `index.interval.bytes` of log:

    @0  relative offset  i32   last offset of a batch, minus the segment's base offset
    @4  position         i32   where that batch begins in the `.log` file

It is sparse: a look-up gives a position at or before the wanted batch, and the reader walks from
there. The file carries no checksum, so `load` refuses what is not strictly rising; a refused or
missing index is built anew from the log.
"""

from __future__ import annotations

import operator
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator

ENTRY_BYTES = 8
MOST_RELATIVE_OFFSET = 0x7FFFFFFF
_LITTLE = sys.byteorder == "little"


class OffsetIndex:
    """The entries of one segment, in memory while the segment is open."""

    __slots__ = ("_offsets", "_positions", "base_offset")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._offsets = array("i")
        self._positions = array("i")

    def __len__(self) -> int:
        return len(self._offsets)

    def __repr__(self) -> str:
        return f"OffsetIndex({self.base_offset}, {len(self)} entries)"

    @classmethod
    def load(cls, base_offset: int, data: bytes, log_bytes: int) -> OffsetIndex | None:
        """The index in a file's bytes; None when they cannot be the index of that log."""
        if len(data) % ENTRY_BYTES:
            return None
        words = array("i")
        words.frombytes(data)
        if _LITTLE:
            words.byteswap()
        index = cls(base_offset)
        offsets = index._offsets = words[0::2]
        positions = index._positions = words[1::2]
        if offsets and (
            offsets[0] < 0
            or positions[0] < 0
            or positions[-1] >= log_bytes
            or not all(map(operator.lt, offsets, offsets[1:]))
            or not all(map(operator.lt, positions, positions[1:]))
        ):
            return None
        return index

    def append(self, offset: int, position: int) -> None:
        self._offsets.append(offset - self.base_offset)
        self._positions.append(position)

    def position_before(self, offset: int) -> int:
        """The largest known position that is not behind the batch holding `offset`."""
        # Clamped, because an offset far above the segment does not fit the array's type.
        relative = min(offset - self.base_offset, MOST_RELATIVE_OFFSET)
        at = bisect_right(self._offsets, relative)
        return self._positions[at - 1] if at else 0

    @property
    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    def last_entry(self) -> tuple[int, int] | None:
        """(offset, position) of the last entry."""
        if not self._offsets:
            return None
        return self.base_offset + self._offsets[-1], self._positions[-1]

    def positions_behind(self, position: int) -> Iterator[int]:
        """The known positions after that one."""
        return iter(self._positions[bisect_right(self._positions, position) :])

    def truncate(self, offset: int) -> None:
        """Forget every batch that ends at or after `offset`."""
        keep = bisect_right(self._offsets, offset - 1 - self.base_offset)
        del self._offsets[keep:]
        del self._positions[keep:]

    def to_bytes(self, first_entry: int = 0) -> bytes:
        words = array("i", bytes(ENTRY_BYTES * (len(self) - first_entry)))
        words[0::2] = self._offsets[first_entry:]
        words[1::2] = self._positions[first_entry:]
        if _LITTLE:
            words.byteswap()
        return words.tobytes()
