"""The data directory: taken by one, opened lazily, recovered when need be."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from penstock.errors import DataDirectoryDamaged, DataDirectoryInUse
from penstock.log.flusher import Flusher
from penstock.log.settings import LogSettings
from penstock.log.store import LogStore
from penstock.model.ids import TopicPartition
from penstock.runtime.clock import ManualClock
from penstock.runtime.disk import OsDisk, OsFile
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


class WatchedDisk(OsDisk):
    """Notes which paths are touched."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.touched: set[str] = set()

    def open(self, path: str, *, create: bool = False) -> OsFile:
        self.touched.add(path)
        return super().open(path, create=create)

    def list(self, path: str = "") -> list[str]:
        self.touched.add(path)
        return super().list(path)

    def size(self, path: str) -> int:
        self.touched.add(path)
        return super().size(path)

    def read_file(self, path: str) -> bytes:
        self.touched.add(path)
        return super().read_file(path)


# --- whose it is ----------------------------------------------------------------------------------


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        with pytest.raises(DataDirectoryInUse, match=f"another broker is using {tmp_path}"):
            await open_store(OsDisk(tmp_path))
        await store.close()
        await (await open_store(OsDisk(tmp_path))).close()

    run(check())


def test_a_directory_belongs_to_one_node_of_one_cluster(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        store.claim("cluster-a", 1)
        store.claim("cluster-a", 1)
        assert store.properties()["cluster.id"] == "cluster-a"
        with pytest.raises(DataDirectoryDamaged, match=r"meta.properties says node.id=1"):
            store.claim("cluster-a", 2)
        await store.close()
        text = (tmp_path / "meta.properties").read_text()
        assert "version=1\n" in text
        assert "node.id=1\n" in text

    run(check())


# --- starting and stopping ------------------------------------------------------------------------


def test_a_clean_stop_leaves_the_marker_and_a_start_takes_it_away(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        assert not store.was_clean, "there was no stop before the first start"
        await store.close()
        assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":-1}'
        store = await open_store(OsDisk(tmp_path))
        assert store.was_clean
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        await store.close(clean=False)
        store = await open_store(OsDisk(tmp_path))
        assert not store.was_clean
        await store.close()

    run(check())


def test_a_clean_start_touches_no_partition(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        for partition in range(30):
            fill(open_log(store, partition), 3)
        await store.close()
        disk = WatchedDisk(tmp_path)
        store = await open_store(disk)
        assert not [path for path in disk.touched if path.startswith("orders-")]
        log = open_log(store, 7)
        assert {path.split("/")[0] for path in disk.touched if "orders-" in path} == {"orders-7"}
        assert log.end_offset == log.synced_offset == 3
        assert len(await read_all(log)) == 3
        await store.close()

    run(check())


def test_after_a_clean_stop_the_index_files_are_whole(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        log = open_log(store, index_interval_bytes=200)
        fill(log, 50)
        await store.close()
        assert (tmp_path / "orders-0" / "00000000000000000000.index").stat().st_size > 8
        times = (tmp_path / "orders-0" / "00000000000000000000.timeindex").read_bytes()
        assert int.from_bytes(times[-12:-4], "big") == NOW_MS + 49
        text = (tmp_path / "recovery-point-offset-checkpoint").read_text()
        assert text == "0\n1\norders 0 50\n"

    run(check())


def test_an_empty_partition_costs_nothing_on_disk(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        disk_before = sorted(path.name for path in tmp_path.iterdir())
        for partition in range(100):
            assert open_log(store, partition).end_offset == 0
            assert not store.exists(TOPIC, partition)
        assert sorted(path.name for path in tmp_path.iterdir()) == disk_before
        await store.close()

    run(check())


def test_offsets_and_watermarks_outlive_the_process(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        log = open_log(store)
        fill(log, 20)
        log.assign_epoch(4, 0)
        log.advance_start(5)
        await store.checkpoint({TopicPartition(TOPIC, 0): 17})
        await store.close()
        store = await open_store(OsDisk(tmp_path))
        assert store.high_watermark(TOPIC, 0) == 17
        assert store.high_watermark(TOPIC, 1) is None
        log = open_log(store)
        assert (log.start_offset, log.end_offset) == (5, 20)
        assert log.epochs == [(4, 5)]
        await store.close()

    run(check())


def test_the_leader_epoch_grows_with_every_unclean_start(tmp_path: Path) -> None:
    async def check() -> None:
        epochs = []
        for clean in (True, False, True, True):
            store = await open_store(OsDisk(tmp_path))
            epochs.append(store.leader_epoch)
            await store.close(clean=clean)
        assert epochs == [0, 0, 1, 1]

    run(check())


# --- topics that go -------------------------------------------------------------------------------


def test_a_deleted_topic_leaves_at_once_and_its_successor_begins_anew(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        fill(open_log(store), 5)
        fill(open_log(store, 3), 5)
        store.delete(TOPIC, TOPIC_ID)
        assert not (tmp_path / "orders-0").exists()
        assert not store.exists(TOPIC, 3)
        successor = uuid.uuid4()
        log = store.get(TOPIC, successor, 0, LogSettings())
        assert log.end_offset == 0
        fill(log, 2)
        await store.close()
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["orders-0"]
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text().count("orders") == 1

    run(check())


def test_a_topic_that_was_never_opened_can_be_deleted(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        fill(open_log(store), 5)
        await store.close()
        store = await open_store(OsDisk(tmp_path))
        store.delete(TOPIC, TOPIC_ID)
        await store.close()
        assert not [path for path in tmp_path.iterdir() if path.is_dir()]

    run(check())


@pytest.mark.parametrize("clean", [True, False])
def test_directories_of_unknown_topics_are_swept_away(tmp_path: Path, clean: bool) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        fill(open_log(store), 5)
        await store.close(clean=clean)
        (tmp_path / f"left-0.{uuid.uuid4().hex}-delete").mkdir()
        (tmp_path / "catalogue").mkdir()
        store = LogStore(OsDisk(tmp_path), ManualClock())
        await store.open({})
        await store.close()
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["catalogue"]

    run(check())


@pytest.mark.parametrize("name", ["holidays-2024", "orders-0", "things-to-delete", "a.b-delete"])
def test_a_directory_that_is_no_partition_is_never_touched_whatever_its_name(
    tmp_path: Path, name: str
) -> None:
    async def check() -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "picture").write_text("precious")
        store = LogStore(OsDisk(tmp_path), ManualClock())
        await store.open({})
        await store.close()
        assert (tmp_path / name / "picture").read_text() == "precious"

    run(check())


def test_files_of_an_earlier_topic_of_that_name_are_not_its_successors(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        fill(open_log(store), 5)
        await store.close()
        successor = uuid.uuid4()
        store = LogStore(OsDisk(tmp_path), ManualClock())
        await store.open({TOPIC: successor})
        assert store.get(TOPIC, successor, 0, LogSettings()).end_offset == 0
        await store.close()

    run(check())


# --- open files -----------------------------------------------------------------------------------


def test_open_files_are_bounded_however_many_logs_are_in_use(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path), most_open_files=10)
        flusher = Flusher(on_fatal=print)
        logs = [open_log(store, partition, segment_bytes=500) for partition in range(25)]
        for _ in range(3):
            for log in logs:
                fill(log, 3)
                await flusher.synced(log)
        assert len(store._files) <= 10
        for log in logs:
            assert len(await read_all(log)) == 9
        assert len(store._files) <= 10
        await flusher.close()
        await store.close()

    run(check())


def test_a_log_that_was_closed_for_want_of_use_can_be_written_to_again(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        flusher = Flusher(on_fatal=print)
        log = open_log(store, index_interval_bytes=200)
        fill(log, 30)
        await flusher.synced(log)
        for _ in range(2):
            store.close_unused_files()
        assert len(store._files) == 0
        fill(log, 30)
        assert len(await read_all(log)) == 60
        await flusher.close()
        await store.close()
        store = await open_store(OsDisk(tmp_path))
        assert open_log(store).end_offset == 60
        await store.close()

    run(check())


def test_memory_needs_no_directory() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await open_store(disk)
        append(open_log(store), make_batch([b"x"]))
        assert store.partitions() == [TopicPartition(TOPIC, 0)]
        await store.close()

    run(check())


def test_a_full_disk_puts_a_checkpoint_off() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await open_store(disk)
        flusher = Flusher(on_fatal=print)
        log = open_log(store)
        log.assign_epoch(3, 0)
        fill(log, 10)
        await flusher.synced(log)
        disk.capacity_bytes = disk.used_bytes
        await store.checkpoint()
        assert log.checkpointed_offset == 0
        disk.capacity_bytes = None
        await store.checkpoint()
        assert log.checkpointed_offset == 10
        assert disk.read_file("recovery-point-offset-checkpoint") == b"0\n1\norders 0 10\n"
        assert disk.read_file("orders-0/leader-epoch-checkpoint") == b"0\n1\n3 0\n"
        await store.close()

    run(check())
