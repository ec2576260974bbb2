"""Retention: what is old or too much goes, whole segments at a time."""

from __future__ import annotations

import pytest

from penstock.log.partition_log import PartitionLog
from penstock.log.retention import retain
from penstock.runtime.memory_disk import MemoryDisk
from support.logs import NOW_MS, append, fill, make_batch, open_log, open_store, read_all, run

HOUR_MS = 60 * 60 * 1000


async def hourly(**settings: object) -> PartitionLog:
    """Ten segments, one for each of the last ten hours, about 1000 bytes each."""
    store = await open_store(MemoryDisk())
    log = open_log(store, segment_bytes=1100, **settings)
    for age in range(10, 0, -1):
        append(log, make_batch([b"x" * 900], timestamp_ms=NOW_MS - age * HOUR_MS))
    return log


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"retention_ms": 5 * HOUR_MS + 1}, 5),
        ({"retention_ms": -1}, 10),
        ({"retention_ms": 100 * HOUR_MS}, 10),
        ({"retention_bytes": 3500}, 4),
        ({"retention_bytes": 0}, 1),
        ({"retention_ms": 5 * HOUR_MS + 1, "retention_bytes": 2500}, 3),
        ({"retention_ms": 2 * HOUR_MS + 1, "retention_bytes": 8000}, 2),
        ({"retention_ms": 0, "cleanup_policy": frozenset({"compact"})}, 10),
        ({"retention_ms": 5 * HOUR_MS + 1, "cleanup_policy": frozenset({"compact", "delete"})}, 5),
    ],
)
def test_settings_decide_how_much_is_kept(settings: dict[str, object], kept: int) -> None:
    async def check() -> None:
        log = await hourly(**settings)
        dropped = await retain(log, NOW_MS, log.end_offset)
        assert dropped == 10 - kept
        assert len(log.segments) == kept
        assert log.start_offset == 10 - kept
        assert len(await read_all(log)) == kept

    run(check())


def test_an_expired_active_segment_is_replaced_by_an_empty_one() -> None:
    async def check() -> None:
        log = await hourly(retention_ms=HOUR_MS // 2)
        assert await retain(log, NOW_MS, log.end_offset) == 10
        assert (log.start_offset, log.end_offset, log.size_bytes) == (10, 10, 0)
        assert [segment.base_offset for segment in log.segments] == [10]
        assert await retain(log, NOW_MS, log.end_offset) == 0
        fill(log, 1)
        assert log.end_offset == 11

    run(check())


def test_nothing_above_the_high_watermark_is_dropped() -> None:
    async def check() -> None:
        log = await hourly(retention_ms=0)
        assert await retain(log, NOW_MS, 4) == 4
        assert log.start_offset == 4

    run(check())


def test_one_young_segment_keeps_all_behind_it() -> None:
    async def check() -> None:
        store = await open_store(MemoryDisk())
        log = open_log(store, segment_bytes=600, retention_ms=HOUR_MS, segment_ms=1 << 60)
        for age in (9, 8, 0, 7, 6):
            append(log, make_batch([b"x" * 500], timestamp_ms=NOW_MS - age * HOUR_MS))
        assert await retain(log, NOW_MS, log.end_offset) == 2

    run(check())


def test_records_without_timestamps_go_by_the_age_of_their_file() -> None:
    async def check() -> None:
        store = await open_store(MemoryDisk())
        log = open_log(store, segment_bytes=600, retention_ms=HOUR_MS)
        for _ in range(4):
            append(log, make_batch([b"x" * 500], timestamp_ms=-1))
        # A memory disk has no clock: its files are from 1970.
        assert await retain(log, NOW_MS, log.end_offset) == 4

    run(check())


def test_the_start_survives_a_restart() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        store = await open_store(disk)
        log = open_log(store, segment_bytes=600, retention_bytes=1500)
        fill(log, 20, size=200)
        await retain(log, NOW_MS, log.end_offset)
        start = log.start_offset
        assert start > 0
        await store.close()
        assert not [name for name in disk.list("orders-0") if name.endswith(".deleted")]
        store = await open_store(disk)
        assert open_log(store).start_offset == start
        await store.close()

    run(check())
