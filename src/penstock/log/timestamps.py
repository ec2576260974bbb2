"""Finding records by time: the first one since a moment, and the newest one of all.

Time indexes say in which segment and roughly where; the last step unpacks one or a few batches to
name the very record. The generators are driven as those in `reading.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.log.reading import Bytes, Indexes, Reading, damage, position_before
from penstock.log.segment import Segment
from penstock.model.batch import HEADER_BYTES, crc_is_right, read_header
from penstock.model.ids import NO_TIMESTAMP
from penstock.model.records import read_records
from penstock.runtime.disk import Buffer

if TYPE_CHECKING:
    from penstock.log.partition_log import PartitionLog

_WALK_BYTES = 64 * 1024


class Found(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int


class Wanted(NamedTuple):
    """Which record is looked for: the first in [from_offset, upper_offset) since then."""

    timestamp_ms: int
    from_offset: int
    upper_offset: int


def find_timestamp(
    log: PartitionLog, timestamp_ms: int, upper_offset: int
) -> Reading[Found | None]:
    """The first record, by offset, whose timestamp is not before `timestamp_ms`."""
    wanted = Wanted(timestamp_ms, log.start_offset, upper_offset)
    for segment in log.segments.since(wanted.from_offset):
        if segment.base_offset >= wanted.upper_offset:
            break
        if (yield from largest_timestamp(segment)) < wanted.timestamp_ms:
            continue
        while segment.time_index is None:
            yield Indexes(segment)
        start = max(segment.time_index.offset_before(wanted.timestamp_ms), wanted.from_offset)
        position = yield from position_before(segment, start)
        found = yield from _walk(segment, position, wanted)
        if found is not None:
            return found
    return None


def find_newest(log: PartitionLog) -> Reading[Found | None]:
    """The first record that carries the largest timestamp of the log."""
    newest: Segment | None = None
    for segment in log.segments.since(log.start_offset):
        timestamp = yield from largest_timestamp(segment)
        if timestamp >= 0 and (newest is None or timestamp > newest.largest_timestamp):
            newest = segment
    if newest is None:
        return None
    position = yield from position_before(newest, newest.largest_offset)
    wanted = Wanted(newest.largest_timestamp, log.start_offset, log.end_offset)
    return (yield from _walk(newest, position, wanted))


def largest_timestamp(segment: Segment) -> Reading[int]:
    """The segment's largest timestamp, from its time index if it has not been looked up yet."""
    if segment.largest_timestamp == NO_TIMESTAMP and segment.size:
        while segment.time_index is None:
            yield Indexes(segment)
    return segment.largest_timestamp


def _walk(segment: Segment, position: int, wanted: Wanted) -> Reading[Found | None]:
    while segment.size - position >= HEADER_BYTES:
        buffer = yield Bytes(segment, min(_WALK_BYTES, segment.size - position), position)
        view = memoryview(buffer)
        at = 0
        while len(view) - at >= HEADER_BYTES:
            header = read_header(view, at)
            if header.magic != 2 or header.size < HEADER_BYTES or header.last_offset_delta < 0:
                raise damage(segment, position + at, "not a record batch")
            if header.base_offset >= wanted.upper_offset:
                return None
            if header.max_timestamp >= wanted.timestamp_ms:
                batch: Buffer = view[at : at + header.size]
                if len(batch) < header.size:
                    batch = yield Bytes(segment, header.size, position + at)
                if len(batch) < header.size or not crc_is_right(batch, 0, header):
                    raise damage(segment, position + at, "wrong checksum")
                found = _in_batch(batch, header.leader_epoch, wanted)
                if found is not None:
                    return found
            at += header.size
        position += at
        if not at:
            break
    return None


def _in_batch(batch: Buffer, leader_epoch: int, wanted: Wanted) -> Found | None:
    for record in read_records(batch):
        if (
            record.timestamp >= wanted.timestamp_ms
            and wanted.from_offset <= record.offset < wanted.upper_offset
        ):
            return Found(record.offset, record.timestamp, leader_epoch)
    return None
