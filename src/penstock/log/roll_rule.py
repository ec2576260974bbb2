"""When a segment is full: by size, by age, by the room in its indexes."""

from __future__ import annotations

import zlib

from penstock.log.offset_index import MOST_RELATIVE_OFFSET
from penstock.log.segment import Segment
from penstock.log.settings import LogSettings
from penstock.log.time_index import ENTRY_BYTES
from penstock.model.batch import BatchHeader


class RollRule:
    """The settings that decide about rolling, made ready for the hot path."""

    __slots__ = ("_index_entries", "_segment_bytes", "_segment_ms")

    def __init__(self, settings: LogSettings, name: str) -> None:
        # Jitter spreads the rolls of many partitions in time. It is taken from the name, so that
        # a partition's is the same at every start.
        jitter_ms = zlib.crc32(name.encode()) % max(1, settings.segment_jitter_ms)
        self._segment_bytes = settings.segment_bytes
        segment_ms = settings.segment_ms
        if settings.compacts:
            # The active segment is never compacted, so it may not get older than that (KIP-354).
            segment_ms = min(segment_ms, settings.max_compaction_lag_ms)
        self._segment_ms = segment_ms - jitter_ms
        self._index_entries = settings.segment_index_bytes // ENTRY_BYTES

    def __repr__(self) -> str:
        return f"RollRule({self._segment_bytes} bytes, {self._segment_ms} ms)"

    def must_roll(self, active: Segment, size: int, last: BatchHeader, now_ms: int) -> bool:
        """Whether `size` bytes that end with the batch `last` belong into a new segment."""
        if not active.size:
            return False
        if active.size + size > self._segment_bytes:
            return True
        # As in Kafka, age runs from the first batch's timestamp to this one's, so that a copied
        # log is cut where the original was; batches without timestamps go by the clock.
        since = active.first_timestamp
        if since is not None and since >= 0 and last.max_timestamp >= 0:
            age_ms = last.max_timestamp - since
        else:
            age_ms = now_ms - active.created_ms
        if age_ms > self._segment_ms:
            return True
        if last.last_offset - active.base_offset > MOST_RELATIVE_OFFSET:
            return True
        return active.time_index is not None and len(active.time_index) >= self._index_entries
