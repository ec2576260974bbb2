"""Aborted transactions of a segment: Kafka's `.txnindex`.

Entries of 34 bytes, in the order of their markers; the entry lives with the segment that holds the
abort marker. The file exists only if there is an entry:

    @0   version             i16  0
    @2   producer id         i64
    @10  first offset        i64  of the transaction in this partition
    @18  last offset         i64  of the abort marker
    @26  last stable offset  i64  of the partition, just after the marker
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator

from penstock.model.producer import AbortedTransaction

_ENTRY = struct.Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
assert ENTRY_BYTES == 34
_VERSION = 0


class TransactionIndex:
    """The aborted transactions whose markers lie in one segment, by marker offset."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[AbortedTransaction] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        return iter(self._entries)

    def __repr__(self) -> str:
        return f"TransactionIndex({len(self)} entries)"

    @classmethod
    def load(cls, data: bytes) -> TransactionIndex:
        """Read a file's bytes as far as they make sense: a torn tail is replayed by the owner."""
        index = cls()
        last = -1
        whole = len(data) - len(data) % ENTRY_BYTES
        for version, *fields in _ENTRY.iter_unpack(memoryview(data)[:whole]):
            entry = AbortedTransaction(*fields)
            if version != _VERSION or entry.last_offset <= last:
                break
            index._entries.append(entry)
            last = entry.last_offset
        return index

    def add(self, entry: AbortedTransaction) -> bool:
        """Put an entry in its place; False when its marker is already known (a replay)."""
        at = bisect_left(self._entries, entry.last_offset, key=_marker_offset)
        if at < len(self._entries) and self._entries[at].last_offset == entry.last_offset:
            return False
        self._entries.insert(at, entry)
        return True

    def truncate(self, offset: int) -> None:
        """Forget transactions whose marker is at or behind `offset`."""
        del self._entries[bisect_left(self._entries, offset, key=_marker_offset) :]

    def from_offset(self, offset: int) -> list[AbortedTransaction]:
        """Those whose marker is at or behind `offset`."""
        return self._entries[bisect_left(self._entries, offset, key=_marker_offset) :]

    def to_bytes(self) -> bytes:
        return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in self._entries)


def _marker_offset(entry: AbortedTransaction) -> int:
    return entry.last_offset
