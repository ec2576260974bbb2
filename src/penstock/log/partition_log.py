"""The log of one partition: segments in a directory, written at the end, read anywhere.

Promises: `append` writes all its batches or none, and never waits for the device; what lies below
`synced_offset` survives a power loss; a batch with a wrong checksum is never handed out. Whether a
batch may be appended, who wrote it and who may see it is decided above: this is only the files.

All methods belong to the event loop's thread. Slow work (syncing, cold reads) goes to threads with
file handles of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

from penstock.errors import StorageError
from penstock.log import layout, reading, timestamps
from penstock.log.chunk import LogChunk
from penstock.log.cleaner import Cleaned
from penstock.log.epochs import LeaderEpochs
from penstock.log.loading import LoadedFiles
from penstock.log.open_files import OpenFiles
from penstock.log.partition_directory import PartitionDirectory
from penstock.log.replay import replay
from penstock.log.roll_rule import RollRule
from penstock.log.segment import Segment
from penstock.log.segment_list import SegmentList
from penstock.log.settings import LogSettings
from penstock.log.sync_job import SyncJob, Unsynced
from penstock.log.timestamps import Found
from penstock.model.batch import BatchHeader
from penstock.model.producer import AbortedTransaction, ProducerSnapshotEntry
from penstock.runtime.disk import Buffer, Disk

T = TypeVar("T")


class PartitionLog:
    """The batches of one partition. Made by `LogStore.get`."""

    __slots__ = (
        "_directory",
        "_executor",
        "_files",
        "_generation",
        "_on_disk",
        "_rolled",
        "_rule",
        "_settings",
        "_snapshots_written",
        "_torn",
        "_unsynced",
        "checkpointed_offset",
        "end_offset",
        "leader_epochs",
        "name",
        "retired",
        "segments",
        "size_bytes",
        "start_offset",
        "synced_offset",
        "topic_id",
    )

    def __init__(
        self,
        name: str,
        topic_id: uuid.UUID,
        settings: LogSettings,
        files: OpenFiles,
        executor: Executor | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.start_offset = 0
        self.end_offset = 0
        self.synced_offset = 0
        self.checkpointed_offset = 0  # the recovery point that the next start will find
        self.size_bytes = 0
        self.retired = False  # deleted or closed: whoever still has it gets errors
        self.leader_epochs = LeaderEpochs()
        self._files = files
        self._executor = executor
        self._directory = PartitionDirectory(files.disk, name)
        self._on_disk = False
        self._unsynced = Unsynced(name)
        self.segments = SegmentList(name, files, self._unsynced)
        self._generation = 0
        self._torn = False
        self._rolled = False
        self._snapshots_written: list[str] = []
        self.settings = settings

    def __repr__(self) -> str:
        return f"PartitionLog({self.name}, {self.start_offset} to {self.end_offset})"

    def attach(self, loaded: LoadedFiles, epochs: LeaderEpochs, start_offset: int) -> None:
        """Take what was found in the directory. All of it counts as synced."""
        self._on_disk = True
        self.segments.attach(loaded.segments)
        self.end_offset = self.synced_offset = self.checkpointed_offset = loaded.end_offset
        first = loaded.segments[0].base_offset if loaded.segments else 0
        self.start_offset = min(max(start_offset, first), loaded.end_offset)
        self.size_bytes = self.segments.size_bytes
        self.leader_epochs = epochs

    @property
    def settings(self) -> LogSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: LogSettings) -> None:
        self._settings = settings
        self._rule = RollRule(settings, self.name)

    @property
    def disk(self) -> Disk:
        return self._files.disk

    @property
    def is_on_disk(self) -> bool:
        """Whether the partition has a directory; an empty one has none yet."""
        return self._on_disk

    # --- writing ----------------------------------------------------------------------------------

    def append(
        self, buffers: Sequence[Buffer], batches: Sequence[BatchHeader], now_ms: int
    ) -> bool:
        """Write batches at the end. True when a new segment was begun since the last append.

        `batches` are the headers of what `buffers` hold, stamped with their offsets. Written in
        one system call and not synced: that is `Flusher`'s. Raises `StorageError` when the disk
        refuses; the log is then as it was before.
        """
        if self.retired:
            self._check_not_retired()
        first, last = batches[0], batches[-1]
        assert first[0] >= self.end_offset, (first, self.end_offset)
        if len(batches) == 1:
            size = first[1] + 12
        else:
            size = sum([header[1] for header in batches]) + 12 * len(batches)
        segments = self.segments
        if not segments or self._rule.must_roll(segments[-1], size, last, now_ms):
            self._roll(now_ms)
        segment = segments[-1]
        try:
            file = segment.file()
            if self._torn:
                file.truncate(segment.size)
                self._torn = False
            if segment.offset_index is None:
                segment.ensure_indexes()
            file.write(buffers, segment.size)
        except OSError as failure:
            self._cut_back(segment)
            raise StorageError(f"cannot write to {self.name}: {failure}") from failure
        segment.added(batches, self._settings.index_interval_bytes)
        self.end_offset = last[0] + last[6] + 1
        self.size_bytes += size
        if not segment.unsynced:
            self._unsynced.add(segment)
        rolled, self._rolled = self._rolled, False
        return rolled

    def roll(self, now_ms: int) -> None:
        """Begin a new segment now, if the active one holds anything."""
        self._check_not_retired()
        if not self.segments or self.segments.active.size:
            self._roll(now_ms)

    def _roll(self, now_ms: int) -> None:
        try:
            if not self._on_disk:
                self._directory.create(self.topic_id)
                self._unsynced.add_paths([self._directory.path(layout.PARTITION_METADATA)])
                self._on_disk = True
            is_first = not self.segments
            if self._torn:  # before it is anything but the end of the log
                self.segments.active.file().truncate(self.segments.active.size)
                self._torn = False
            self.segments.begin(self.end_offset, now_ms)
            self._rolled = not is_first
        except OSError as failure:
            raise StorageError(f"cannot begin a segment of {self.name}: {failure}") from failure

    def _cut_back(self, segment: Segment) -> None:
        """After a failed write: leave nothing of it. If even that fails, try before the next."""
        self._torn = True
        try:
            segment.file().truncate(segment.size)
            self._torn = False
        except OSError:
            pass

    # --- reading ----------------------------------------------------------------------------------

    def try_read(
        self, offset: int, max_bytes: int, *, upper_offset: int, min_one: bool = True
    ) -> LogChunk | None:
        """`read` without waiting: None when the bytes are not in memory."""
        return reading.drive_now(reading.read_chunk(self, offset, max_bytes, upper_offset, min_one))

    async def read(
        self, offset: int, max_bytes: int, *, upper_offset: int, min_one: bool = True
    ) -> LogChunk:
        """Whole batches from the one that holds `offset`, as many as `max_bytes` allow.

        At least one batch, however large, when `min_one`; only batches that begin below
        `upper_offset`; empty when there are none. Every checksum is verified: damage at the first
        batch raises `CorruptRecord` with file and position, damage further on ends the chunk.
        """
        return await self._drive(
            partial(reading.read_chunk, self, offset, max_bytes, upper_offset, min_one)
        )

    async def find_timestamp(self, timestamp_ms: int, *, upper_offset: int) -> Found | None:
        """The first record with a timestamp at or after `timestamp_ms`, below `upper_offset`."""
        return await self._drive(
            partial(timestamps.find_timestamp, self, timestamp_ms, upper_offset)
        )

    async def max_timestamp(self) -> Found | None:
        """The first record that has the largest timestamp of the log."""
        return await self._drive(partial(timestamps.find_newest, self))

    async def largest_timestamp(self, segment: Segment) -> int:
        """The largest timestamp in one segment, -1 when its records have none."""
        try:
            wanted = timestamps.largest_timestamp(segment)
            return await reading.drive(wanted, self._executor)
        except reading.SegmentRetired:
            return segment.largest_timestamp

    async def _drive(self, begin: Callable[[], reading.Reading[T]]) -> T:
        while True:
            try:
                return await reading.drive(begin(), self._executor)
            except reading.SegmentRetired:
                # Compacted or deleted while the disk was waited for: start again, with what is
                # there now, unless that is nothing.
                self._check_not_retired()

    def _check_not_retired(self) -> None:
        if self.retired:
            raise StorageError(f"{self.name} has been deleted or closed")

    def batches(self, from_offset: int) -> AsyncIterator[memoryview]:
        """Every sound batch from the one that holds `from_offset` to the end, one by one."""
        return replay(self, from_offset)

    async def offset_behind_damage(self, offset: int) -> int:
        """Where reading can go on when the batch that holds `offset` is damaged."""
        return await self._drive(partial(reading.offset_behind_damage, self, offset))

    # --- cutting ----------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that reaches `offset`: this log has parted from its leader's.

        `end_offset` becomes `offset`, or what the last batch before it ends with. Sync and
        checkpoint before appending again: the recovery point on disk may lie above the new end.
        """
        if offset >= self.end_offset:
            return
        self._generation += 1
        self.end_offset = self.segments.cut(offset)
        self.start_offset = min(self.start_offset, self.end_offset)
        self.synced_offset = min(self.synced_offset, self.end_offset)
        self.size_bytes = self.segments.size_bytes
        self.leader_epochs.truncate_end(self.end_offset)
        self._directory.remove_snapshots(above=self.end_offset)

    def advance_start(self, offset: int) -> None:
        """Make `offset` the first one that can be read, and let go of segments wholly below it."""
        if offset <= self.start_offset:
            return
        assert offset <= self.end_offset, (offset, self.end_offset)
        self.start_offset = offset
        self.leader_epochs.truncate_start(offset)
        self.segments.drop(self.segments.below(offset))
        self.size_bytes = self.segments.size_bytes

    def swap(self, cleaned: Cleaned) -> bool:
        """Put a compacted segment in the place of its originals; False when those have changed."""
        swapped = self.segments.swap(cleaned)
        self.size_bytes = self.segments.size_bytes
        return swapped

    # --- epochs, transactions, producers ----------------------------------------------------------

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) of every leader, oldest first."""
        return self.leader_epochs.entries

    def assign_epoch(self, epoch: int, start_offset: int) -> None:
        self.leader_epochs.assign(epoch, start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch not above `epoch`, where it ended); (-1, -1) when unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.end_offset)

    def append_aborted(
        self, producer_id: int, first_offset: int, last_offset: int, last_stable_offset: int
    ) -> None:
        """Note an aborted transaction whose marker is at `last_offset`. Twice is once."""
        self.segments.add_aborted(
            AbortedTransaction(producer_id, first_offset, last_offset, last_stable_offset)
        )

    def aborted_between(self, from_offset: int, to_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in [from_offset, to_offset)."""
        return self.segments.aborted_between(from_offset, to_offset)

    def write_producer_snapshot(self, entries: Sequence[ProducerSnapshotEntry]) -> None:
        """Keep the producers as of `end_offset`."""
        if not self._on_disk or self.retired:
            return
        try:
            path = self._directory.write_snapshot(
                self.end_offset, entries, self.checkpointed_offset
            )
        except OSError as failure:
            raise StorageError(f"cannot write a snapshot of {self.name}: {failure}") from failure
        self._snapshots_written.append(path)

    def newest_producer_snapshot(self) -> tuple[int, list[ProducerSnapshotEntry]] | None:
        """(offset, producers) of the newest readable snapshot not above the end of the log."""
        self._directory.remove_snapshots(above=self.end_offset)
        return self._directory.newest_snapshot()

    @property
    def replay_from(self) -> int:
        """Where to replay from when there is no snapshot."""
        return self.start_offset

    # --- syncing ----------------------------------------------------------------------------------

    @property
    def is_synced(self) -> bool:
        return not self._unsynced

    @property
    def is_checkpointed(self) -> bool:
        """Whether a start after a crash would find everything that is known now."""
        return (
            self.synced_offset == self.checkpointed_offset
            and not self.leader_epochs.changed
            and not self._snapshots_written
        )

    def begin_sync(self) -> SyncJob:
        """Everything that must reach the medium for the offsets written so far to be safe."""
        return self._unsynced.take(self._files.disk, self.end_offset, self._generation)

    def finish_sync(self, job: SyncJob) -> None:
        """The job has run: its offsets are safe, unless they have been truncated since."""
        job.done()
        if job.generation == self._generation and job.offset > self.synced_offset:
            self.synced_offset = job.offset

    def save_state(self) -> SyncJob:
        """Write what a start after a crash should not have to find out again: indexes, epochs.

        The recovery point may move when the job has run. Nobody's acknowledgement waits for it.
        """
        job = SyncJob(self._files.disk, self.synced_offset, self._generation)
        segments = self.segments.since(self.checkpointed_offset)
        for segment in segments:
            segment.save_indexes(only_entries=True)
        for segment in segments:
            for path in segment.take_written():
                job.add_path(path)
        if self.leader_epochs.changed and self._on_disk:
            path = self._directory.path(layout.LEADER_EPOCHS)
            job.add_replacement(path, self.leader_epochs.to_text().encode())
            self.leader_epochs.changed = False
        for path in self._snapshots_written:
            job.add_path(path)
        self._snapshots_written.clear()
        if job.has_paths:
            job.add_directory(self.name)
        return job

    def finish(self) -> None:
        """Bring the files into their final form, as for a clean stop."""
        if self.segments and self.segments.active.is_open:
            self.segments.active.finish()

    def retire(self) -> None:
        """Close everything as it is; the log is not used any more."""
        self.retired = True
        self._generation += 1
        self._unsynced.clear()
        self.segments.retire()
