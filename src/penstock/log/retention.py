"""Letting old segments go: by age, by size, and because the log's start has moved past them.

Whole segments only, oldest first, never above the high watermark. With `cleanup.policy=compact`
alone, only DeleteRecords lets segments go. While the disk is waited for, others may drop, compact
or begin segments: so what may go is kept as an offset, never as a number of segments.
"""

from __future__ import annotations

from penstock.log.partition_log import PartitionLog
from penstock.log.segment import Segment


async def retain(log: PartitionLog, now_ms: int, high_watermark: int) -> int:
    """Drop what the log's settings no longer keep; the number of segments dropped."""
    settings = log.settings
    if not settings.deletes or not log.segments:
        return 0
    upto = log.start_offset
    if settings.retention_ms >= 0:
        upto = await _expired(log, now_ms - settings.retention_ms, high_watermark)
    if settings.retention_bytes >= 0:
        upto = max(upto, _excess(log, settings.retention_bytes, high_watermark))
    if upto <= log.start_offset or log.retired:
        return 0
    if upto > log.segments.active.base_offset:
        # Even the active segment has expired. An empty one takes its place, so that the files
        # remember the next offset.
        log.roll(now_ms)
    before = len(log.segments)
    log.advance_start(upto)
    return before - len(log.segments)


def _end(log: PartitionLog, segment: Segment) -> int:
    """The offset behind a segment."""
    following = log.segments.after(segment)
    return log.end_offset if following is None else following.base_offset


async def _expired(log: PartitionLog, before_ms: int, high_watermark: int) -> int:
    """The offset behind the oldest segments that have no record since `before_ms`."""
    upto = log.start_offset
    for segment in list(log.segments):
        written_ms = await _last_written_ms(log, segment)
        if segment.retired or _end(log, segment) > high_watermark:
            break
        is_new = segment is log.segments.active
        # One without records was begun just now, or emptied by compaction and is of no age.
        if written_ms >= before_ms if segment.size else is_new:
            break
        upto = _end(log, segment)
    return upto


async def _last_written_ms(log: PartitionLog, segment: Segment) -> int:
    timestamp = await log.largest_timestamp(segment)
    if timestamp >= 0 or segment.retired:
        return timestamp
    return segment.written_ms()


def _excess(log: PartitionLog, most_bytes: int, high_watermark: int) -> int:
    """The offset behind the oldest segments without which the log is still as large as allowed."""
    excess = log.size_bytes - most_bytes
    upto = log.start_offset
    for segment in log.segments:
        excess -= segment.size
        if excess < 0 or segment is log.segments.active or _end(log, segment) > high_watermark:
            break
        upto = _end(log, segment)
    return upto
