"""The data directory: every partition's log, found by name, opened when first asked for.

    data/
        .lock                               held while a broker runs
        meta.properties                     which cluster and node this directory belongs to
        recovery-point-offset-checkpoint    below these offsets all is on the medium
        log-start-offset-checkpoint         first offsets, where DeleteRecords moved them
        replication-offset-checkpoint       high watermarks
        cleaner-offset-checkpoint           how far compaction got
        .kafka_cleanshutdown                only while stopped, after a clean stop
        orders-0/ ...

Promises: after a clean stop, opening touches no partition's directory; otherwise only what lies
above the recovery points is checked. A partition without messages has no directory. Memory and
open files follow the partitions in use, not those that exist.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial

from penstock.errors import DataDirectoryDamaged, DataDirectoryInUse, StorageError
from penstock.log import checkpoint, layout
from penstock.log.checkpoint import Checkpoints
from penstock.log.epochs import LeaderEpochs
from penstock.log.loading import load_segments
from penstock.log.open_files import DEFAULT_LIMIT, OpenFiles
from penstock.log.partition_directory import PartitionDirectory
from penstock.log.partition_log import PartitionLog
from penstock.log.recovery import Damage, PartitionRecovery, Recovered, base_offsets
from penstock.log.settings import LogSettings
from penstock.log.sync_job import SyncJob
from penstock.model.ids import TopicPartition
from penstock.model.topic import topic_id_text
from penstock.runtime.clock import Clock
from penstock.runtime.disk import Disk

logger = logging.getLogger("penstock")

_LOGS_AT_ONCE = 16  # in a checkpoint, before other work on the event loop gets its turn
_FULL = (errno.ENOSPC, errno.EDQUOT)
_BOOT_ID = "penstock.boot.id"
_LEADER_EPOCH = "penstock.leader.epoch"


def check_uninhabited(disk: Disk) -> None:
    """Refuse a directory that has partitions, for a broker whose catalogue is not there.

    It would take them for those of deleted topics. They are Apache Kafka's, or the catalogue was
    lost; either way they are somebody's.
    """
    for name in disk.list():
        if layout.split_directory(name) and _is_partition(disk, name):
            raise DataDirectoryDamaged(
                f"{disk.describe('')} has partitions ({name}, and perhaps more) but no catalogue "
                "that says what they are: put catalogue.sqlite back, or choose another directory"
            )


def _is_partition(disk: Disk, name: str) -> bool:
    """Whether a broker made that directory; it may have such a name for other reasons."""
    try:
        entries = disk.list(name)
    except NotADirectoryError:
        return False
    return layout.PARTITION_METADATA in entries or bool(base_offsets(entries))


class LogStore:
    """All logs of a data directory."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        *,
        threads: int = 4,
        most_open_files: int = DEFAULT_LIMIT,
    ) -> None:
        self.disk = disk
        self.clock = clock
        self.was_clean = True
        self.leader_epoch = 0  # grows with every unclean start: readers can tell what was cut off
        self.damages: list[Damage] = []
        self.recovered: list[Recovered] = []
        self.checkpoints = Checkpoints(disk)
        self._files = OpenFiles(disk, most_open_files)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="disk")
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._directories: dict[str, set[int]] = {}  # partitions with files, by topic
        self._locked = False

    def __repr__(self) -> str:
        return f"LogStore({self.disk!r}, {len(self._logs)} open)"

    @property
    def executor(self) -> Executor:
        """The threads in which the disk is waited for."""
        return self._threads

    # --- starting ---------------------------------------------------------------------------------

    async def open(self, known: Mapping[str, uuid.UUID]) -> None:
        """Take the directory, and bring it in order if the last stop was not clean.

        `known` are the topics of the catalogue; partitions of others are removed, and nothing else
        is touched. Raises `DataDirectoryInUse` when another broker has it. Look at `damages`
        afterwards.
        """
        self.disk.make_directory("")
        if not self.disk.lock(checkpoint.LOCK):
            raise DataDirectoryInUse(
                f"another broker is using {self.disk.describe('')}: stop it, or choose another "
                "directory with --data"
            )
        self._locked = True
        self.was_clean = self.disk.exists(checkpoint.CLEAN_SHUTDOWN)
        self.checkpoints.load()
        self._find_directories(known)
        if not self.was_clean:
            await self._recover_all(known)
        known_epoch = self.properties().get(_LEADER_EPOCH)
        if known_epoch is not None:
            self.leader_epoch = int(known_epoch) + (not self.was_clean)
        self._write_properties(
            {_BOOT_ID: self.disk.boot_id(), _LEADER_EPOCH: str(self.leader_epoch)}
        )
        self.disk.remove(checkpoint.CLEAN_SHUTDOWN)
        self.disk.sync_directory()

    def _find_directories(self, known: Mapping[str, uuid.UUID]) -> None:
        ids = {topic_id_text(topic_id) for topic_id in known.values()}
        for name in self.disk.list():
            split = layout.split_directory(name)
            if split is not None and (split[0] in known or layout.journal_owner(split[0]) in ids):
                self._directories.setdefault(split[0], set()).add(split[1])
            elif layout.is_on_its_way_out(name) or (split and _is_partition(self.disk, name)):
                self._threads.submit(self.disk.remove_tree, name)

    async def _recover_all(self, known: Mapping[str, uuid.UUID]) -> None:
        """Recover every partition, a few at a time, in threads."""
        loop = asyncio.get_running_loop()
        same_boot = self.properties().get(_BOOT_ID) == self.disk.boot_id() != ""
        points = self.checkpoints.recovery_points
        keys = [
            TopicPartition(topic, partition)
            for topic, partitions in sorted(self._directories.items())
            for partition in sorted(partitions)
        ]
        jobs = [
            PartitionRecovery(
                self.disk, str(key), points.get(key, 0), page_cache_survived=same_boot
            )
            for key in keys
        ]
        done = await asyncio.gather(*[loop.run_in_executor(self._threads, job.run) for job in jobs])
        for key, recovered in zip(keys, done, strict=True):
            points[key] = recovered.end_offset
            self.damages += recovered.damages
            self.recovered.append(recovered)

    # --- whose directory this is ------------------------------------------------------------------

    def properties(self) -> dict[str, str]:
        """What `meta.properties` says."""
        if not self.disk.exists(checkpoint.META_PROPERTIES):
            return {}
        return checkpoint.decode_properties(self.disk.read_file(checkpoint.META_PROPERTIES))

    def claim(self, cluster_id: str, node_id: int) -> None:
        """Make the directory this node's, or refuse because it is another's."""
        properties = self.properties()
        for name, value in (("cluster.id", cluster_id), ("node.id", str(node_id))):
            if properties.get(name, value) != value:
                raise DataDirectoryDamaged(
                    f"{self.disk.describe(checkpoint.META_PROPERTIES)} says {name}="
                    f"{properties[name]}, but this broker has {value}: use the right directory"
                )
        self._write_properties({"cluster.id": cluster_id, "node.id": str(node_id)})

    def _write_properties(self, changes: Mapping[str, str]) -> None:
        properties = self.properties()
        if any(properties.get(name) != value for name, value in changes.items()):
            properties = {"version": "1"} | properties | dict(changes)
            self.disk.replace(checkpoint.META_PROPERTIES, checkpoint.encode_properties(properties))

    # --- partitions -------------------------------------------------------------------------------

    def get(
        self, topic: str, topic_id: uuid.UUID, partition: int, settings: LogSettings
    ) -> PartitionLog:
        """The log of a partition, opened if need be. No disk access when it has no files.

        Raises `StorageError` when its files cannot be opened now.
        """
        key = TopicPartition(topic, partition)
        log = self._logs.get(key)
        if log is None:
            try:
                log = self._logs[key] = self._load(key, topic_id, settings)
            except OSError as failure:
                raise StorageError(f"cannot open {key}: {failure}") from failure
        assert log.topic_id == topic_id, (log, topic_id)
        return log

    def _load(
        self, key: TopicPartition, topic_id: uuid.UUID, settings: LogSettings
    ) -> PartitionLog:
        log = PartitionLog(str(key), topic_id, settings, self._files, self._threads)
        if key.partition not in self._directories.get(key.topic, ()):
            return log
        directory = PartitionDirectory(self.disk, log.name)
        if directory.topic_id() not in (topic_id, None):
            # Of an earlier topic with that name, deleted just before the last stop.
            self._send_away(key)
            return log
        loaded = load_segments(directory, self._files)
        point = self.checkpoints.recovery_points.get(key, 0)
        if not loaded.sound or loaded.end_offset < point:
            # Everything was in order when the last broker stopped: somebody has been at the files.
            recovered = PartitionRecovery(self.disk, log.name, point).run()
            self.damages += recovered.damages
            for damage in recovered.damages:
                logger.error("damaged data: %s", damage)
            loaded = load_segments(directory, self._files)
        epochs = directory.load_epochs() or LeaderEpochs()
        log.attach(loaded, epochs, self.checkpoints.starts.get(key, 0))
        return log

    def exists(self, topic: str, partition: int) -> bool:
        """Whether the partition has files."""
        log = self._logs.get(TopicPartition(topic, partition))
        if log is not None:
            return log.is_on_disk
        return partition in self._directories.get(topic, ())

    def partitions(self) -> list[TopicPartition]:
        """Every partition that has files, opened or not."""
        unopened = [
            TopicPartition(topic, partition)
            for topic, partitions in self._directories.items()
            for partition in partitions
            if (topic, partition) not in self._logs
        ]
        opened = [key for key, log in self._logs.items() if log.is_on_disk]
        return sorted(unopened + opened)

    def is_loaded(self, key: TopicPartition) -> bool:
        return key in self._logs

    def loaded(self) -> Iterable[PartitionLog]:
        """The logs that have been opened."""
        return self._logs.values()

    def high_watermark(self, topic: str, partition: int) -> int | None:
        """The high watermark of the last checkpoint."""
        return self.checkpoints.watermarks.get(TopicPartition(topic, partition))

    def delete(self, topic: str, topic_id: uuid.UUID) -> None:
        """Let go of a topic's logs. The files leave at once from sight, later from the disk."""
        keys = [key for key in self._logs if key.topic == topic]
        on_disk = self._directories.pop(topic, set())
        for key in keys:
            log = self._logs.pop(key)
            assert log.topic_id == topic_id, (log, topic_id)
            if log.is_on_disk:
                on_disk.add(key.partition)
            log.retire()
        for partition in sorted(on_disk):
            self._send_away(TopicPartition(topic, partition))

    def delete_journals(self, topic_id: uuid.UUID, purpose: str | None = None) -> None:
        """Let go of the journals beside a topic, or of those for one purpose."""
        owner = topic_id_text(topic_id)
        names = {key.topic for key in self._logs} | set(self._directories)
        for name in sorted(names):
            if layout.journal_owner(name) == owner and (
                purpose is None or name == layout.journal_name(owner, purpose)
            ):
                self.delete(name, topic_id)

    def _send_away(self, key: TopicPartition) -> None:
        self._directories.get(key.topic, set()).discard(key.partition)
        self.checkpoints.forget(key)
        gone = f"{str(key)[:200]}.{uuid.uuid4().hex}{layout.DELETE_DIRECTORY}"
        self.disk.rename(str(key), gone)
        self._threads.submit(self.disk.remove_tree, gone)

    def close_unused_files(self) -> None:
        """Close the files that were not used since the last call; for a slow timer."""
        self._files.close_unused()

    # --- checkpoints and stopping -----------------------------------------------------------------

    async def checkpoint(self, watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Write down how far everything is safe, so that the next start need not look before it.

        On a full disk the old checkpoints stay. Any other `OSError` means that the disk fails, and
        the process must stop as after a failed sync.
        """
        if watermarks:
            self.checkpoints.watermarks.update(watermarks)
        moved: list[tuple[PartitionLog, int]] = []
        changed: list[tuple[TopicPartition, PartitionLog]] = []
        for key, log in self._logs.items():
            if log.start_offset:
                self.checkpoints.starts[key] = log.start_offset
            else:
                self.checkpoints.starts.pop(key, None)  # truncated below an earlier start
            if not log.is_checkpointed:
                changed.append((key, log))
        for at in range(0, len(changed), _LOGS_AT_ONCE):
            # Others delete topics while this waits, and may create one of the same name.
            some = [entry for entry in changed[at : at + _LOGS_AT_ONCE] if not entry[1].retired]
            jobs = await asyncio.gather(*[self._save_state(log) for _, log in some])
            for (key, log), job in zip(some, jobs, strict=True):
                if job is not None and not log.retired:
                    self.checkpoints.recovery_points[key] = job.offset
                    moved.append((log, job.offset))
        files = self.checkpoints.encode()
        if files:
            try:
                await self._in_thread(partial(self.checkpoints.write, files))
            except OSError as failure:
                if failure.errno not in _FULL:
                    raise
                return
        for log, offset in moved:
            log.checkpointed_offset = offset

    async def _save_state(self, log: PartitionLog) -> SyncJob | None:
        """Save and sync what lies beside a log; None when the disk is full: another time, then."""
        if log.retired:
            return None
        try:
            job = log.save_state()
            if job:
                await self._in_thread(job.run)
        except OSError as failure:
            if failure.errno not in _FULL:
                raise
            log.leader_epochs.changed = True
            return None
        return job

    async def _in_thread(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def close(self, *, clean: bool = True) -> None:
        """Close every file. When `clean`, sync everything and leave the marker that says so."""
        if clean and self._locked:
            for log in list(self._logs.values()):  # requests under way may still open others
                log.finish()
                if not log.is_synced:
                    job = log.begin_sync()
                    await self._in_thread(job.run)
                    log.finish_sync(job)
            await self.checkpoint()
            self.disk.replace(checkpoint.CLEAN_SHUTDOWN, checkpoint.encode_clean_shutdown())
        for log in self._logs.values():
            log.retire()
            for path in log.segments.doomed:
                self.disk.remove(path)
        self._threads.shutdown(wait=True)
        if self._locked:
            self.disk.unlock(checkpoint.LOCK)
            self._locked = False
