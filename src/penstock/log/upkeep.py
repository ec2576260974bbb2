"""The slow work on all logs, run from time to time: retention, compaction, removal of old files.

It looks at every partition that has files, but opens only those that seem to need something. The
caller says what the log does not know: a topic's settings, and how far a partition's records are
replicated and decided. Retention, compaction and sweeping may overlap each other and everything
else that happens to a log, but not themselves.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from penstock.errors import CorruptRecord
from penstock.log import compaction, layout, recovery, retention
from penstock.log.compaction import Dirt
from penstock.log.partition_log import PartitionLog
from penstock.log.settings import LogSettings
from penstock.log.store import LogStore
from penstock.model.ids import TopicPartition
from penstock.model.producer import ProducerSnapshotEntry
from penstock.runtime.disk import Disk


class Kept(NamedTuple):
    """What its owner knows of a partition."""

    log: PartitionLog
    high_watermark: int
    last_stable_offset: int
    producers: Callable[[], Sequence[ProducerSnapshotEntry]]


class Glance(NamedTuple):
    """What can be seen of a partition without opening its log."""

    segment_count: int
    size_bytes: int
    oldest_written_ms: int


class Uncleanable(NamedTuple):
    """Why a log is not compacted; another topic of the same name is."""

    topic_id: uuid.UUID
    reason: str


class Upkeep:
    """Keeps the logs of a store in shape."""

    def __init__(
        self,
        store: LogStore,
        *,
        settings_of: Callable[[str], LogSettings | None],
        keep: Callable[[TopicPartition], Awaitable[Kept | None]],
    ) -> None:
        self._store = store
        self._settings_of = settings_of
        self._keep = keep
        self._due: list[tuple[int, str]] = []
        # For people to see: logs that are damaged and not compacted any more, and what else failed
        # in the last run and will be tried again.
        self.uncleanable: dict[TopicPartition, Uncleanable] = {}
        self.failures: dict[TopicPartition, str] = {}
        self.compacted_bytes = 0
        self.dropped_segments = 0

    def __repr__(self) -> str:
        return f"Upkeep({self.dropped_segments} dropped, {self.compacted_bytes} bytes compacted)"

    # --- retention --------------------------------------------------------------------------------

    async def retain(self) -> int:
        """Drop the segments that are too old or too many; how many."""
        dropped = 0
        for key in self._store.partitions():
            settings = self._settings_of(key.topic)
            if settings is None or not settings.deletes:
                continue
            if not await self._may_need(key, settings, _may_expire):
                continue
            kept = await self._keep(key)
            if kept is not None:
                now_ms = self._store.clock.now_ms()
                dropped += await retention.retain(kept.log, now_ms, kept.high_watermark)
            await asyncio.sleep(0)
        self.dropped_segments += dropped
        return dropped

    async def sweep(self) -> int:
        """Remove the files whose delay (`file.delete.delay.ms`) is over; how many."""
        now_ms = self._store.clock.now_ms()
        for log in list(self._store.loaded()):
            doomed = log.segments.doomed
            if doomed:
                due_ms = now_ms + log.settings.file_delete_delay_ms
                self._due += [(due_ms, path) for path in doomed]
                doomed.clear()
        gone = [path for due_ms, path in self._due if due_ms <= now_ms]
        if gone:
            self._due = [entry for entry in self._due if entry[0] > now_ms]
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._store.executor, _remove_all, self._store.disk, gone)
        return len(gone)

    # --- compaction -------------------------------------------------------------------------------

    async def compact(self) -> TopicPartition | None:
        """Compact the dirtiest log, if one is dirty enough; which."""
        self.failures.clear()
        candidates: list[tuple[float, TopicPartition, Dirt]] = []
        for key in self._store.partitions():
            settings = self._settings_of(key.topic)
            if settings is None or not settings.compacts:
                continue
            if not await self._may_need(key, settings, _may_be_dirty):
                continue
            kept = await self._keep(key)
            if kept is None or self._is_uncleanable(key, kept.log):
                continue
            dirt = await self._measure(key, kept)
            if dirt.dirty_bytes and (
                dirt.overdue or dirt.ratio >= settings.min_cleanable_dirty_ratio
            ):
                candidates.append((dirt.ratio, key, dirt))
            await asyncio.sleep(0)
        for _, key, dirt in sorted(candidates, reverse=True):
            if await self._compact(key, dirt):
                return key
        return None

    def _is_uncleanable(self, key: TopicPartition, log: PartitionLog) -> bool:
        known = self.uncleanable.get(key)
        return known is not None and known.topic_id == log.topic_id

    async def _measure(self, key: TopicPartition, kept: Kept) -> Dirt:
        cleaned = self._store.checkpoints.cleaned.get(key, 0)
        now_ms = self._store.clock.now_ms()
        return await compaction.measure(kept.log, cleaned, kept.last_stable_offset, now_ms)

    async def _compact(self, key: TopicPartition, dirt: Dirt) -> bool:
        kept = await self._keep(key)
        if kept is None:
            return False
        try:
            end_offset = await compaction.compact(
                kept.log,
                dirt,
                kept.producers(),
                self._store.clock.now_ms(),
                self._store.executor,
            )
        except CorruptRecord as damage:
            if not kept.log.retired:
                self.uncleanable[key] = Uncleanable(kept.log.topic_id, str(damage))
            return False
        except OSError as failure:
            # A full disk, or the topic was deleted meanwhile: the log is as it was.
            self.failures[key] = str(failure)
            return False
        if kept.log.retired:
            return False
        self.compacted_bytes += dirt.clean_bytes + dirt.dirty_bytes
        self._store.checkpoints.cleaned[key] = end_offset
        return end_offset > dirt.first_dirty_offset

    # --- without opening --------------------------------------------------------------------------

    async def _may_need(
        self,
        key: TopicPartition,
        settings: LogSettings,
        judge: Callable[[Glance, LogSettings, int], bool],
    ) -> bool:
        if self._store.is_loaded(key):
            return True
        loop = asyncio.get_running_loop()
        seen = await loop.run_in_executor(self._store.executor, glance, self._store.disk, str(key))
        return judge(seen, settings, self._store.clock.now_ms())


def glance(disk: Disk, name: str) -> Glance:
    """Look at a partition's directory from outside; for a thread."""
    bases = recovery.base_offsets(disk.list(name))
    paths = [f"{name}/{layout.file_name(base, layout.LOG)}" for base in bases]
    if not paths:
        return Glance(0, 0, 0)
    return Glance(len(paths), sum(map(disk.size, paths)), disk.modified_ms(paths[0]))


def _may_expire(seen: Glance, settings: LogSettings, now_ms: int) -> bool:
    if settings.retention_ms >= 0 and seen.oldest_written_ms < now_ms - settings.retention_ms:
        return seen.size_bytes > 0
    return 0 <= settings.retention_bytes < seen.size_bytes


def _may_be_dirty(seen: Glance, settings: LogSettings, now_ms: int) -> bool:
    return seen.segment_count > 1


def _remove_all(disk: Disk, paths: Sequence[str]) -> None:
    for path in paths:
        disk.remove(path)
