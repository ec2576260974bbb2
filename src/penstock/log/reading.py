"""Reading a log by offset, and the way every read waits for its bytes.

The finding of bytes is written once, as generators that never touch the disk: they yield what they
need (some bytes of a segment, or its indexes) and are sent it. Two drivers feed them: `drive_now`
takes only what is in memory and gives up otherwise, `drive` waits for the disk in a thread. So the
event loop never waits for a device, and a reader that keeps up never waits at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from penstock.errors import CorruptRecord, OffsetOutOfRange, StorageError
from penstock.log import layout, rebuild
from penstock.log.chunk import LogChunk, pick
from penstock.log.scan import Scan
from penstock.log.segment import Segment
from penstock.model.batch import HEADER_BYTES
from penstock.runtime.disk import Buffer, File

if TYPE_CHECKING:
    from penstock.log.partition_log import PartitionLog

T = TypeVar("T")


class Bytes(NamedTuple):
    """Wanted: that many bytes of a segment."""

    segment: Segment
    length: int
    position: int


class Indexes(NamedTuple):
    """Wanted: the segment's indexes in memory."""

    segment: Segment


Reading = Generator[Bytes | Indexes, Buffer, T]


class SegmentRetired(Exception):
    """The segment was replaced or deleted under the reader, who starts again."""


# --- drivers --------------------------------------------------------------------------------------


def drive_now(reading: Reading[T]) -> T | None:
    """Run on what is in memory; None when the disk would have to be waited for."""
    try:
        wanted = next(reading)
        while type(wanted) is Bytes:
            answer = wanted.segment.file().read_now(wanted.length, wanted.position)
            if answer is None:
                break
            wanted = reading.send(answer)
    except StopIteration as done:
        result: T = done.value
        return result
    except FileNotFoundError:
        pass  # retired: `drive` knows what to do
    except OSError as failure:
        raise StorageError(f"cannot read the log: {failure}") from failure
    reading.close()
    return None


async def drive(reading: Reading[T], executor: Executor | None) -> T:
    """Run to the end, waiting for the disk in a thread where the bytes are not in memory."""
    try:
        wanted = next(reading)
        while True:
            if wanted.segment.retired:
                raise SegmentRetired
            wanted = reading.send(await _fetch(wanted, executor))
    except StopIteration as done:
        result: T = done.value
        return result
    except FileNotFoundError:
        raise SegmentRetired from None
    except OSError as failure:
        raise StorageError(f"cannot read the log: {failure}") from failure
    finally:
        reading.close()


async def _fetch(wanted: Bytes | Indexes, executor: Executor | None) -> Buffer:
    loop = asyncio.get_running_loop()
    segment = wanted.segment
    if isinstance(wanted, Bytes):
        file = segment.file()
        data = file.read_now(wanted.length, wanted.position)
        if data is None:
            work = partial(_read_and_close, file.duplicate(), wanted.length, wanted.position)
            data = await loop.run_in_executor(executor, work)
        return data
    stem, size = segment.path(""), segment.size
    load = partial(rebuild.load_indexes, segment.disk, stem, segment.base_offset, size)
    loaded = await loop.run_in_executor(executor, load)
    if not segment.retired:
        segment.adopt_indexes(*loaded)
    return b""


def _read_and_close(file: File, length: int, position: int) -> Buffer:
    try:
        return file.read(length, position)
    finally:
        file.close()


# --- by offset ------------------------------------------------------------------------------------


def read_chunk(
    log: PartitionLog, offset: int, max_bytes: int, upper_offset: int, min_one: bool
) -> Reading[LogChunk]:
    """The batches from the one that holds `offset`; see `PartitionLog.read`."""
    if not log.start_offset <= offset <= log.end_offset:
        raise OffsetOutOfRange(
            f"{log.name} holds offsets {log.start_offset} to {log.end_offset}, not {offset}"
        )
    upper = min(upper_offset, log.end_offset)
    if offset >= upper:
        return LogChunk(b"", offset, offset, 0, 0)
    cursor = log.segments.cursors.get(offset)
    if cursor is not None:
        segment, position = cursor
        wanted = max_bytes
    else:
        segment = log.segments.holding(offset)
        position = yield from position_before(segment, offset)
        wanted = max_bytes + log.settings.index_interval_bytes
    if wanted < HEADER_BYTES:
        wanted = HEADER_BYTES
    while True:
        length = min(wanted, segment.size - position)
        if length < HEADER_BYTES:
            following = log.segments.after(segment)
            if length > 0:
                raise damage(segment, position, "the segment ends within a batch")
            if following is None:
                return LogChunk(b"", offset, offset, 0, 0)  # all behind it was compacted away
            segment, position = following, 0
            continue
        buffer = yield Bytes(segment, length, position)
        if len(buffer) < length:
            raise damage(segment, position, "the file is shorter than it was")
        view = memoryview(buffer)
        picked = pick(view, offset, max_bytes, upper, min_one)
        if picked.batch_count:
            log.segments.remember(picked.next_offset, segment, position + picked.end)
            return LogChunk(
                view[picked.start : picked.end],
                picked.first_offset,
                picked.next_offset,
                picked.batch_count,
                picked.record_count,
            )
        position += picked.end
        if picked.damaged:
            raise damage(segment, position, picked.damaged)
        if not picked.missing:
            return LogChunk(b"", offset, offset, 0, 0)
        if picked.missing > segment.size - position > 0:
            raise damage(segment, position, "the segment ends within a batch")
        wanted = max(wanted, picked.missing)


def offset_behind_damage(log: PartitionLog, offset: int) -> Reading[int]:
    """Where reading can go on when the batch that holds `offset` is damaged.

    Behind that batch if its header can still be believed, else at the next batch that the index
    knows, else at the next segment.
    """
    segment = log.segments.holding(offset)
    position = yield from position_before(segment, offset)
    assert segment.offset_index is not None
    file = segment.file()
    last = position
    for last, header in rebuild.walk_headers(file, position, segment.size):
        if header.last_offset >= offset:
            behind = last + header.size
            if behind == segment.size or _has_batch(segment, behind, header.next_offset):
                return header.next_offset
            break
    for candidate in segment.offset_index.positions_behind(last):
        for _, header in rebuild.walk_headers(file, candidate, segment.size):
            if header.base_offset > offset and _has_batch(segment, candidate, offset):
                return header.base_offset
            break
    following = log.segments.after(segment)
    return log.end_offset if following is None else following.base_offset


def _has_batch(segment: Segment, position: int, next_offset: int) -> bool:
    scan = Scan(segment.file(), position=position, end=segment.size, next_offset=next_offset)
    return next(iter(scan), None) is not None


def damage(segment: Segment, position: int, what: str) -> CorruptRecord:
    path = segment.disk.describe(segment.path(layout.LOG))
    return CorruptRecord(f"{path} at position {position}: {what}")


def position_before(segment: Segment, offset: int) -> Reading[int]:
    while segment.offset_index is None:
        yield Indexes(segment)
    return segment.offset_index.position_before(offset)
