"""Reading a segment's indexes from their files or, when those are missing or damaged, its log.

Works on files alone, so it may run in any thread.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.log import layout
from penstock.log.offset_index import OffsetIndex
from penstock.log.time_index import TimeIndex
from penstock.model.batch import HEADER, HEADER_BYTES, BatchHeader
from penstock.model.ids import NO_TIMESTAMP
from penstock.runtime.disk import Disk, File

DEFAULT_INTERVAL_BYTES = 4096
_READ_BYTES = 1 << 20
_SMALLEST_LENGTH = HEADER_BYTES - 12


def walk_headers(file: File, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every whole batch between two positions; stops at what is not one.

    Checksums are not looked at, and bodies are not read when they are larger than a read.
    """
    position = start
    buffer = memoryview(b"")
    origin = start
    while end - position >= HEADER_BYTES:
        at = position - origin
        if at + HEADER_BYTES > len(buffer):
            buffer = memoryview(file.read(min(_READ_BYTES, end - position), position))
            origin, at = position, 0
            if len(buffer) < HEADER_BYTES:
                return
        header = BatchHeader._make(HEADER.unpack_from(buffer, at))
        if (
            header.magic != 2
            or header.length < _SMALLEST_LENGTH
            or header.last_offset_delta < 0
            or position + header.size > end
        ):
            return
        yield position, header
        position += header.size


def load_indexes(
    disk: Disk, stem: str, base_offset: int, log_bytes: int
) -> tuple[OffsetIndex, TimeIndex, bool]:
    """Both indexes of the segment at `stem` (its path without suffix), and whether newly built."""
    offset_index = OffsetIndex.load(base_offset, _read(disk, stem + layout.OFFSET_INDEX), log_bytes)
    time_index = TimeIndex.load(base_offset, _read(disk, stem + layout.TIME_INDEX))
    if (
        offset_index is not None
        and time_index is not None
        # A log that is longer than an interval has entries, so an empty index is a lost one.
        and (len(offset_index) or log_bytes <= DEFAULT_INTERVAL_BYTES)
        and (len(time_index) or not log_bytes)
    ):
        return offset_index, time_index, False
    file = disk.open(stem + layout.LOG)
    try:
        return *build_indexes(file, base_offset, log_bytes), True
    finally:
        file.close()


class IndexBuilder:
    """Makes the entries that appending batches would have made."""

    __slots__ = ("_offset", "_offset_index", "_since", "_time_index", "_timestamp")

    def __init__(self, offset_index: OffsetIndex, time_index: TimeIndex, position: int = 0) -> None:
        self._offset_index = offset_index
        self._time_index = time_index
        last = time_index.last_entry()
        self._timestamp, self._offset = last or (NO_TIMESTAMP, offset_index.base_offset)
        # Beginning at a batch that had an entry: let it have one again.
        self._since = DEFAULT_INTERVAL_BYTES + 1 if position else 0

    def add(self, position: int, header: BatchHeader) -> None:
        if header.max_timestamp > self._timestamp:
            self._timestamp, self._offset = header.max_timestamp, header.last_offset
        if self._since > DEFAULT_INTERVAL_BYTES:
            self._offset_index.append(header.last_offset, position)
            self._time_index.maybe_append(self._timestamp, self._offset)
            self._since = 0
        self._since += header.size

    def finish(self) -> None:
        self._time_index.maybe_append(self._timestamp, self._offset)


def build_indexes(file: File, base_offset: int, log_bytes: int) -> tuple[OffsetIndex, TimeIndex]:
    """The indexes of a log, from its headers."""
    offset_index, time_index = OffsetIndex(base_offset), TimeIndex(base_offset)
    builder = IndexBuilder(offset_index, time_index)
    for position, header in walk_headers(file, 0, log_bytes):
        builder.add(position, header)
    builder.finish()
    return offset_index, time_index


def _read(disk: Disk, path: str) -> bytes:
    try:
        return disk.read_file(path)
    except FileNotFoundError:
        return b""
