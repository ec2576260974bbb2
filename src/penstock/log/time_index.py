"""Where in a segment a point in time is to be looked for: Kafka's `.timeindex`.

Entries of 12 bytes, both columns rising:

    @0  timestamp        i64   the largest timestamp in the segment so far
    @8  relative offset  i32   offset of the batch that brought it, minus the base offset

(T, O) says: a record with a timestamp above T lies behind O. A closed segment's last entry is its
largest timestamp. No checksum, so `load` refuses what does not rise; it is then built anew.
"""

from __future__ import annotations

import struct
from bisect import bisect_left

from penstock.model.ids import NO_TIMESTAMP

_ENTRY = struct.Struct(">qi")
ENTRY_BYTES = _ENTRY.size
assert ENTRY_BYTES == 12


class TimeIndex:
    """The entries of one segment, kept as the file's bytes."""

    __slots__ = ("_data", "base_offset", "last_timestamp")

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._data = bytearray()
        self.last_timestamp = NO_TIMESTAMP

    def __len__(self) -> int:
        return len(self._data) // ENTRY_BYTES

    def __repr__(self) -> str:
        return f"TimeIndex({self.base_offset}, {len(self)} entries)"

    @classmethod
    def load(cls, base_offset: int, data: bytes) -> TimeIndex | None:
        """The index in a file's bytes; None when they do not rise."""
        if len(data) % ENTRY_BYTES:
            return None
        timestamp, offset = NO_TIMESTAMP, -1
        for entry in _ENTRY.iter_unpack(data):
            # Kafka repeats an offset when a later batch of one append brought a larger timestamp.
            if entry[0] <= timestamp or entry[1] < offset:
                return None
            timestamp, offset = entry
        index = cls(base_offset)
        index._data += data
        index.last_timestamp = timestamp
        return index

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is larger than the last one."""
        if timestamp > self.last_timestamp:
            self._data += _ENTRY.pack(timestamp, offset - self.base_offset)
            self.last_timestamp = timestamp

    def last_entry(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the last entry."""
        if not self._data:
            return None
        timestamp, relative = _ENTRY.unpack_from(self._data, len(self._data) - ENTRY_BYTES)
        return timestamp, relative + self.base_offset

    def offset_before(self, timestamp: int) -> int:
        """An offset at or before the first record with a timestamp >= `timestamp`."""
        at = bisect_left(range(len(self)), timestamp, key=self._timestamp)
        if not at:
            return self.base_offset
        return self._offset(at - 1)

    def _timestamp(self, entry: int) -> int:
        timestamp: int = _ENTRY.unpack_from(self._data, entry * ENTRY_BYTES)[0]
        return timestamp

    def _offset(self, entry: int) -> int:
        relative: int = _ENTRY.unpack_from(self._data, entry * ENTRY_BYTES)[1]
        return relative + self.base_offset

    def truncate(self, offset: int) -> None:
        """Forget entries for `offset` and everything behind it."""
        keep = bisect_left(range(len(self)), offset, key=self._offset)
        del self._data[keep * ENTRY_BYTES :]
        last = self.last_entry()
        self.last_timestamp = NO_TIMESTAMP if last is None else last[0]

    def to_bytes(self, first_entry: int = 0) -> bytes:
        return bytes(self._data[first_entry * ENTRY_BYTES :])
