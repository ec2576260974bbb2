"""Work on one log that overlaps: readers, retention, compaction, checkpoints and deletion."""

from __future__ import annotations

import asyncio
import errno
import time
import uuid
from pathlib import Path

import pytest

from penstock.errors import StorageError
from penstock.log import compaction, layout
from penstock.log.checkpoint import CLEAN_SHUTDOWN, Checkpoints
from penstock.log.cleaner import Cleaner, CleaningPlan, Part
from penstock.log.pace import Pace
from penstock.log.partition_log import PartitionLog
from penstock.log.retention import retain
from penstock.log.settings import LogSettings
from penstock.log.store import LogStore
from penstock.log.upkeep import Kept, Upkeep
from penstock.model.ids import TopicPartition
from penstock.model.records import build_batch
from penstock.runtime.disk import OsDisk
from penstock.runtime.memory_disk import MemoryDisk
from support.logs import (
    NOW_MS,
    TOPIC,
    TOPIC_ID,
    append,
    make_batch,
    open_log,
    open_store,
    read_all,
    run,
)

HOUR_MS = 60 * 60 * 1000
KEY = TopicPartition(TOPIC, 0)


class ColdDisk(OsDisk):
    """A disk of which nothing is ever in memory: every read waits in a thread."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.can_read_without_waiting = False


async def hourly(disk: OsDisk, **settings: object) -> tuple[LogStore, PartitionLog]:
    """Six closed segments, one an hour, opened by a broker that has not looked into them yet."""
    store = await open_store(disk)
    log = open_log(store, segment_bytes=1100)
    for age in range(6, 0, -1):
        append(log, make_batch([b"x" * 900], timestamp_ms=NOW_MS - age * HOUR_MS))
    await store.close()
    store = await open_store(disk)
    return store, open_log(store, segment_bytes=1100, **settings)


def test_retention_drops_nothing_younger_while_somebody_else_moves_the_start(
    tmp_path: Path,
) -> None:
    async def check() -> None:
        store, log = await hourly(ColdDisk(tmp_path), retention_ms=3 * HOUR_MS + 1)
        retaining = asyncio.create_task(retain(log, NOW_MS, log.end_offset))
        while log.segments[0].time_index is None:
            await asyncio.sleep(0.001)
        log.advance_start(1)  # DeleteRecords, while the next index is being waited for
        await retaining
        assert log.start_offset <= 3, "the records of the last three hours stay"
        await retain(log, NOW_MS, log.end_offset)
        assert log.start_offset == 3
        await store.close()

    run(check())


def test_an_emptied_segment_does_not_stop_retention() -> None:
    async def check() -> None:
        store = await open_store(MemoryDisk())
        both = frozenset({"compact", "delete"})
        log = open_log(store, segment_bytes=150, retention_ms=HOUR_MS, cleanup_policy=both)
        for age in (5, 4):
            stamp_ms = NOW_MS - age * HOUR_MS
            batch = build_batch([(b"key", b"x" * 100, ())], timestamp_ms=stamp_ms)
            append(log, batch)
        log.roll(NOW_MS)
        log.settings = LogSettings(segment_bytes=1, retention_ms=HOUR_MS, cleanup_policy=both)
        dirt = await compaction.measure(log, 0, log.end_offset, NOW_MS)
        await compaction.compact(log, dirt, [], NOW_MS, store.executor)
        assert [bool(segment.size) for segment in log.segments] == [False, True, False]
        await retain(log, NOW_MS, log.end_offset)
        assert log.start_offset == 2
        await store.close()

    run(check())


def test_a_reader_goes_on_when_its_segment_was_compacted_under_it(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(ColdDisk(tmp_path))
        log = open_log(store, cleanup_policy=frozenset({"compact"}))
        for at in range(20):
            batch = build_batch([(b"key-%d" % at, b"x" * 100, ())], timestamp_ms=NOW_MS)
            append(log, batch)
        log.roll(NOW_MS)
        await log.read(0, 10, upper_offset=20)  # has the index in memory
        segment = log.segments[0]
        plan = CleaningPlan(log.name, [Part(0, 20, segment.size)], 0, NOW_MS, 0, 1 << 20, (), {})
        (cleaned,) = Cleaner(log.disk, plan).run()
        reading = asyncio.create_task(log.read(0, 500, upper_offset=20))
        await asyncio.sleep(0)  # it waits for bytes of the old segment
        assert log.swap(cleaned)
        chunk = await reading
        offset = chunk.next_offset
        assert 0 < offset < 20
        assert (await log.read(offset, 500, upper_offset=20)).first_offset == offset
        await store.close()

    run(check())


def test_a_topic_deleted_during_a_checkpoint_leaves_no_offset_to_the_next_of_its_name() -> None:
    async def check() -> None:
        store = await open_store(MemoryDisk())
        log = open_log(store)
        append(log, make_batch([b"x"]))
        log.assign_epoch(0, 0)
        log.finish_sync(log.begin_sync())
        writing = asyncio.create_task(store.checkpoint())
        await asyncio.sleep(0)  # it waits for the disk
        store.delete(TOPIC, TOPIC_ID)
        await writing
        assert KEY not in store.checkpoints.recovery_points
        await store.close()

    run(check())


def test_checkpoints_are_written_one_after_the_other() -> None:
    """A stop may write one while the thread of a cancelled one still does."""

    class SlowDisk(MemoryDisk):
        writing = 0

        def replace(self, path: str, data: bytes) -> None:
            self.writing += 1
            assert self.writing == 1
            time.sleep(0.02)
            super().replace(path, data)
            self.writing -= 1

    async def check() -> None:
        store = await open_store(MemoryDisk())
        store.checkpoints = checkpoints = Checkpoints(SlowDisk())
        checkpoints.recovery_points[KEY] = 1
        first = checkpoints.encode()
        checkpoints.recovery_points[KEY] = 2
        second = checkpoints.encode()
        await asyncio.gather(
            *[asyncio.to_thread(checkpoints.write, files) for files in (first, second)]
        )
        await store.close(clean=False)

    run(check())


def test_a_topic_is_compacted_although_one_of_its_name_was_damaged() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await open_store(disk)
        settings = LogSettings(cleanup_policy=frozenset({"compact"}), segment_bytes=700)
        topic_id = TOPIC_ID

        async def keep(key: TopicPartition) -> Kept:
            log = store.get(TOPIC, topic_id, 0, settings)
            return Kept(log, log.end_offset, log.end_offset, list)

        def put() -> None:
            log = store.get(TOPIC, topic_id, 0, settings)
            for at in range(30):
                append(log, make_batch([b"x" * 100], keys=[b"key-%d" % (at % 3)]))

        upkeep = Upkeep(store, settings_of=lambda name: settings, keep=keep)
        put()
        disk.open("orders-0/00000000000000000000.log").write([b"!"], 70)
        assert await upkeep.compact() is None
        assert KEY in upkeep.uncleanable
        store.delete(TOPIC, topic_id)
        topic_id = uuid.uuid4()
        put()
        assert await upkeep.compact() == KEY
        await store.close()

    run(check())


def test_compaction_of_a_deleted_topic_says_nothing_of_the_next_of_its_name() -> None:
    class HookedDisk(MemoryDisk):
        """Has a topic deleted just when its compacted segment is ready."""

        def sync_directory(self, path: str = "") -> None:
            super().sync_directory(path)
            if any(name.endswith(layout.LOG + layout.SWAP) for name in self.list(path)):
                loop.call_soon_threadsafe(store.delete, TOPIC, TOPIC_ID)

    async def check() -> None:
        nonlocal loop, store
        loop = asyncio.get_running_loop()
        store = await open_store(HookedDisk())
        settings = LogSettings(cleanup_policy=frozenset({"compact"}), segment_bytes=700)
        log = store.get(TOPIC, TOPIC_ID, 0, settings)

        async def keep(key: TopicPartition) -> Kept:
            return Kept(log, log.end_offset, log.end_offset, list)

        for _ in range(3):
            append(log, make_batch([b"x" * 200], keys=[b"key"]))
        upkeep = Upkeep(store, settings_of=lambda name: settings, keep=keep)
        await upkeep.compact()
        assert log.retired
        assert not upkeep.failures
        assert KEY not in store.checkpoints.cleaned
        await store.close()

    loop: asyncio.AbstractEventLoop
    store: LogStore
    run(check())


def test_a_compaction_that_is_given_up_lets_its_thread_go(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path), threads=1)
        log = open_log(store, cleanup_policy=frozenset({"compact"}))
        for at in range(2000):
            append(log, make_batch([b"x"], keys=[b"key-%d" % at]))
        log.roll(NOW_MS)
        dirt = await compaction.measure(log, 0, log.end_offset, NOW_MS)
        slow = Pace(work_ms=0, rest_ms=50)  # 200 s of work
        compacting = asyncio.create_task(
            compaction.compact(log, dirt, [], NOW_MS, store.executor, pace=slow)
        )
        await asyncio.sleep(0.2)
        compacting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await compacting
        await store.close()
        assert not [name for name in store.disk.list("orders-0") if name.endswith(layout.CLEANED)]

    run(check())


def test_a_log_opened_during_a_stop_does_not_make_it_unclean() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await open_store(disk)
        for partition in range(3):
            append(open_log(store, partition), make_batch([b"x"]))
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)  # it waits for a sync
        open_log(store, 7)  # a request that was still under way
        await closing
        assert disk.exists(CLEAN_SHUTDOWN)

    run(check())


def test_what_a_full_disk_left_of_a_write_is_cut_off_before_the_next_segment_begins() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await open_store(disk)
        log = open_log(store, segment_bytes=2000)
        append(log, make_batch([b"x" * 500]))
        disk.capacity_bytes = disk.used_bytes + 100
        disk.fail("truncate", errno.EIO)  # so that the torn write cannot be taken back at once
        with pytest.raises(StorageError):
            append(log, make_batch([b"y" * 500]))
        disk.capacity_bytes = None
        append(log, make_batch([b"z" * 1800]))  # does not fit into the segment
        assert len(log.segments) == 2
        await store.close()
        store = await open_store(disk)
        assert len(await read_all(open_log(store))) == 2
        await store.close()

    run(check())
