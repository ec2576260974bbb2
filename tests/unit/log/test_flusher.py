"""Group commit: nobody is told that something is safe before it is, and many share one sync."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from penstock.errors import StorageError
from penstock.log.flusher import Flusher
from penstock.log.partition_log import PartitionLog
from penstock.log.store import LogStore
from penstock.runtime.disk import Disk, OsDisk, OsFile
from penstock.runtime.memory_disk import MemoryDisk
from support.logs import append, fill, make_batch, open_log, open_store, run


class CountingDisk(OsDisk):
    """A disk of files that counts its syncs, and can hold them up."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.syncs = 0
        self.let_go = threading.Event()
        self.let_go.set()
        self.failure: OSError | None = None

    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = super().open(path, create=create)
        return CountedFile(file, self)


class CountedFile(OsFile):
    def __init__(self, file: OsFile, disk: CountingDisk) -> None:
        super().__init__(file._fd, disk)
        self.counting = disk

    def sync(self) -> None:
        assert self.counting.let_go.wait(10)
        self.counting.syncs += 1
        if self.counting.failure is not None:
            raise self.counting.failure
        super().sync()

    def duplicate(self) -> OsFile:
        return CountedFile(super().duplicate(), self.counting)


def refuse(failure: BaseException) -> None:
    raise AssertionError("a sync failed") from failure


async def opened(disk: Disk, **settings: object) -> tuple[LogStore, PartitionLog]:
    store = await open_store(disk)
    return store, open_log(store, **settings)


def test_what_was_appended_before_the_call_is_safe_after_it(tmp_path: Path) -> None:
    async def check() -> None:
        store, log = await opened(OsDisk(tmp_path))
        flusher = Flusher(on_fatal=refuse)
        fill(log, 3)
        assert log.synced_offset == 0
        await flusher.synced(log)
        assert log.synced_offset == 3
        assert log.is_synced
        await flusher.close()
        await store.close()

    run(check())


def test_a_log_without_news_does_not_wait(tmp_path: Path) -> None:
    async def check() -> None:
        disk = CountingDisk(tmp_path)
        store, log = await opened(disk)
        flusher = Flusher(on_fatal=refuse)
        assert flusher.submit(log).done()
        fill(log, 1)
        await flusher.synced(log)
        syncs = disk.syncs
        assert flusher.submit(log).done()
        assert disk.syncs == syncs
        await flusher.close()
        await store.close()

    run(check())


def test_all_who_wait_during_a_round_are_served_by_the_next(tmp_path: Path) -> None:
    async def check() -> None:
        disk = CountingDisk(tmp_path)
        store, log = await opened(disk)
        flusher = Flusher(on_fatal=refuse)
        fill(log, 1)
        await flusher.synced(log)  # the directory and its names are done with
        disk.let_go.clear()
        fill(log, 1)
        first = flusher.submit(log)
        await asyncio.sleep(0.02)
        waiters = []
        for _ in range(50):
            fill(log, 1)
            waiters.append(flusher.submit(log))
        await asyncio.sleep(0.02)
        assert not first.done()
        disk.syncs = 0
        disk.let_go.set()
        await first
        assert log.synced_offset == 2, "later appends are not promised by an earlier sync"
        await asyncio.gather(*waiters)
        assert log.synced_offset == 52
        assert disk.syncs == 2
        await flusher.close()
        await store.close()

    run(check())


def test_reads_go_on_while_the_disk_is_slow(tmp_path: Path) -> None:
    async def check() -> None:
        disk = CountingDisk(tmp_path)
        store, log = await opened(disk)
        flusher = Flusher(on_fatal=refuse)
        disk.let_go.clear()
        fill(log, 10)
        waiter = flusher.submit(log)
        await asyncio.sleep(0.02)
        assert not waiter.done()
        chunk = await log.read(0, 10_000, upper_offset=10)
        assert chunk.next_offset == 10
        disk.let_go.set()
        await waiter
        await flusher.close()
        await store.close()

    run(check())


def test_rolled_segments_are_synced_too(tmp_path: Path) -> None:
    async def check() -> None:
        disk = CountingDisk(tmp_path)
        store, log = await opened(disk, segment_bytes=500)
        flusher = Flusher(on_fatal=refuse)
        fill(log, 10)
        assert len(log.segments) > 2
        await flusher.synced(log)
        assert disk.syncs >= len(log.segments)
        assert log.synced_offset == 10
        await flusher.close()
        await store.close()

    run(check())


def test_many_logs_share_a_round(tmp_path: Path) -> None:
    async def check() -> None:
        store = await open_store(OsDisk(tmp_path))
        flusher = Flusher(on_fatal=refuse)
        logs = [open_log(store, partition) for partition in range(20)]
        for log in logs:
            fill(log, 1)
        await asyncio.gather(*[flusher.synced(log) for log in logs])
        assert all(log.synced_offset == 1 for log in logs)
        assert flusher.rounds == 1
        await flusher.close()
        await store.close()

    run(check())


def test_a_waiter_that_gives_up_does_not_disturb_the_others(tmp_path: Path) -> None:
    async def check() -> None:
        disk = CountingDisk(tmp_path)
        store, log = await opened(disk)
        flusher = Flusher(on_fatal=refuse)
        disk.let_go.clear()
        fill(log, 1)
        leaving = asyncio.create_task(flusher.synced(log))
        staying = asyncio.create_task(flusher.synced(log))
        await asyncio.sleep(0.02)
        leaving.cancel()
        disk.let_go.set()
        await staying
        assert leaving.cancelled()
        assert log.synced_offset == 1
        await flusher.close()
        await store.close()

    run(check())


def test_a_failed_sync_is_fatal_and_never_tried_again(tmp_path: Path) -> None:
    async def check() -> None:
        disk = CountingDisk(tmp_path)
        store, log = await opened(disk)
        fatal: list[BaseException] = []
        flusher = Flusher(on_fatal=fatal.append)
        fill(log, 1)
        disk.failure = OSError(errno.EIO, "Input/output error")
        with pytest.raises(StorageError, match="Input/output error"):
            await flusher.synced(log)
        assert fatal == [disk.failure]
        disk.failure = None
        syncs = disk.syncs
        with pytest.raises(StorageError):
            await flusher.synced(log)
        assert log.synced_offset == 0
        assert disk.syncs == syncs
        await flusher.close()
        await store.close(clean=False)

    run(check())


def test_memory_that_fails_to_sync_is_fatal_too() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store, log = await opened(disk)
        fatal: list[BaseException] = []
        flusher = Flusher(on_fatal=fatal.append)
        fill(log, 1)
        disk.fail("sync", errno.EIO, path=".log")
        for _ in range(2):
            with pytest.raises(StorageError):
                await flusher.synced(log)
        assert len(fatal) == 1
        await store.close(clean=False)

    run(check())


def test_with_durability_os_nobody_waits_and_the_disk_follows(tmp_path: Path) -> None:
    async def check() -> None:
        store, log = await opened(OsDisk(tmp_path), durability="os")
        flusher = Flusher(on_fatal=refuse, background_seconds=0.01)
        fill(log, 2)
        assert flusher.submit(log).done()
        assert log.synced_offset == 0
        for _ in range(500):
            if log.synced_offset == 2:
                break
            await asyncio.sleep(0.01)
        assert log.synced_offset == 2
        fill(log, 1)
        await flusher.synced(log)
        await flusher.close()
        assert log.synced_offset == 3
        await store.close()

    run(check())


def test_memory_is_safe_at_once() -> None:
    async def check() -> None:
        store, log = await opened(MemoryDisk())
        flusher = Flusher(on_fatal=refuse)
        fill(log, 1)
        assert flusher.submit(log).done()
        assert log.synced_offset == 1
        await store.close()

    run(check())


def test_rounds_are_reported(tmp_path: Path) -> None:
    async def check() -> None:
        rounds: list[tuple[float, int]] = []
        store, log = await opened(OsDisk(tmp_path))
        flusher = Flusher(
            on_fatal=refuse, on_round=lambda seconds, logs: rounds.append((seconds, logs))
        )
        fill(log, 1)
        await flusher.synced(log)
        assert len(rounds) == 1
        assert 0 < rounds[0][0] < 10
        assert rounds[0][1] == 1
        await flusher.close()
        await store.close()

    run(check())


def test_a_topic_deleted_while_it_is_synced_is_no_failure(tmp_path: Path) -> None:
    async def check() -> None:
        disk = CountingDisk(tmp_path)
        store, log = await opened(disk)
        flusher = Flusher(on_fatal=refuse)
        append(log, make_batch([b"x"]))
        disk.let_go.clear()
        waiter = flusher.submit(log)
        await asyncio.sleep(0.02)
        store.delete("orders", log.topic_id)
        disk.let_go.set()
        await waiter
        await flusher.close()
        await store.close()

    run(check())
