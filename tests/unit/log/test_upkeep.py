"""Upkeep over many partitions: only those that need something are opened."""

from __future__ import annotations

from penstock.log.settings import LogSettings
from penstock.log.store import LogStore
from penstock.log.upkeep import Kept, Upkeep
from penstock.model.ids import TopicPartition
from penstock.runtime.clock import ManualClock
from penstock.runtime.memory_disk import MemoryDisk
from support.logs import (
    NOW_MS,
    TOPIC,
    TOPIC_ID,
    append,
    fill,
    make_batch,
    open_log,
    open_store,
    read_all,
    run,
)

COMPACT = LogSettings(cleanup_policy=frozenset({"compact"}), segment_bytes=700)
DELETE = LogSettings(retention_bytes=2000, retention_ms=-1, segment_bytes=700)


class Owner:
    """Stands where the broker's partitions are: knows settings and watermarks."""

    def __init__(self, store: LogStore, settings: LogSettings) -> None:
        self.store = store
        self.settings = settings
        self.asked: list[TopicPartition] = []
        self.upkeep = Upkeep(store, settings_of=self.settings_of, keep=self.keep)

    def settings_of(self, topic: str) -> LogSettings | None:
        return self.settings if topic == TOPIC else None

    async def keep(self, key: TopicPartition) -> Kept | None:
        self.asked.append(key)
        log = self.store.get(key.topic, TOPIC_ID, key.partition, self.settings)
        return Kept(log, log.end_offset, log.end_offset, list)


def put(store: LogStore, partition: int, count: int, settings: LogSettings) -> None:
    log = store.get(TOPIC, TOPIC_ID, partition, settings)
    for at in range(count):
        append(log, make_batch([b"x" * 100], keys=[b"key-%d" % (at % 3)]))


def test_retention_opens_only_what_may_have_to_go() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await open_store(disk)
        for partition in range(6):
            put(store, partition, 40 if partition == 4 else 2, DELETE)
        await store.close()
        store = await open_store(disk)
        owner = Owner(store, DELETE)
        assert await owner.upkeep.retain() > 0
        assert owner.asked == [TopicPartition(TOPIC, 4)]
        assert 1300 < open_log(store, 4).size_bytes <= 2700
        assert await owner.upkeep.retain() == 0
        await store.close()

    run(check())


def test_dropped_files_are_removed_after_their_delay() -> None:
    async def check() -> None:
        clock = ManualClock(NOW_MS)
        store = LogStore(MemoryDisk(), clock)
        await store.open({TOPIC: TOPIC_ID})
        put(store, 0, 40, DELETE)
        owner = Owner(store, DELETE)
        dropped = await owner.upkeep.retain()
        assert dropped
        assert await owner.upkeep.sweep() == 0
        waiting = [name for name in store.disk.list("orders-0") if name.endswith(".deleted")]
        assert len(waiting) >= dropped
        clock.advance(DELETE.file_delete_delay_ms)
        assert await owner.upkeep.sweep() == len(waiting)
        assert not [name for name in store.disk.list("orders-0") if name.endswith(".deleted")]
        await store.close()

    run(check())


def test_the_dirtiest_log_is_compacted_first_and_each_one_once() -> None:
    async def check() -> None:
        store = await open_store(MemoryDisk())
        for partition, count in enumerate((30, 60, 2)):
            put(store, partition, count, COMPACT)
        owner = Owner(store, COMPACT)
        done = [await owner.upkeep.compact() for _ in range(3)]
        assert sorted(key.partition for key in done if key) == [0, 1]
        assert done[2] is None
        assert not owner.upkeep.failures
        for partition in (0, 1):
            log = open_log(store, partition)
            assert len(await read_all(log)) < 15
            key = TopicPartition(TOPIC, partition)
            assert store.checkpoints.cleaned[key] == log.segments.active.base_offset
        await store.close()

    run(check())


def test_how_far_compaction_got_outlives_the_process() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await open_store(disk)
        put(store, 0, 60, COMPACT)
        owner = Owner(store, COMPACT)
        assert await owner.upkeep.compact() == TopicPartition(TOPIC, 0)
        before = await read_all(open_log(store))
        await store.close()
        assert b"orders 0 " in disk.read_file("cleaner-offset-checkpoint")
        store = await open_store(disk)
        owner = Owner(store, COMPACT)
        assert await owner.upkeep.compact() is None
        assert await read_all(open_log(store)) == before
        await store.close()

    run(check())


def test_a_log_that_is_clean_enough_is_left_alone() -> None:
    async def check() -> None:
        store = await open_store(MemoryDisk())
        put(store, 0, 60, COMPACT)
        owner = Owner(store, COMPACT)
        await owner.upkeep.compact()
        put(store, 0, 5, COMPACT)
        open_log(store).roll(NOW_MS)
        owner.settings = LogSettings(
            cleanup_policy=COMPACT.cleanup_policy, min_cleanable_dirty_ratio=0.9
        )
        assert await owner.upkeep.compact() is None
        owner.settings = COMPACT
        assert await owner.upkeep.compact() == TopicPartition(TOPIC, 0)
        await store.close()

    run(check())


def test_a_log_that_cannot_be_compacted_does_not_stop_the_others() -> None:
    async def check() -> None:
        store = await open_store(MemoryDisk())
        put(store, 0, 60, COMPACT)
        put(store, 1, 30, COMPACT)
        file = store.disk.open("orders-1/00000000000000000000.log")
        file.write([b"!"], 70)
        owner = Owner(store, COMPACT)
        assert await owner.upkeep.compact() == TopicPartition(TOPIC, 0)
        assert "at position 0" in owner.upkeep.uncleanable[TopicPartition(TOPIC, 1)].reason
        await store.close()

    run(check())


def test_a_full_disk_leaves_the_log_uncompacted_and_no_litter() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await open_store(disk)
        put(store, 0, 60, COMPACT)
        names = disk.list("orders-0")
        owner = Owner(store, COMPACT)
        disk.capacity_bytes = disk.used_bytes + 10
        assert await owner.upkeep.compact() is None
        assert owner.upkeep.failures
        assert disk.list("orders-0") == names
        disk.capacity_bytes = None
        assert await owner.upkeep.compact() == TopicPartition(TOPIC, 0)
        await store.close()

    run(check())


def test_topics_of_another_policy_are_not_touched() -> None:
    async def check() -> None:
        store = await open_store(MemoryDisk())
        fill(open_log(store, segment_bytes=300, retention_ms=-1), 30)
        owner = Owner(store, LogSettings(retention_ms=-1))
        assert await owner.upkeep.compact() is None
        assert await owner.upkeep.retain() == 0
        owner.settings = COMPACT
        assert await owner.upkeep.retain() == 0
        await store.close()

    run(check())
