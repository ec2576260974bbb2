"""A segment: one `.log` file of record batches, its indexes and what is known of it by heart.

The batches of a partition are cut into files of bounded size so that old ones can be removed or
rewritten whole. Only the last one, the active segment, is written to. A segment knows its files
but nothing of its neighbours, of acknowledgements or of who reads it.

The offset and time indexes are in memory while the segment is open. Their files are written by
`save_indexes` (at a roll, a checkpoint, a close), not with every append: they can always be built
from the log.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from penstock.log import layout, rebuild
from penstock.log.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from penstock.log.offset_index import OffsetIndex
from penstock.log.open_files import OpenFiles
from penstock.log.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from penstock.log.time_index import TimeIndex
from penstock.log.txn_index import TransactionIndex
from penstock.model.batch import LENGTH_PREFIX_BYTES, BatchHeader
from penstock.model.ids import NO_TIMESTAMP
from penstock.runtime.disk import Disk, File


class Segment:
    """One file of batches and its indexes."""

    __slots__ = (
        "_aborted",
        "_file",
        "_files",
        "_offsets_saved",
        "_times_saved",
        "_written",
        "aborted_changed",
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "directory",
        "first_timestamp",
        "largest_offset",
        "largest_timestamp",
        "offset_index",
        "recently_used",
        "retired",
        "size",
        "time_index",
        "unsynced",
    )

    def __init__(self, directory: str, base_offset: int, files: OpenFiles, size: int = 0) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.created_ms = 0
        self.first_timestamp: int | None = None  # of the first batch; None when not looked up yet
        self.largest_timestamp = NO_TIMESTAMP
        self.largest_offset = base_offset  # of the batch with the largest timestamp
        self.offset_index: OffsetIndex | None = None
        self.time_index: TimeIndex | None = None
        self.bytes_since_entry = 0
        self.unsynced = False
        self.retired = False  # replaced or deleted: readers start again
        self.recently_used = True
        self.aborted_changed = False
        self._aborted: TransactionIndex | None = None
        self._offsets_saved = -1  # entries known to be in the file; -1: the file must be rewritten
        self._times_saved = -1
        self._written: set[str] = set()  # index files written and not synced, by suffix
        self._files = files
        self._file: File | None = None

    def __repr__(self) -> str:
        return f"Segment({self.path(layout.LOG)}, {self.size} bytes)"

    @classmethod
    def create(cls, directory: str, base_offset: int, files: OpenFiles, now_ms: int) -> Segment:
        """A new, empty segment with its file."""
        segment = cls(directory, base_offset, files)
        segment.created_ms = now_ms
        segment.offset_index = OffsetIndex(base_offset)
        segment.time_index = TimeIndex(base_offset)
        segment._aborted = TransactionIndex()
        file = files.disk.open(segment.path(layout.LOG), create=True)
        if file.size():
            file.truncate(0)  # left by a roll that failed half way
        segment._file = file
        files.add(segment)
        return segment

    @property
    def disk(self) -> Disk:
        return self._files.disk

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{self.base_offset:020d}{suffix}"

    def file(self) -> File:
        """The open `.log` file."""
        self.recently_used = True
        file = self._file
        if file is None:
            if self.retired:
                # Whatever has that name now is another segment, perhaps of another topic.
                raise FileNotFoundError(errno.ENOENT, "the segment is gone", self.path(layout.LOG))
            file = self._file = self._files.disk.open(self.path(layout.LOG))
            self._files.add(self)
        return file

    # --- writing ----------------------------------------------------------------------------------

    def added(self, batches: Sequence[BatchHeader], interval_bytes: int) -> None:
        """The batches now lie at the end of the file: count them in, index them sparsely."""
        position = self.size
        since = self.bytes_since_entry
        offset_index, time_index = self.offset_index, self.time_index
        assert offset_index is not None
        assert time_index is not None
        if not position:
            self.first_timestamp = batches[0].max_timestamp
        for header in batches:
            last_offset = header[0] + header[6]
            if header[8] > self.largest_timestamp:
                self.largest_timestamp = header[8]
                self.largest_offset = last_offset
            if since > interval_bytes:
                offset_index.append(last_offset, position)
                time_index.maybe_append(self.largest_timestamp, self.largest_offset)
                since = 0
            size = header[1] + LENGTH_PREFIX_BYTES
            since += size
            position += size
        self.bytes_since_entry = since
        self.size = position

    def cut(self, position: int, offset: int) -> int:
        """Remove everything from `position`, where the batch of `offset` begins; the end then."""
        self.ensure_indexes()
        assert self.offset_index is not None
        assert self.time_index is not None
        self.file().truncate(position)
        self.size = position
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        self._offsets_saved = self._times_saved = -1
        if len(self.aborted):
            self.aborted.truncate(offset)
            self.aborted_changed = True
        if not position:
            self.first_timestamp = None
        return self.find_end()[0]

    def find_end(self) -> tuple[int, int]:
        """(offset, position) behind the last batch, and the largest timestamp on the way.

        Walks headers from the last index entry on. The position is short of `size` when the file
        ends in something that is not a batch.
        """
        self.ensure_indexes()
        assert self.offset_index is not None
        assert self.time_index is not None
        last = self.time_index.last_entry()
        self.largest_timestamp, self.largest_offset = last or (NO_TIMESTAMP, self.base_offset)
        next_offset = self.base_offset
        end = start = self.offset_index.last_position
        for position, header in rebuild.walk_headers(self.file(), start, self.size):
            next_offset = header.next_offset
            end = position + header.size
            if header.max_timestamp > self.largest_timestamp:
                self.largest_timestamp = header.max_timestamp
                self.largest_offset = header.last_offset
        return next_offset, end

    def batch_reaching(self, offset: int) -> tuple[int, int] | None:
        """(position, base offset) of the first batch that holds `offset` or lies behind it."""
        self.ensure_indexes()
        assert self.offset_index is not None
        start = self.offset_index.position_before(offset)
        for position, header in rebuild.walk_headers(self.file(), start, self.size):
            if header.last_offset >= offset:
                return position, header.base_offset
        return None

    # --- indexes ----------------------------------------------------------------------------------

    def ensure_indexes(self) -> None:
        """Have both indexes in memory, from their files or, failing that, from the log."""
        if self.offset_index is None or self.time_index is None:
            self.adopt_indexes(
                *rebuild.load_indexes(self.disk, self.path(""), self.base_offset, self.size)
            )

    def adopt_indexes(self, offset_index: OffsetIndex, time_index: TimeIndex, built: bool) -> None:
        """Take indexes that were loaded (perhaps in a thread). `built`: the files are not these."""
        if self.offset_index is not None:
            return  # somebody was faster
        self.offset_index, self.time_index = offset_index, time_index
        self._offsets_saved = -1 if built else len(offset_index)
        self._times_saved = -1 if built else len(time_index)
        self.bytes_since_entry = max(0, self.size - offset_index.last_position)
        last = time_index.last_entry()
        if last is not None and last[0] > self.largest_timestamp:
            self.largest_timestamp, self.largest_offset = last
        if self._file is None:
            self.file()  # puts the segment on the list that bounds the indexes too

    @property
    def aborted(self) -> TransactionIndex:
        if self._aborted is None:
            path = self.path(layout.TXN_INDEX)
            data = self.disk.read_file(path) if self.disk.exists(path) else b""
            self._aborted = TransactionIndex.load(data)
        return self._aborted

    def save_indexes(self, *, only_entries: bool = False) -> None:
        """Bring the index files up to date. They are not synced here.

        `only_entries`: an index without entries need not get a file yet.
        """
        offsets, times = self.offset_index, self.time_index
        if only_entries and not offsets and not times and self._offsets_saved < 0:
            offsets = times = None
        if offsets is not None and self._offsets_saved != len(offsets):
            saved = max(0, self._offsets_saved)
            self._save(layout.OFFSET_INDEX, offsets.to_bytes(saved), saved * OFFSET_ENTRY_BYTES)
            self._offsets_saved = len(offsets)
        if times is not None and self._times_saved != len(times):
            saved = max(0, self._times_saved)
            self._save(layout.TIME_INDEX, times.to_bytes(saved), saved * TIME_ENTRY_BYTES)
            self._times_saved = len(times)
        if self.aborted_changed and self._aborted is not None:
            self._save(layout.TXN_INDEX, self._aborted.to_bytes(), 0)
            self.aborted_changed = False

    def _save(self, suffix: str, data: bytes, position: int) -> None:
        file = self.disk.open(self.path(suffix), create=True)
        try:
            file.write([data], position)
            if file.size() != position + len(data):
                file.truncate(position + len(data))
        finally:
            file.close()
        self._written.add(suffix)

    def take_written(self) -> list[str]:
        """Paths of the index files that have been written and must be synced by the caller."""
        paths = [self.path(suffix) for suffix in sorted(self._written)]
        self._written.clear()
        return paths

    def finish(self) -> None:
        """No more batches will come soon: let the last time entry name the largest timestamp."""
        if self.time_index is not None and self.size:
            self.time_index.maybe_append(self.largest_timestamp, self.largest_offset)
        self.save_indexes()

    def written_ms(self) -> int:
        """When the file was last written to, as far as the disk knows."""
        return self.disk.modified_ms(self.path(layout.LOG))

    # --- closing and leaving ----------------------------------------------------------------------

    def maybe_close(self) -> bool:
        if self.unsynced:
            return False
        try:
            self.close()
        except OSError:
            return False  # the indexes cannot be saved now (a full disk): stay open
        return True

    def close(self) -> None:
        """Close the file and forget the indexes, saving them first."""
        self.finish()
        self._files.discard(self)
        self.offset_index = self.time_index = None
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def retire(self) -> None:
        """The segment is replaced or deleted: close without saving, and tell readers."""
        self.retired = True
        self._files.discard(self)
        file, self._file = self._file, None
        if file is not None:
            file.close()
