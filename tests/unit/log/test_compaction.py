"""Compaction in particular: tombstones, markers, producers, codecs, what is left alone."""

from __future__ import annotations

import pytest

from penstock.errors import CorruptRecord
from penstock.log import compaction
from penstock.log.batch_rewrite import read_varint, write_varint
from penstock.log.partition_log import PartitionLog
from penstock.log.store import LogStore
from penstock.model import compression
from penstock.model.batch import (
    DELETE_HORIZON_FLAG,
    BatchHeader,
    checked_batches,
    read_header,
)
from penstock.model.producer import ProducerSnapshotEntry
from penstock.model.records import Record, build_batch, build_marker, read_records
from penstock.runtime.memory_disk import MemoryDisk
from support import batches
from support.logs import NOW_MS, append, make_batch, open_log, open_store, run

DAY_MS = 24 * 60 * 60 * 1000
SETTINGS = {"cleanup_policy": frozenset({"compact"}), "delete_retention_ms": DAY_MS}


async def opened(**settings: object) -> tuple[LogStore, PartitionLog]:
    store = await open_store(MemoryDisk())
    return store, open_log(store, **{**SETTINGS, **settings})


async def compact(
    store: LogStore,
    log: PartitionLog,
    *,
    now_ms: int = NOW_MS,
    producers: list[ProducerSnapshotEntry] | None = None,
    cleaned: int = 0,
) -> int:
    log.roll(NOW_MS)
    dirt = await compaction.measure(log, cleaned, log.end_offset, now_ms)
    return await compaction.compact(log, dirt, producers or [], now_ms, store.executor)


async def records(log: PartitionLog) -> list[Record]:
    found: list[Record] = []
    async for batch in log.batches(0):
        assert checked_batches(batch)
        found += read_records(batch)
    return found


async def headers(log: PartitionLog) -> list[BatchHeader]:
    return [read_header(batch) async for batch in log.batches(0)]


def put(log: PartitionLog, key: bytes, value: bytes | None) -> None:
    append(log, build_batch([(key, value, ())], timestamp_ms=NOW_MS))


def test_the_last_value_of_every_key_stays_at_its_offset() -> None:
    async def check() -> None:
        store, log = await opened()
        for at in range(10):
            put(log, b"key-%d" % (at % 3), b"value-%d" % at)
        assert await compact(store, log) == 10
        found = [(record.offset, record.key, record.value) for record in await records(log)]
        assert found == [
            (7, b"key-1", b"value-7"),
            (8, b"key-2", b"value-8"),
            (9, b"key-0", b"value-9"),
        ]
        assert (log.start_offset, log.end_offset) == (0, 10)
        chunk = await log.read(0, 1000, upper_offset=10)
        assert chunk.first_offset == 7, "a reader steps over the gap"

    run(check())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_loses_records_keeps_its_bounds_codec_and_headers(codec: str) -> None:
    async def check() -> None:
        store, log = await opened()
        keys = [b"a", b"b", b"a", b"c", b"b"]
        values = [b"v%d" % at * 20 for at in range(5)]
        stamps = [NOW_MS + 7, NOW_MS + 9, NOW_MS + 1, NOW_MS + 2, NOW_MS + 3]
        sent = batches.batch(
            values, keys=keys, codec=codec, timestamps=stamps, producer=(5, 1), sequence=40
        )
        append(log, bytearray(sent))
        await compact(store, log)
        (header,) = await headers(log)
        assert (header.base_offset, header.last_offset, header.record_count) == (0, 4, 3)
        assert compression.NAMES[header.codec] == codec
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 40)
        assert header.max_timestamp == NOW_MS + 3
        found = [(r.offset, r.timestamp, r.key, r.value) for r in await records(log)]
        assert found == [(at, stamps[at], keys[at], values[at]) for at in (2, 3, 4)]

    run(check())


def test_a_batch_that_loses_nothing_is_copied_byte_for_byte() -> None:
    async def check() -> None:
        store, log = await opened()
        sent = bytearray(batches.batch([b"1", b"2"], keys=[b"a", b"b"], codec="zstd"))
        append(log, sent)
        await compact(store, log)
        assert [bytes(batch) async for batch in log.batches(0)] == [bytes(sent)]

    run(check())


def test_records_without_a_key_are_dropped() -> None:
    async def check() -> None:
        store, log = await opened()
        append(log, make_batch([b"no key"]))
        put(log, b"key", b"value")
        await compact(store, log)
        assert [record.offset for record in await records(log)] == [1]

    run(check())


def test_a_tombstone_stays_for_its_delay_counted_from_the_first_compaction() -> None:
    async def check() -> None:
        store, log = await opened()
        put(log, b"key", b"value")
        append(
            log,
            build_batch([(b"key", None, [("h", b"1")]), (b"x", b"y", ())], timestamp_ms=NOW_MS - 5),
        )
        later = NOW_MS + 1000
        await compact(store, log, now_ms=later)
        (header,) = await headers(log)
        assert header.attributes & DELETE_HORIZON_FLAG
        assert header.base_timestamp == later + DAY_MS, "the horizon, in Kafka's place for it"
        tombstone, other = await records(log)
        assert (tombstone.value, tombstone.timestamp) == (None, NOW_MS - 5)
        assert list(tombstone.headers) == [("h", b"1")]
        assert (other.offset, other.timestamp, other.value) == (2, NOW_MS - 5, b"y")
        await compact(store, log, now_ms=later + DAY_MS - 1)
        assert len(await records(log)) == 2
        await compact(store, log, now_ms=later + DAY_MS)
        assert [(record.offset, record.value) for record in await records(log)] == [(2, b"y")]

    run(check())


def transact(
    log: PartitionLog, producer: int, values: dict[bytes, bytes], *, commit: bool
) -> tuple[int, int]:
    """One transaction: a batch and its marker; (offset of the batch, offset of the marker)."""
    first = log.end_offset
    append(
        log,
        build_batch(
            [(key, value, ()) for key, value in values.items()],
            timestamp_ms=NOW_MS,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        ),
    )
    marker = log.end_offset
    append(
        log,
        build_marker(
            producer_id=producer,
            producer_epoch=0,
            commit=commit,
            coordinator_epoch=0,
            timestamp_ms=NOW_MS,
        ),
    )
    if not commit:
        log.append_aborted(producer, first, marker, marker + 1)
    return first, marker


def test_aborted_records_go_and_do_not_supersede_anything() -> None:
    async def check() -> None:
        store, log = await opened()
        put(log, b"key", b"old")
        transact(log, 1, {b"key": b"never"}, commit=False)
        await compact(store, log)
        found = await headers(log)
        assert [header.is_control for header in found] == [False, True]
        first = next(iter(await records(log)))
        assert first.value == b"old"

    run(check())


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_goes_when_its_records_are_gone_and_its_delay_is_over(commit: bool) -> None:
    async def check() -> None:
        store, log = await opened()
        transact(log, 1, {b"key": b"first"}, commit=commit)
        put(log, b"key", b"last")
        await compact(store, log)
        markers = [header for header in await headers(log) if header.is_control]
        assert len(markers) == 1
        assert not markers[0].attributes & DELETE_HORIZON_FLAG, "its records were there until now"
        assert len(log.aborted_between(0, 3)) == (0 if commit else 1)
        await compact(store, log, now_ms=NOW_MS + 1)
        markers = [header for header in await headers(log) if header.is_control]
        assert markers[0].attributes & DELETE_HORIZON_FLAG
        assert markers[0].base_timestamp == NOW_MS + 1 + DAY_MS
        assert log.aborted_between(0, 3) == []
        await compact(store, log, now_ms=NOW_MS + 1 + DAY_MS)
        assert [header.is_control for header in await headers(log)] == [False]

    run(check())


def test_the_marker_of_records_that_stay_stays_too() -> None:
    async def check() -> None:
        store, log = await opened()
        transact(log, 1, {b"key": b"kept"}, commit=True)
        for days in (0, 3, 6):
            await compact(store, log, now_ms=NOW_MS + days * DAY_MS)
            assert [header.is_control for header in await headers(log)] == [False, True]

    run(check())


def test_a_producers_last_batch_stays_without_its_records() -> None:
    async def check() -> None:
        store, log = await opened()
        for sequence in (0, 1):
            append(
                log,
                make_batch(
                    [b"v"], keys=[b"key"], producer_id=9, producer_epoch=2, base_sequence=sequence
                ),
            )
        put(log, b"key", b"last")
        producers = [ProducerSnapshotEntry(9, 2, 1, 1, 0, NOW_MS, -1)]
        await compact(store, log, producers=producers)
        found = await headers(log)
        assert [(h.base_offset, h.record_count, h.base_sequence) for h in found] == [
            (1, 0, 1),
            (2, 1, -1),
        ]
        assert found[0].producer_id == 9
        # When the partition has forgotten the producer, the empty batch goes too.
        await compact(store, log)
        assert [header.base_offset for header in await headers(log)] == [2]

    run(check())


def test_small_segments_are_merged() -> None:
    async def check() -> None:
        store, log = await opened(segment_bytes=1000)
        for at in range(100):
            put(log, b"key-%d" % (at % 4), b"x" * 100)
        assert len(log.segments) > 10
        await compact(store, log)
        assert len(log.segments) <= 3
        assert len(await records(log)) == 4
        assert log.size_bytes == sum(segment.size for segment in log.segments)

    run(check())


def test_the_active_segment_and_undecided_records_are_left_alone() -> None:
    async def check() -> None:
        _, log = await opened()
        for _ in range(4):
            put(log, b"key", b"value")
            log.roll(NOW_MS)
        put(log, b"key", b"value")
        dirt = await compaction.measure(log, 0, 3, NOW_MS)
        assert (dirt.first_dirty_offset, dirt.end_offset) == (0, 3)
        dirt = await compaction.measure(log, 0, 5, NOW_MS)
        assert dirt.end_offset == 4, "the active segment begins there"

    run(check())


def test_young_segments_wait_for_their_lag() -> None:
    async def check() -> None:
        _, log = await opened(min_compaction_lag_ms=1000)
        for at in range(4):
            append(log, make_batch([b"v"], keys=[b"k"], timestamp_ms=NOW_MS + at * 1000))
            log.roll(NOW_MS)
        dirt = await compaction.measure(log, 0, 4, NOW_MS + 2500)
        assert dirt.end_offset == 2

    run(check())


def test_dirt_is_measured_from_where_the_last_compaction_ended() -> None:
    async def check() -> None:
        _, log = await opened(max_compaction_lag_ms=10_000)
        for _ in range(4):
            put(log, b"key", b"value")
            log.roll(NOW_MS)
        dirt = await compaction.measure(log, 3, 4, NOW_MS)
        assert (dirt.ratio, dirt.overdue) == (0.25, False)
        dirt = await compaction.measure(log, 99, 4, NOW_MS + 10_001)
        assert (dirt.ratio, dirt.overdue) == (1.0, True), "a checkpoint beyond the log is no use"

    run(check())


def test_a_damaged_log_is_not_compacted() -> None:
    async def check() -> None:
        store, log = await opened()
        for _ in range(4):
            put(log, b"key", b"value")
        log.roll(NOW_MS)
        file = log.disk.open("orders-0/00000000000000000000.log")
        file.write([b"!"], 70)
        before = log.disk.list("orders-0")
        with pytest.raises(CorruptRecord, match="at position 0"):
            await compact(store, log)
        assert log.disk.list("orders-0") == before

    run(check())


def test_a_reader_in_the_middle_of_a_compacted_segment_goes_on() -> None:
    async def check() -> None:
        store, log = await opened()
        for at in range(20):
            put(log, b"key-%d" % (at % 10), b"x" * 50)
        chunk = await log.read(0, 300, upper_offset=20)
        assert chunk.next_offset < 10
        await compact(store, log)
        following = await log.read(chunk.next_offset, 300, upper_offset=20)
        assert following.first_offset == 10

    run(check())


@pytest.mark.parametrize(
    ("value", "encoded"), [(0, "00"), (-1, "01"), (1, "02"), (-64, "7f"), (64, "8001")]
)
def test_varints_are_zigzag(value: int, encoded: str) -> None:
    assert write_varint(value).hex() == encoded
    assert read_varint(write_varint(value), 0) == (value, len(encoded) // 2)


@pytest.mark.parametrize("value", [1 << 40, -(1 << 40), (1 << 62), -(1 << 62)])
def test_large_varints_are_read_back(value: int) -> None:
    assert read_varint(b"x" + write_varint(value), 1)[0] == value
