"""Compaction of one log: how dirty it is, and carrying the work out beside the running log.

    start            first dirty               end                    active segment
      │  compacted      │  not yet compacted     │  too young, or         │
      │  (clean)        │  (dirty)               │  undecided             │

The stretch that may be compacted ends at the first of: the last stable offset, the active segment,
the first segment with records younger than `min.compaction.lag.ms`; always between two segments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import NamedTuple

from penstock.log.cleaner import Cleaner, CleaningPlan, Part
from penstock.log.offset_map import DEFAULT_KEYS
from penstock.log.pace import Pace
from penstock.log.partition_log import PartitionLog
from penstock.log.segment import Segment
from penstock.model.producer import ProducerSnapshotEntry


class Dirt(NamedTuple):
    """How much of a log could be compacted."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool  # `max.compaction.lag.ms` has passed for something in it

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / max(1, self.clean_bytes + self.dirty_bytes)


async def measure(
    log: PartitionLog, cleaned_offset: int, last_stable_offset: int, now_ms: int
) -> Dirt:
    """Look how dirty a log is, given how far it has been compacted before."""
    first_dirty = cleaned_offset
    if not log.start_offset <= first_dirty <= log.end_offset:
        first_dirty = log.start_offset
    segments = list(log.segments)
    youngest_ms = now_ms - log.settings.min_compaction_lag_ms
    end = first_dirty
    clean = dirty = 0
    overdue = False
    for at, segment in enumerate(segments[:-1]):
        following = segments[at + 1].base_offset
        if following <= first_dirty:
            clean += segment.size
            continue
        if following > last_stable_offset:
            break
        timestamp = await log.largest_timestamp(segment)
        if log.settings.min_compaction_lag_ms and timestamp > youngest_ms:
            break
        dirty += segment.size
        end = following
        overdue = overdue or 0 <= timestamp < now_ms - log.settings.max_compaction_lag_ms
    return Dirt(first_dirty, end, clean, dirty, overdue)


async def compact(
    log: PartitionLog,
    dirt: Dirt,
    producers: Sequence[ProducerSnapshotEntry],
    now_ms: int,
    executor: Executor,
    *,
    pace: Pace | None = None,
    most_keys: int = DEFAULT_KEYS,
) -> int:
    """Compact the log up to `dirt.end_offset`, or as far as memory allows; returns how far.

    `producers` are the ones the partition remembers: their last batches stay.
    """
    segments = [segment for segment in log.segments if segment.base_offset < dirt.end_offset]
    if not segments:
        return dirt.first_dirty_offset
    pace = pace or Pace()
    cleaner = Cleaner(log.disk, _plan(log, segments, dirt, producers, now_ms, most_keys), pace)
    work = cleaner.run()
    loop = asyncio.get_running_loop()
    while True:
        try:
            cleaned = await loop.run_in_executor(executor, next, work, None)
        except asyncio.CancelledError:  # a stop, which waits for the threads
            pace.give_up()
            raise
        if cleaned is None:
            return cleaner.end_offset
        if not log.swap(cleaned):
            return dirt.first_dirty_offset  # deleted, or retention was faster: another time


def _plan(
    log: PartitionLog,
    segments: Sequence[Segment],
    dirt: Dirt,
    producers: Sequence[ProducerSnapshotEntry],
    now_ms: int,
    most_keys: int,
) -> CleaningPlan:
    ends = [segment.base_offset for segment in segments[1:]] + [dirt.end_offset]
    parts = [
        Part(segment.base_offset, end, segment.size)
        for segment, end in zip(segments, ends, strict=True)
    ]
    return CleaningPlan(
        directory=log.name,
        parts=parts,
        first_dirty_offset=dirt.first_dirty_offset,
        now_ms=now_ms,
        delete_retention_ms=log.settings.delete_retention_ms,
        segment_bytes=log.settings.segment_bytes,
        aborted=log.aborted_between(log.start_offset, dirt.end_offset),
        last_offsets={entry.producer_id: entry.last_offset for entry in producers},
        most_keys=most_keys,
    )
