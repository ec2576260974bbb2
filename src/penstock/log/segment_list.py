"""A partition's segments in the order of their offsets: finding, adding, cutting, dropping them.

The list keeps the files and itself in step, and tells `Unsynced` what has to be synced for that.
What the offsets mean (start, end, safe) is the log's business.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from penstock.log import layout
from penstock.log.cleaner import Cleaned, remove_unfinished
from penstock.log.open_files import OpenFiles
from penstock.log.recovery import place_swap
from penstock.log.segment import Segment
from penstock.log.sync_job import Unsynced
from penstock.model.producer import AbortedTransaction

_MOST_CURSORS = 64


class SegmentList:
    """Segments by rising base offset; the last one is active."""

    __slots__ = ("_bases", "_directory", "_files", "_items", "_unsynced", "cursors", "doomed")

    def __init__(self, directory: str, files: OpenFiles, unsynced: Unsynced) -> None:
        self._directory = directory
        self._files = files
        self._unsynced = unsynced
        self._items: list[Segment] = []
        self._bases: list[int] = []
        # Where readers stopped: (segment, position) by the offset that they will ask for next.
        self.cursors: dict[int, tuple[Segment, int]] = {}
        self.doomed: list[str] = []  # `.deleted` files that upkeep removes in a thread

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._items)

    def __getitem__(self, at: int) -> Segment:
        return self._items[at]

    def __repr__(self) -> str:
        return f"SegmentList({self._directory}, {self._bases})"

    @property
    def active(self) -> Segment:
        return self._items[-1]

    @property
    def size_bytes(self) -> int:
        return sum([segment.size for segment in self._items])

    # --- finding ----------------------------------------------------------------------------------

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

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        """A reader that got as far as `offset` will go on at this position: no look-up then."""
        if segment.retired:  # while its bytes were waited for: there is another in its place
            return
        cursors = self.cursors
        if len(cursors) >= _MOST_CURSORS:
            del cursors[next(iter(cursors))]
        cursors[offset] = segment, position

    # --- changing ---------------------------------------------------------------------------------

    def attach(self, segments: Sequence[Segment]) -> None:
        """Take the segments that were found on disk."""
        self._items = list(segments)
        self._bases = [segment.base_offset for segment in segments]

    def begin(self, base_offset: int, now_ms: int) -> None:
        """A new active segment; the old one's indexes are written. `OSError` changes nothing."""
        if self._items:
            self.active.finish()
        segment = Segment.create(self._directory, base_offset, self._files, now_ms)
        self._items.append(segment)
        self._bases.append(base_offset)
        self._unsynced.add(segment)
        self._unsynced.names_changed()

    def drop(self, gone: Sequence[Segment]) -> None:
        """Let neighbours go."""
        if gone:
            self._replace(gone, [])

    def cut(self, offset: int) -> int:
        """Remove every batch that reaches `offset`; the offset behind what is left.

        A segment that begins there stays, empty: its name remembers the offset.
        """
        self.drop([segment for segment in self._items[1:] if segment.base_offset > offset])
        active = self.active
        position, _ = active.batch_reaching(offset) or (active.size, offset)
        end_offset = active.cut(position, offset)
        self._unsynced.add(active)
        self.cursors.clear()
        return end_offset

    def swap(self, cleaned: Cleaned) -> bool:
        """Put a compacted segment in the place of its originals; False when those have changed."""
        base_offset = cleaned.parts[0].base_offset
        wanted = [(part.base_offset, part.size) for part in cleaned.parts]
        old = [item for item in self._items if (item.base_offset, item.size) in wanted]
        if len(old) != len(wanted) or old[-1] is self.active:
            remove_unfinished(self._files.disk, self._directory, base_offset)
            return False
        new = Segment(self._directory, base_offset, self._files, cleaned.size)
        new.largest_timestamp = cleaned.largest_timestamp
        new.largest_offset = cleaned.largest_offset
        self._replace(old, [new])
        place_swap(self._files.disk, new.path(""))
        return True

    def retire(self) -> None:
        """Close every file as it is; the list is not used any more."""
        self.cursors.clear()
        for segment in self._items:
            segment.retire()

    def _replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        at = self._items.index(old[0])
        assert self._items[at : at + len(old)] == list(old)
        for segment in old:
            self._unsynced.discard(segment)
            self._doom(segment)
        self._items[at : at + len(old)] = new
        self._bases = [segment.base_offset for segment in self._items]
        self._unsynced.names_changed()
        self.cursors.clear()

    def _doom(self, segment: Segment) -> None:
        """Take a segment's files out of sight.

        Renaming is quick, unlinking a large file is not: that is for a thread.
        """
        segment.retire()
        for suffix in layout.SEGMENT_SUFFIXES:
            path = segment.path(suffix)
            try:
                self._files.disk.rename(path, path + layout.DELETED)
            except FileNotFoundError:
                continue
            self.doomed.append(path + layout.DELETED)

    # --- aborted transactions ---------------------------------------------------------------------

    def add_aborted(self, entry: AbortedTransaction) -> None:
        """Note it with the segment that holds its marker."""
        segment = self.holding(entry.last_offset)
        if segment.aborted.add(entry):
            segment.aborted_changed = True

    def aborted_between(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [from_offset, to_offset), by marker."""
        found: list[AbortedTransaction] = []
        for segment in self.since(from_offset):
            for entry in segment.aborted.from_offset(from_offset):
                if entry.first_offset < to_offset:
                    found.append(entry)
                if entry.last_stable_offset >= to_offset:
                    return found
        return found
