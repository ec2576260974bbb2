"""A crash in the middle of a write: exactly the whole batches in front of it are there afterwards.

The last batch is cut, or damaged, at every one of its bytes; the log is then opened as after
kill -9 and must hold the batches before it, whole, and go on from there.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.log.partition_log import PartitionLog
from penstock.log.store import LogStore
from penstock.runtime.disk import OsDisk
from penstock.runtime.memory_disk import MemoryDisk
from support.logs import append, make_batch, open_log, open_store, read_all, run

FIRST = [make_batch([b"first-%d" % at, b"x" * 40], keys=[b"k", b"l"]) for at in range(5)]
LAST = make_batch([b"last-1", b"last-2", b"last-3"])
LOG = "orders-0/00000000000000000000.log"
SETTINGS = {"index_interval_bytes": 150}


async def write(disk: MemoryDisk | OsDisk, *, recovery_point: int) -> LogStore:
    """A log of six batches; the process dies without a word. Some of it may be checkpointed."""
    store = await open_store(disk)
    log = open_log(store, **SETTINGS)
    for at, batch in enumerate([*FIRST, LAST]):
        append(log, bytearray(batch))
        if at + 1 == recovery_point:
            job = log.begin_sync()
            job.run()
            log.finish_sync(job)
            await store.checkpoint()
    await store.close(clean=False)
    return store


async def reopen(disk: MemoryDisk | OsDisk) -> tuple[LogStore, PartitionLog]:
    store = await open_store(disk)
    assert not store.was_clean
    return store, open_log(store, **SETTINGS)


async def check_prefix(disk: MemoryDisk | OsDisk, batches: int) -> None:
    store, log = await reopen(disk)
    found = await read_all(log)
    assert len(found) == batches
    assert [batch[61:] for batch in found] == [bytes(batch[61:]) for batch in FIRST[:batches]]
    assert log.end_offset == log.synced_offset == 2 * batches
    assert disk.size(LOG) == sum(map(len, found)), "nothing of the torn batch is left"
    append(log, make_batch([b"after"]))
    assert len(await read_all(log)) == batches + 1
    await store.close()
    store = await open_store(disk)
    assert open_log(store).end_offset == 2 * batches + 1
    await store.close()


@pytest.mark.parametrize("recovery_point", [0, 3, 5])
def test_a_log_cut_at_every_byte_of_its_last_batch(recovery_point: int) -> None:
    async def check() -> None:
        for missing in range(1, len(LAST) + 1):
            disk = MemoryDisk()
            await write(disk, recovery_point=recovery_point)
            file = disk.open(LOG)
            file.truncate(file.size() - missing)
            await check_prefix(disk, 5)

    run(check())


def test_a_log_damaged_at_every_byte_of_its_last_batch() -> None:
    async def check() -> None:
        for at in range(len(LAST)):
            disk = MemoryDisk()
            await write(disk, recovery_point=0)
            content = bytearray(disk.read_file(LOG))
            content[len(content) - len(LAST) + at] ^= 0x41
            disk.write_file(LOG, bytes(content))
            if 4 <= at < 8 or 12 <= at < 16:
                continue  # a gap in the offsets, another leader's epoch: lawful, not checksummed
            await check_prefix(disk, 5)

    run(check())


@pytest.mark.parametrize("tail", [b"\0", b"\0" * 61, b"\0" * 4096, b"\xff" * 100, b"garbage" * 30])
def test_whatever_follows_the_last_whole_batch_is_cut_off(tail: bytes) -> None:
    async def check() -> None:
        disk = MemoryDisk()
        await write(disk, recovery_point=2)
        content = disk.read_file(LOG)
        disk.write_file(LOG, content[: -len(LAST)] + tail)
        await check_prefix(disk, 5)

    run(check())


def test_a_log_cut_anywhere_holds_the_whole_batches_in_front_of_the_cut() -> None:
    async def check() -> None:
        ends = [0]
        for batch in FIRST:
            ends.append(ends[-1] + len(batch))
        for size in range(0, ends[-1], 7):
            disk = MemoryDisk()
            await write(disk, recovery_point=0)
            disk.open(LOG).truncate(size)
            await check_prefix(disk, max(at for at, end in enumerate(ends) if end <= size))

    run(check())


def test_a_torn_tail_on_the_file_system(tmp_path: Path) -> None:
    async def check() -> None:
        for missing in (1, 30, len(LAST) - 61, len(LAST) - 1):
            disk = OsDisk(tmp_path / str(missing))
            await write(disk, recovery_point=3)
            file = disk.open(LOG)
            file.truncate(file.size() - missing)
            file.close()
            await check_prefix(disk, 5)

    run(check())


@pytest.mark.parametrize("seed", range(20))
def test_a_power_loss_during_the_last_write_leaves_what_was_synced(seed: int) -> None:
    async def check() -> None:
        disk = MemoryDisk(volatile=True)
        store = await open_store(disk)
        log = open_log(store, **SETTINGS)
        for batch in FIRST:
            append(log, bytearray(batch))
        job = log.begin_sync()
        job.run()
        log.finish_sync(job)
        append(log, make_batch([b"z" * 3000] * 3))
        store.executor.shutdown()
        disk.lose_power(random.Random(seed))
        store = await open_store(disk)
        found = await read_all(open_log(store))
        assert [batch[61:] for batch in found[:5]] == [bytes(batch[61:]) for batch in FIRST]
        assert len(found) in (5, 6)
        await store.close()

    run(check())
