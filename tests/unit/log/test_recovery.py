"""After an unclean stop: what is rebuilt, what is kept, what is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import CorruptRecord
from penstock.log.flusher import Flusher
from penstock.log.partition_log import PartitionLog
from penstock.log.store import LogStore
from penstock.model.batch import read_header
from penstock.model.producer import AbortedTransaction
from penstock.runtime.disk import OsDisk
from penstock.runtime.memory_disk import MemoryDisk
from support.logs import (
    NOW_MS,
    append,
    fill,
    make_batch,
    open_log,
    open_store,
    read_all,
    run,
)

SETTINGS = {"segment_bytes": 3000, "index_interval_bytes": 200}
FIRST = "orders-0/00000000000000000000"


async def written(disk: MemoryDisk | OsDisk, count: int, *, checkpoint_at: int = 0) -> LogStore:
    """A store whose log has `count` batches of one record, all of them synced."""
    store = await open_store(disk)
    flusher = Flusher(on_fatal=print)
    log = open_log(store, **SETTINGS)
    if checkpoint_at:
        fill(log, checkpoint_at)
        await flusher.synced(log)
        await store.checkpoint()
    fill(log, count - checkpoint_at, timestamp_ms=NOW_MS + checkpoint_at)
    await flusher.synced(log)
    await flusher.close()
    return store


async def killed(store: LogStore, disk: MemoryDisk | OsDisk) -> LogStore:
    await store.close(clean=False)
    return await open_store(disk)


def damage(disk: MemoryDisk | OsDisk, path: str, position: int, data: bytes = b"\xee") -> None:
    file = disk.open(path)
    file.write([data], position)
    file.close()


async def offsets(log: PartitionLog) -> list[int]:
    return [read_header(batch).base_offset async for batch in log.batches(0)]


# --- only above the recovery point ----------------------------------------------------------------


def test_only_what_lies_above_the_recovery_point_is_scanned() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await killed(await written(disk, 100, checkpoint_at=90), disk)
        (recovered,) = store.recovered
        assert recovered.end_offset == 100
        size = open_log(store, **SETTINGS).size_bytes
        assert 0 < recovered.scanned_bytes < size / 5
        await store.close()

    run(check())


def test_nothing_is_scanned_where_nothing_was_written_since() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await written(disk, 50)
        await store.checkpoint()
        store = await killed(store, disk)
        assert store.recovered[0].scanned_bytes < 600
        assert store.recovered[0].cut_bytes == 0
        await store.close()

    run(check())


@pytest.mark.parametrize("loss", ["missing", "empty", "garbage", "cut", "zeros", "swapped"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_lost_or_damaged_indexes_are_built_anew(loss: str, suffix: str, clean: bool) -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await written(disk, 100, checkpoint_at=60)
        await store.close(clean=clean)
        names = [name for name in disk.list("orders-0") if name.endswith(suffix)]
        assert len(names) >= 4
        for name in names:
            path = f"orders-0/{name}"
            data = disk.read_file(path)
            if loss == "missing":
                disk.remove(path)
                continue
            entry = 8 if suffix == ".index" else 12
            contents = {
                "empty": b"",
                "garbage": b"\xff\x01" * 100,
                "cut": data[:-3],
                "zeros": bytes(len(data)),
                "swapped": data[entry:] + data[:entry],
            }
            disk.write_file(path, contents[loss])
        store = await open_store(disk)
        log = open_log(store, **SETTINGS)
        for offset in (0, 17, 44, 61, 99):
            chunk = await log.read(offset, 1, upper_offset=100)
            assert chunk.first_offset == offset
            found = await log.find_timestamp(NOW_MS + offset, upper_offset=100)
            assert found is not None
            assert found.offset == offset
        assert await offsets(log) == list(range(100))
        await store.close()

    run(check())


def test_damaged_checkpoints_cost_time_and_nothing_else(tmp_path: Path) -> None:
    async def check() -> None:
        disk = OsDisk(tmp_path)
        store = await written(disk, 60, checkpoint_at=30)
        await store.close(clean=False)
        for name in ("recovery-point", "log-start", "replication", "cleaner"):
            disk.write_file(f"{name}-offset-checkpoint", b"\0\0\0")
        disk.write_file("orders-0/leader-epoch-checkpoint", b"nonsense")
        store = await open_store(disk)
        assert store.recovered[0].end_offset == 60
        log = open_log(store, **SETTINGS)
        assert len(await read_all(log)) == 60
        assert log.epochs == [(0, 0)], "rebuilt from the batches"
        await store.close()

    run(check())


def test_a_directory_without_metadata_still_belongs_to_its_topic() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await written(disk, 5)
        await store.close(clean=False)
        disk.remove("orders-0/partition.metadata")
        store = await open_store(disk)
        assert len(await read_all(open_log(store))) == 5
        await store.close()

    run(check())


def test_an_empty_directory_is_an_empty_log() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await open_store(disk)
        await store.close(clean=False)
        disk.make_directory("orders-0")
        store = await open_store(disk)
        log = open_log(store)
        assert (log.start_offset, log.end_offset) == (0, 0)
        fill(log, 3)
        assert len(await read_all(log)) == 3
        await store.close()

    run(check())


# --- damage ---------------------------------------------------------------------------------------


def test_damage_in_the_middle_is_reported_and_what_follows_is_kept() -> None:
    """The machine ran on, so no page was lost: this is no torn write, and the rest was promised."""

    async def check() -> None:
        disk = MemoryDisk()
        store = await written(disk, 60)
        size = len((await read_all(open_log(store)))[0])
        await store.close(clean=False)
        damage(disk, FIRST + ".log", 5 * size + 80)
        store = await open_store(disk)
        (found,) = store.damages
        assert found.path == f"memory:{FIRST}.log"
        assert found.position == 5 * size
        assert "at position" in str(found)
        log = open_log(store, **SETTINGS)
        assert log.end_offset == 60
        assert await offsets(log) == [at for at in range(60) if at != 5]
        with pytest.raises(CorruptRecord, match=f"position {5 * size}"):
            await log.read(5, 1000, upper_offset=60)
        await store.close()

    run(check())


def test_after_a_power_loss_sound_batches_behind_an_unsound_one_are_set_aside() -> None:
    async def check() -> None:
        disk = MemoryDisk(volatile=True)
        store = await written(disk, 60)
        log = open_log(store)
        size = len((await read_all(log))[0])
        bases = [segment.base_offset for segment in log.segments]
        await store.close(clean=False)
        file = disk.open(FIRST + ".log")
        behind = bytes(file.read(100_000, 5 * size))
        file.write([b"\xee"], 5 * size + 80)
        file.sync()
        disk.lose_power()
        store = await open_store(disk)
        log = open_log(store, **SETTINGS)
        assert log.end_offset == 5
        assert await offsets(log) == [0, 1, 2, 3, 4]
        aside = disk.read_file(f"{FIRST}.log.{5 * size}.damaged")
        assert aside[size:] == behind[size:]
        for base in bases[1:]:
            assert disk.exists(f"orders-0/{base:020d}.log.damaged")
        assert len(store.damages) == len(bases)
        await store.close()

    run(check())


def test_damage_below_the_recovery_point_is_found_when_it_is_read() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await written(disk, 60)
        await store.close()
        damage(disk, FIRST + ".log", 100)
        store = await open_store(disk)
        assert not store.damages
        log = open_log(store)
        with pytest.raises(CorruptRecord, match=r"00000000000000000000.log at position 0"):
            await log.read(0, 1000, upper_offset=60)
        assert (await log.read(1, 1000, upper_offset=60)).first_offset == 1
        await store.close()

    run(check())


@pytest.mark.parametrize("batches", [0.1, 1])
def test_a_file_that_lost_its_end_after_a_clean_stop_is_reported(batches: float) -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await written(disk, 10)
        await store.close()
        file = disk.open(FIRST + ".log")
        file.truncate(file.size() - int(batches * file.size() / 10))
        store = await open_store(disk)
        log = open_log(store)
        assert "offsets 9 to 10 are lost" in str(store.damages[0])
        assert log.end_offset == 9
        assert len(await read_all(log)) == 9
        fill(log, 1)
        assert await offsets(log) == list(range(10))
        await store.close()

    run(check())


def test_a_log_that_lost_what_was_safe_says_so() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await written(disk, 10)
        await store.checkpoint()
        await store.close(clean=False)
        disk.open(FIRST + ".log").truncate(100)
        store = await open_store(disk)
        assert "offsets 0 to 10 are lost" in str(store.damages[0])
        await store.close()

    run(check())


# --- what goes with the batches -------------------------------------------------------------------


def test_snapshots_and_aborted_transactions_above_the_recovery_point_are_replayed_anew() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await open_store(disk)
        flusher = Flusher(on_fatal=print)
        log = open_log(store)
        fill(log, 10)
        log.append_aborted(1, 0, 5, 6)
        log.write_producer_snapshot([])
        await flusher.synced(log)
        await store.checkpoint()
        fill(log, 10)
        log.append_aborted(1, 7, 15, 16)
        log.write_producer_snapshot([])
        await flusher.synced(log)
        log.save_state()
        store = await killed(store, disk)
        log = open_log(store)
        assert log.end_offset == 20
        assert log.aborted_between(0, 20) == [AbortedTransaction(1, 0, 5, 6)]
        found = log.newest_producer_snapshot()
        assert found is not None
        assert found[0] == 10
        log.append_aborted(1, 7, 15, 16)
        assert len(log.aborted_between(0, 20)) == 2
        await flusher.close()
        await store.close()
        store = await open_store(disk)
        assert len(open_log(store).aborted_between(0, 20)) == 2
        await store.close()

    run(check())


def test_leader_epochs_are_rebuilt_from_the_batches() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await open_store(disk)
        log = open_log(store)
        for epoch in (0, 0, 3, 3, 4):
            append(log, make_batch([b"x"]), epoch=epoch)
        store = await killed(store, disk)
        log = open_log(store)
        assert log.epochs == [(0, 0), (3, 2), (4, 4)]
        assert log.end_offset_for_epoch(3) == (3, 4)
        await store.close()

    run(check())


def test_a_segment_that_a_killed_broker_began_keeps_what_is_written_to_it_later() -> None:
    async def check() -> None:
        disk = MemoryDisk(volatile=True)
        store = await open_store(disk)
        open_log(store).roll(NOW_MS)
        await store.close(clean=False)
        store = await open_store(disk)
        log = open_log(store)
        append(log, make_batch([b"x"]))
        await Flusher(on_fatal=print).synced(log)
        await store.close(clean=False)
        disk.lose_power()
        store = await open_store(disk)
        assert open_log(store).end_offset == 1
        await store.close()

    run(check())
