"""Letting old segments go: by age, by size, and because the log's start has moved past them.

Whole segments only, oldest first, never above the high watermark. With `cleanup.policy=compact`
alone, only DeleteRecords lets segments go.
"""

from __future__ import annotations

from penstock.log.partition_log import PartitionLog
from penstock.log.segment import Segment


async def retain(log: PartitionLog, now_ms: int, high_watermark: int) -> int:
    """Drop what the log's settings no longer keep; the number of segments dropped."""
    settings = log.settings
    if not settings.deletes or not log.segments:
        return 0
    drop = 0
    if settings.retention_ms >= 0:
        drop = await _expired(log, now_ms - settings.retention_ms, high_watermark)
    if settings.retention_bytes >= 0:
        drop = max(drop, _excess(log, settings.retention_bytes, high_watermark))
    if not drop:
        return 0
    if log.retired:
        return 0
    if drop == len(log.segments):
        # Even the active segment has expired. An empty one takes its place, so that the files
        # remember the next offset.
        log.roll(now_ms)
    log.advance_start(log.segments[drop].base_offset)
    return drop


def _end(log: PartitionLog, at: int) -> int:
    """The offset behind the segment at that place."""
    return log.segments[at + 1].base_offset if at + 1 < len(log.segments) else log.end_offset


async def _expired(log: PartitionLog, before_ms: int, high_watermark: int) -> int:
    """How many of the oldest segments have no record since `before_ms`."""
    count = 0
    for at, segment in enumerate(list(log.segments)):
        if not segment.size or _end(log, at) > high_watermark:
            break
        if await _last_written_ms(log, segment) >= before_ms or segment.retired:
            break
        count += 1
    return count


async def _last_written_ms(log: PartitionLog, segment: Segment) -> int:
    timestamp = await log.largest_timestamp(segment)
    if timestamp >= 0:
        return timestamp
    return segment.written_ms()


def _excess(log: PartitionLog, most_bytes: int, high_watermark: int) -> int:
    """How many of the oldest segments can go without the log getting smaller than allowed."""
    excess = log.size_bytes - most_bytes
    count = 0
    for at, segment in enumerate(log.segments):
        excess -= segment.size
        if excess < 0 or segment is log.segments.active or _end(log, at) > high_watermark:
            break
        count += 1
    return count
