"""A partition's segments in the order of their offsets, and which of them holds an offset."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from penstock.log import layout
from penstock.log.segment import Segment
from penstock.runtime.disk import Disk


class SegmentList:
    """Segments by rising base offset; the last one is active."""

    __slots__ = ("_bases", "_items")

    def __init__(self, segments: Sequence[Segment] = ()) -> None:
        self._items = list(segments)
        self._bases = [segment.base_offset for segment in segments]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._items)

    def __getitem__(self, at: int) -> Segment:
        return self._items[at]

    def __repr__(self) -> str:
        return f"SegmentList({self._bases})"

    @property
    def active(self) -> Segment:
        return self._items[-1]

    @property
    def size_bytes(self) -> int:
        return sum([segment.size for segment in self._items])

    def add(self, segment: Segment) -> None:
        assert not self._bases or segment.base_offset > self._bases[-1], (self, segment)
        self._items.append(segment)
        self._bases.append(segment.base_offset)

    def holding(self, offset: int) -> Segment:
        """The segment whose range `offset` lies in."""
        return self._items[max(0, bisect_right(self._bases, offset) - 1)]

    def after(self, segment: Segment) -> Segment | None:
        at = bisect_right(self._bases, segment.base_offset)
        return self._items[at] if at < len(self._items) else None

    def since(self, offset: int) -> list[Segment]:
        """The segments that may hold `offset` or something behind it, in order."""
        return self._items[max(0, bisect_right(self._bases, offset) - 1) :]

    def below(self, offset: int) -> list[Segment]:
        """The segments that end at or before `offset`; never the active one."""
        ends = self._bases[1:]
        return self._items[: bisect_right(ends, offset)]

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put `new` in the place of the neighbours `old`."""
        at = self._items.index(old[0])
        assert self._items[at : at + len(old)] == list(old)
        self._items[at : at + len(old)] = new
        self._bases = [segment.base_offset for segment in self._items]


def doom(disk: Disk, segment: Segment) -> list[str]:
    """Take a segment's files out of sight; the paths under which they wait for removal.

    Renaming is quick, unlinking a large file is not: that is for a thread.
    """
    segment.retire()
    doomed = []
    for suffix in layout.SEGMENT_SUFFIXES:
        path = segment.path(suffix)
        try:
            disk.rename(path, path + layout.DELETED)
        except FileNotFoundError:
            continue
        doomed.append(path + layout.DELETED)
    return doomed
