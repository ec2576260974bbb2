"""One partition's log: appending, rolling, reading, cutting."""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.errors import CorruptRecord, OffsetOutOfRange, StorageError
from penstock.log.partition_log import PartitionLog
from penstock.log.settings import LogSettings
from penstock.log.store import LogStore
from penstock.model.batch import read_header
from penstock.model.producer import AbortedTransaction, ProducerSnapshotEntry
from penstock.runtime.disk import Disk, OsDisk
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


@pytest.fixture(params=["files", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return OsDisk(tmp_path / "data") if request.param == "files" else MemoryDisk()


@pytest.fixture
def store(disk: Disk) -> Iterator[LogStore]:
    store = run(open_store(disk))
    yield store
    run(store.close(clean=False))


@pytest.fixture
def log(store: LogStore) -> PartitionLog:
    return open_log(store, segment_bytes=2000, index_interval_bytes=300)


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


# --- appending ------------------------------------------------------------------------------------


def test_an_empty_log_has_no_directory(log: PartitionLog, disk: Disk) -> None:
    assert (log.start_offset, log.end_offset, log.size_bytes) == (0, 0, 0)
    assert not log.is_on_disk
    assert "orders-0" not in disk.list()


def test_batches_of_one_append_follow_each_other(log: PartitionLog) -> None:
    batches = [make_batch([b"a", b"b"]), make_batch([b"c"])]
    assert append(log, *batches) is False
    assert log.end_offset == 3
    assert log.size_bytes == sum(map(len, batches))
    assert run(read_all(log)) == [bytes(batch) for batch in batches]


def test_the_file_holds_exactly_the_bytes_that_were_sent(log: PartitionLog, disk: Disk) -> None:
    batches = [make_batch([b"a", b"b"]), make_batch([b"c"])]
    for batch in batches:
        append(log, batch)
    data = disk.read_file("orders-0/00000000000000000000.log")
    assert data == bytes(batches[0]) + bytes(batches[1])
    assert disk.read_file("orders-0/partition.metadata").startswith(b"version: 0\ntopic_id: ")


def test_a_segment_is_rolled_when_the_next_batch_does_not_fit(log: PartitionLog) -> None:
    rolled = [append(log, make_batch([b"x" * 500])) for _ in range(8)]
    assert rolled == [False, False, False, True, False, False, True, False]
    assert bases(log) == [0, 3, 6]
    assert all(segment.size <= 2000 for segment in log.segments)


def test_a_segment_is_rolled_when_its_first_record_is_old(store: LogStore) -> None:
    log = open_log(store, segment_ms=1000)
    append(log, make_batch([b"a"], timestamp_ms=NOW_MS))
    append(log, make_batch([b"b"], timestamp_ms=NOW_MS + 1000))
    assert append(log, make_batch([b"c"], timestamp_ms=NOW_MS + 1001)) is True
    assert bases(log) == [0, 2]


def test_batches_without_timestamps_are_rolled_by_the_clock(store: LogStore) -> None:
    log = open_log(store, segment_ms=1000)
    append(log, make_batch([b"a"], timestamp_ms=-1), now_ms=NOW_MS)
    assert not append(log, make_batch([b"b"], timestamp_ms=-1), now_ms=NOW_MS + 1000)
    assert append(log, make_batch([b"c"], timestamp_ms=-1), now_ms=NOW_MS + 1001)


def test_a_segment_is_rolled_when_its_index_is_full(store: LogStore) -> None:
    log = open_log(store, segment_index_bytes=36, index_interval_bytes=0)
    for at in range(6):
        append(log, make_batch([b"x"], timestamp_ms=NOW_MS + at))
    assert bases(log) == [0, 4]


def test_a_compacted_log_rolls_before_its_compaction_is_overdue(store: LogStore) -> None:
    policy = frozenset({"compact"})
    log = open_log(store, max_compaction_lag_ms=500, cleanup_policy=policy)
    append(log, make_batch([b"a"], timestamp_ms=NOW_MS))
    assert append(log, make_batch([b"b"], timestamp_ms=NOW_MS + 501))


def test_settings_can_be_replaced_while_it_runs(log: PartitionLog, store: LogStore) -> None:
    append(log, make_batch([b"x" * 300]))
    log.settings = open_log(store, 1, segment_bytes=400).settings
    assert append(log, make_batch([b"x" * 300]))


def test_a_rolled_segment_has_its_index_files(log: PartitionLog, disk: Disk) -> None:
    fill(log, 40)
    first, second = list(log.segments)[:2]
    entries = disk.read_file(first.path(".index"))
    assert entries
    assert len(entries) % 8 == 0
    times = disk.read_file(first.path(".timeindex"))
    # The last entry of a closed segment is its largest timestamp.
    last = second.base_offset - 1
    assert times[-12:] == (NOW_MS + last).to_bytes(8, "big") + last.to_bytes(4, "big")


# --- a disk that refuses --------------------------------------------------------------------------


def test_a_full_disk_refuses_the_append_and_keeps_the_log_as_it_was() -> None:
    disk = MemoryDisk()
    store = run(open_store(disk))
    log = open_log(store)
    fill(log, 10)
    before = disk.read_file("orders-0/00000000000000000000.log")
    disk.capacity_bytes = disk.used_bytes + 50
    with pytest.raises(StorageError, match=r"orders-0.*No space"):
        append(log, make_batch([b"x" * 500]))
    assert log.end_offset == 10
    assert disk.read_file("orders-0/00000000000000000000.log") == before
    disk.capacity_bytes = None
    append(log, make_batch([b"x" * 500]))
    assert len(run(read_all(log))) == 11
    run(store.close())


def test_what_could_not_be_cut_back_is_cut_before_the_next_append() -> None:
    disk = MemoryDisk()
    store = run(open_store(disk))
    log = open_log(store)
    fill(log, 3)
    disk.capacity_bytes = disk.used_bytes + 50
    disk.fail("truncate", errno.EIO)
    with pytest.raises(StorageError):
        append(log, make_batch([b"x" * 500]))
    disk.capacity_bytes = None
    append(log, make_batch([b"y"]))
    assert disk.size("orders-0/00000000000000000000.log") == log.size_bytes
    assert len(run(read_all(log))) == 4
    run(store.close())


@pytest.mark.parametrize("operation", ["open", "mkdir", "write"])
def test_a_first_append_that_fails_can_be_tried_again(operation: str) -> None:
    disk = MemoryDisk()
    store = run(open_store(disk))
    log = open_log(store)
    disk.fail(operation, errno.ENOSPC, path="orders-0")
    with pytest.raises(StorageError):
        append(log, make_batch([b"x"]))
    append(log, make_batch([b"x"]))
    assert len(run(read_all(log))) == 1
    run(store.close())


def test_a_roll_that_fails_changes_nothing(store: LogStore) -> None:
    disk = MemoryDisk()
    store = run(open_store(disk))
    log = open_log(store, segment_bytes=300)
    append(log, make_batch([b"x" * 200]))
    disk.fail("open", errno.ENOSPC, path="00000001.log")
    with pytest.raises(StorageError):
        append(log, make_batch([b"x" * 200]))
    assert bases(log) == [0]
    assert append(log, make_batch([b"x" * 200])), "it is told of the roll"
    assert bases(log) == [0, 1]
    run(store.close())


# --- reading --------------------------------------------------------------------------------------


def test_a_read_returns_whole_batches_within_the_limit(log: PartitionLog) -> None:
    fill(log, 10, size=100)
    size = log.size_bytes // 10
    chunk = log.try_read(2, 3 * size + size // 2, upper_offset=10)
    assert chunk is not None
    assert (chunk.first_offset, chunk.next_offset) == (2, 5)
    assert (chunk.batch_count, chunk.record_count, len(chunk.data)) == (3, 3, 3 * size)


def test_a_read_in_the_middle_of_a_batch_returns_the_whole_batch(log: PartitionLog) -> None:
    append(log, make_batch([b"a"]))
    batch = make_batch([b"b", b"c", b"d"])
    append(log, batch)
    chunk = log.try_read(2, 10_000, upper_offset=4)
    assert chunk is not None
    assert bytes(chunk.data) == bytes(batch)
    assert (chunk.first_offset, chunk.next_offset, chunk.record_count) == (1, 4, 3)


@pytest.mark.parametrize("size", [10, 1000, 20_000])
def test_at_least_one_batch_is_returned_whatever_the_limit(log: PartitionLog, size: int) -> None:
    append(log, make_batch([b"x" * size]))
    chunk = run(log.read(0, 0, upper_offset=1))
    assert chunk.next_offset == 1
    assert len(chunk.data) > size
    none = run(log.read(0, size // 2, upper_offset=1, min_one=False))
    assert (bytes(none.data), none.next_offset) == (b"", 0)


def test_a_read_stops_below_the_upper_offset(log: PartitionLog) -> None:
    append(log, make_batch([b"a", b"b"]))
    append(log, make_batch([b"c", b"d"]))
    chunk = log.try_read(0, 10_000, upper_offset=2)
    assert chunk is not None
    assert chunk.next_offset == 2
    empty = log.try_read(2, 10_000, upper_offset=2)
    assert empty is not None
    assert (bytes(empty.data), empty.next_offset) == (b"", 2)


def test_the_end_of_the_log_can_be_read_and_is_empty(log: PartitionLog) -> None:
    fill(log, 3)
    chunk = log.try_read(3, 1000, upper_offset=3)
    assert chunk is not None
    assert bytes(chunk.data) == b""


@pytest.mark.parametrize("offset", [-1, 4])
def test_an_offset_outside_of_the_log_is_refused(log: PartitionLog, offset: int) -> None:
    fill(log, 3)
    with pytest.raises(OffsetOutOfRange, match="0 to 3"):
        log.try_read(offset, 1000, upper_offset=3)


def test_a_reader_goes_on_across_segments(log: PartitionLog) -> None:
    fill(log, 100)
    assert len(log.segments) > 3
    assert [read_header(batch).base_offset for batch in run(read_all(log))] == list(range(100))


def test_every_offset_can_be_read_by_itself(log: PartitionLog) -> None:
    for count in (1, 3, 2, 5, 1, 1, 4) * 5:
        append(log, make_batch([b"v" * 50] * count))
    for offset in range(log.end_offset):
        log.segments.cursors.clear()
        chunk = run(log.read(offset, 1, upper_offset=log.end_offset))
        header = read_header(chunk.data)
        assert header.base_offset <= offset <= header.last_offset


def test_bytes_with_a_wrong_checksum_are_never_served(log: PartitionLog, disk: Disk) -> None:
    fill(log, 10, size=100)
    size = log.size_bytes // 10
    path = "orders-0/00000000000000000000.log"
    file = disk.open(path)
    file.write([b"!"], 4 * size + 90)
    file.close()
    chunk = log.try_read(0, 10_000, upper_offset=10)
    assert chunk is not None
    assert chunk.next_offset == 4, "what is in front of the damage is served"
    with pytest.raises(CorruptRecord, match=rf"{path} at position {4 * size}: wrong checksum"):
        log.try_read(4, 10_000, upper_offset=10)
    with pytest.raises(CorruptRecord, match=f"position {4 * size}"):
        run(log.read(4, 10_000, upper_offset=10))
    behind = log.try_read(5, 10_000, upper_offset=10)
    assert behind is not None
    assert behind.first_offset == 5


@pytest.mark.parametrize("at", [8, 16, 23, 70])
def test_a_replay_steps_over_a_damaged_batch(log: PartitionLog, disk: Disk, at: int) -> None:
    fill(log, 30, size=100)
    size = len(run(read_all(log))[0])
    file = disk.open("orders-0/00000000000000000000.log")
    file.write([b"\xee"], 4 * size + at)
    file.close()

    async def replay() -> list[int]:
        return [read_header(batch).base_offset async for batch in log.batches(0)]

    found = run(replay())
    assert found[:4] == [0, 1, 2, 3]
    assert 4 not in found
    assert found[-1] == 29
    assert len(found) >= 20, "only the batch, or the few up to the next index entry, are lost"


# --- by time --------------------------------------------------------------------------------------


def test_the_first_record_since_a_moment_is_found(log: PartitionLog) -> None:
    fill(log, 100, timestamp_ms=NOW_MS)
    found = run(log.find_timestamp(NOW_MS + 42, upper_offset=100))
    assert found is not None
    assert (found.offset, found.timestamp, found.leader_epoch) == (42, NOW_MS + 42, 0)
    assert run(log.find_timestamp(NOW_MS + 100, upper_offset=100)) is None
    assert run(log.find_timestamp(NOW_MS + 42, upper_offset=42)) is None
    first = run(log.find_timestamp(0, upper_offset=100))
    assert first is not None
    assert first.offset == 0


def test_a_moment_is_found_even_if_timestamps_jump_back(log: PartitionLog) -> None:
    for timestamp in (5, 9, 3, 7, 20, 1):
        append(log, make_batch([b"x"], timestamp_ms=timestamp))
    asked = {1: 0, 6: 1, 9: 1, 10: 4, 20: 4}
    for timestamp, offset in asked.items():
        found = run(log.find_timestamp(timestamp, upper_offset=6))
        assert found is not None
        assert found.offset == offset


def test_a_moment_is_not_found_in_front_of_the_start(log: PartitionLog) -> None:
    fill(log, 50)
    log.advance_start(20)
    found = run(log.find_timestamp(NOW_MS, upper_offset=50))
    assert found is not None
    assert found.offset == 20


def test_the_newest_record_is_found(log: PartitionLog) -> None:
    assert run(log.max_timestamp()) is None
    fill(log, 50)
    append(log, make_batch([b"a", b"b"], timestamp_ms=NOW_MS + 9999, keys=[b"k", b"k"]))
    fill(log, 50)
    found = run(log.max_timestamp())
    assert found is not None
    assert (found.offset, found.timestamp) == (50, NOW_MS + 9999)


# --- cutting --------------------------------------------------------------------------------------


def test_advancing_the_start_drops_whole_segments_below_it(log: PartitionLog, disk: Disk) -> None:
    fill(log, 60)
    second, third = bases(log)[1:3]
    log.advance_start(third - 1)
    assert bases(log)[0] == second
    assert log.size_bytes == sum(segment.size for segment in log.segments)
    with pytest.raises(OffsetOutOfRange):
        log.try_read(third - 2, 1000, upper_offset=60)
    assert log.try_read(third - 1, 1000, upper_offset=60)
    assert not disk.exists("orders-0/00000000000000000000.log")
    assert disk.exists("orders-0/00000000000000000000.log.deleted")


def test_the_start_never_goes_back(log: PartitionLog) -> None:
    fill(log, 10)
    log.advance_start(5)
    log.advance_start(3)
    assert log.start_offset == 5


def test_the_start_may_reach_the_end(log: PartitionLog) -> None:
    fill(log, 60)
    log.advance_start(60)
    assert len(log.segments) == 1
    assert run(read_all(log)) == []
    append(log, make_batch([b"next"]))
    assert log.end_offset == 61
    assert len(run(read_all(log))) == 1


def test_truncating_removes_the_batch_that_holds_the_offset_and_all_behind(
    log: PartitionLog,
) -> None:
    for _ in range(40):
        append(log, make_batch([b"v" * 60] * 2), epoch=log.end_offset // 30)
        log.assign_epoch((log.end_offset - 2) // 30, log.end_offset - 2)
    log.write_producer_snapshot([])
    kept = run(read_all(log))[:12]
    log.truncate_to(25)
    assert log.end_offset == 24
    assert run(read_all(log)) == kept
    assert log.epochs == [(0, 0)]
    assert log.newest_producer_snapshot() is None
    append(log, make_batch([b"again"]))
    assert len(run(read_all(log))) == 13


def test_a_deleted_log_refuses_and_never_touches_its_successor(store: LogStore) -> None:
    async def check() -> None:
        old = open_log(store)
        fill(old, 5)
        empty = open_log(store, 1)
        store.delete(TOPIC, TOPIC_ID)
        successor = store.get(TOPIC, uuid.uuid4(), 0, LogSettings())
        fill(successor, 3)
        assert old.try_read(0, 1000, upper_offset=5) is None
        with pytest.raises(StorageError, match="deleted"):
            await old.read(0, 1000, upper_offset=5)
        with pytest.raises(StorageError, match="deleted"):
            await old.find_timestamp(0, upper_offset=5)
        for log in (old, empty):
            with pytest.raises(StorageError, match="deleted"):
                append(log, make_batch([b"late"]))
        assert await old.largest_timestamp(old.segments[0]) == NOW_MS + 4
        old.write_producer_snapshot([])
        assert successor.newest_producer_snapshot() is None
        assert len(await read_all(successor)) == 3
        assert not store.exists(TOPIC, 1)

    run(check())


# --- what is kept beside the batches --------------------------------------------------------------


def test_aborted_transactions_are_found_by_the_range_they_touch(log: PartitionLog) -> None:
    fill(log, 100)
    entries = [
        AbortedTransaction(1, 5, 10, 8),
        AbortedTransaction(2, 8, 40, 41),
        AbortedTransaction(1, 45, 90, 91),
    ]
    for entry in (*entries, entries[0]):
        log.append_aborted(*entry)
    assert log.aborted_between(0, 100) == entries
    assert log.aborted_between(0, 6) == entries[:1]
    assert log.aborted_between(11, 44) == entries[1:2]
    assert log.aborted_between(41, 46) == entries[2:]
    assert log.aborted_between(91, 100) == []


def test_snapshots_are_kept_few_and_the_newest_readable_one_is_used(
    log: PartitionLog, disk: Disk
) -> None:
    entries = [ProducerSnapshotEntry(7, 0, 1, 2, 3, 4, 5)]
    for _ in range(5):
        fill(log, 1)
        log.write_producer_snapshot(entries)
    snapshots = [name for name in disk.list("orders-0") if name.endswith(".snapshot")]
    assert len(snapshots) == 2
    assert log.newest_producer_snapshot() == (5, entries)
    disk.write_file(f"orders-0/{snapshots[-1]}", b"damaged")
    assert log.newest_producer_snapshot() == (4, entries)
    assert not disk.exists(f"orders-0/{snapshots[-1]}")


def test_a_snapshot_below_the_recovery_point_is_not_thrown_away(store: LogStore) -> None:
    log = open_log(store)
    fill(log, 1)
    log.write_producer_snapshot([])
    run(sync(store, log))
    for _ in range(5):
        fill(log, 1)
        log.write_producer_snapshot([])
    names = log.disk.list("orders-0")
    assert "00000000000000000001.snapshot" in names
    assert sum(name.endswith(".snapshot") for name in names) == 3


async def sync(store: LogStore, log: PartitionLog) -> None:
    job = log.begin_sync()
    job.run()
    log.finish_sync(job)
    await store.checkpoint()


def test_a_read_that_would_wait_for_the_device_happens_in_a_thread(tmp_path: Path) -> None:
    """Where the kernel lets a file fall out of memory; on tmpfs nothing is ever cold."""

    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        log = open_log(store, segment_bytes=60_000, index_interval_bytes=300)
        fill(log, 500, size=500)
        job = log.begin_sync()
        job.run()
        log.finish_sync(job)
        for path in (tmp_path / "orders-0").glob("*.log"):
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)
        for segment in log.segments:
            segment.close()
        chunks = await asyncio.gather(
            *[log.read(offset, 10_000, upper_offset=500) for offset in range(0, 500, 50)]
        )
        assert [chunk.first_offset for chunk in chunks] == list(range(0, 500, 50))
        assert len(await read_all(log)) == 500
        found = await log.find_timestamp(NOW_MS + 321, upper_offset=500)
        assert found is not None
        assert found.offset == 321
        await store.close()

    run(check())
