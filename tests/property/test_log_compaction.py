"""Compaction against a dictionary: whatever it drops, readers end up with the same last values.

Records have few keys, so that most are superseded; some are tombstones, some are in transactions
that are committed or aborted. The process may die at any change to the disk.
"""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from penstock.log import compaction
from penstock.log.pace import Pace
from penstock.log.partition_log import PartitionLog
from penstock.log.store import LogStore
from penstock.model.batch import read_header
from penstock.model.producer import ProducerSnapshotEntry
from penstock.model.records import build_batch, build_marker, read_records
from support.dying_disk import Died, DyingDisk
from support.effort import examples
from support.logs import NOW_MS, append, open_log, open_store

_DAY_MS = 24 * 60 * 60 * 1000
_LOG_SETTINGS = {
    "segment_bytes": 700,
    "index_interval_bytes": 100,
    "cleanup_policy": frozenset({"compact"}),
    "delete_retention_ms": _DAY_MS,
}


class Step(NamedTuple):
    """One batch: its producer (0 for none), keys with or without values; or a transaction's end."""

    producer: int
    records: list[tuple[int, bool]]
    end: bool | None  # True commit, False abort, None for a batch of records


steps = st.lists(
    st.builds(
        Step,
        producer=st.integers(0, 2),
        records=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=4),
        end=st.sampled_from([None, None, None, True, False]),
    ),
    min_size=1,
    max_size=40,
)


class Writer:
    """Writes steps to a log, and keeps what a reader of committed data should see."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.committed: dict[int, tuple[bytes, bytes | None]] = {}  # by offset
        self._open: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
        self._sequences: dict[int, int] = {}
        self.last_offsets: dict[int, int] = {}

    def write(self, step: Step) -> None:
        if step.end is not None and step.producer:
            self._end(step.producer, step.end)
        else:
            self._data(step)

    def _data(self, step: Step) -> None:
        offset = self.log.end_offset
        records = [
            (b"key-%d" % key, b"value-%d" % (offset + at) if value else None)
            for at, (key, value) in enumerate(step.records)
        ]
        sequence = self._sequences.get(step.producer, 0)
        batch = build_batch(
            [(key, value, ()) for key, value in records],
            timestamp_ms=NOW_MS,
            producer_id=step.producer or -1,
            producer_epoch=0 if step.producer else -1,
            base_sequence=sequence if step.producer else -1,
            transactional=bool(step.producer),
        )
        self._sequences[step.producer] = sequence + len(records)
        append(self.log, batch)
        if not step.producer:
            self.committed |= {offset + at: record for at, record in enumerate(records)}
            return
        pending = self._open.setdefault(step.producer, [])
        pending += [(offset + at, *record) for at, record in enumerate(records)]
        self.last_offsets[step.producer] = self.log.end_offset - 1

    def _end(self, producer: int, commit: bool) -> None:
        pending = self._open.pop(producer, [])
        marker = build_marker(
            producer_id=producer,
            producer_epoch=0,
            commit=commit,
            coordinator_epoch=0,
            timestamp_ms=NOW_MS,
        )
        offset = self.log.end_offset
        append(self.log, marker)
        if commit:
            self.committed |= {at: (key, value) for at, key, value in pending}
        elif pending:
            self.log.append_aborted(producer, pending[0][0], offset, self.last_stable_offset)

    @property
    def last_stable_offset(self) -> int:
        return min([pending[0][0] for pending in self._open.values()] + [self.log.end_offset])

    def state(self) -> dict[bytes, bytes]:
        """Key to last value, as a reader that starts at the beginning ends up with."""
        return _state(self.committed)

    def producers(self) -> list[ProducerSnapshotEntry]:
        return [
            ProducerSnapshotEntry(producer, 0, self._sequences[producer] - 1, offset, 0, NOW_MS, 0)
            for producer, offset in self.last_offsets.items()
        ]


def _state(records: dict[int, tuple[bytes, bytes | None]]) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for _, (key, value) in sorted(records.items()):
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


async def committed(log: PartitionLog, end: int) -> dict[int, tuple[bytes, bytes | None]]:
    """The records below `end` that a reader of committed data sees: Fetch plus a client's work."""
    aborted = log.aborted_between(log.start_offset, end)
    found: dict[int, tuple[bytes, bytes | None]] = {}
    last = -1
    async for batch in log.batches(log.start_offset):
        header = read_header(batch)
        assert header.base_offset > last, "offsets do not rise"
        last = header.last_offset
        if header.is_control or header.base_offset >= end:
            continue
        if any(
            entry.producer_id == header.producer_id
            and entry.first_offset <= header.base_offset <= entry.last_offset
            for entry in aborted
        ):
            continue
        for record in read_records(batch):
            assert record.key is not None
            found[record.offset] = (record.key, record.value)
    return found


async def compact(store: LogStore, writer: Writer, now_ms: int, most_keys: int = 1000) -> int:
    log = writer.log
    dirt = await compaction.measure(log, 0, writer.last_stable_offset, now_ms)
    return await compaction.compact(
        log,
        dirt,
        writer.producers(),
        now_ms,
        store.executor,
        pace=Pace(work_ms=1000, rest_ms=0),
        most_keys=most_keys,
    )


@settings(max_examples=examples(100))
@given(steps=steps, most_keys=st.sampled_from([2, 1000]))
def test_readers_end_up_with_the_same_values_whatever_is_compacted(
    steps: list[Step], most_keys: int
) -> None:
    async def check() -> None:
        store = await open_store(DyingDisk())
        writer = Writer(open_log(store, **_LOG_SETTINGS))
        for step in steps:
            writer.write(step)
        end = writer.last_stable_offset
        written = {at: record for at, record in writer.committed.items() if at < end}
        for days in (0, 1, 2, 3):
            # Two days on, tombstones and markers are beyond their time.
            await compact(store, writer, NOW_MS + days * 2 * _DAY_MS, most_keys)
            found = await committed(writer.log, end)
            assert found.items() <= written.items(), "a record moved or came back"
            assert _state(found) == _state(written)
        await store.close(clean=False)

    asyncio.run(check())


@settings(max_examples=examples(60))
@given(steps=steps)
def test_compaction_leaves_one_record_for_each_key(steps: list[Step]) -> None:
    async def check() -> None:
        store = await open_store(DyingDisk())
        writer = Writer(open_log(store, **_LOG_SETTINGS))
        for step in steps:
            writer.write(step._replace(producer=0))
        writer.log.roll(NOW_MS)
        end = await compact(store, writer, NOW_MS)
        assert end == writer.log.end_offset
        newest = {key: offset for offset, (key, _) in sorted(writer.committed.items())}
        found = await committed(writer.log, end)
        assert sorted(found) == sorted(newest.values())
        # Once more, when the tombstones' time is over: nothing but values is left.
        await compact(store, writer, NOW_MS + 2 * _DAY_MS)
        found = await committed(writer.log, end)
        assert dict(found.values()) == writer.state()
        await store.close(clean=False)

    asyncio.run(check())


@settings(max_examples=examples(60))
@given(steps=steps, part=st.floats(0, 1), power_loss=st.none() | st.integers(0, 1 << 16))
@example(steps=[Step(0, [(1, True)] * 4, None)] * 30, part=0.5, power_loss=None)
def test_a_compaction_that_dies_half_way_has_either_happened_or_not(
    steps: list[Step], part: float, power_loss: int | None
) -> None:
    async def write(disk: DyingDisk) -> tuple[LogStore, Writer]:
        store = await open_store(disk)
        writer = Writer(open_log(store, **_LOG_SETTINGS))
        for step in steps:
            writer.write(step)
        job = writer.log.begin_sync()
        job.run()
        writer.log.finish_sync(job)
        await store.checkpoint()
        return store, writer

    async def changes_of_a_compaction() -> int:
        disk = DyingDisk()
        store, writer = await write(disk)
        before = disk.changes
        await compact(store, writer, NOW_MS)
        changes = disk.changes - before
        await store.close(clean=False)
        return changes

    async def check() -> None:
        changes = await changes_of_a_compaction()
        disk = DyingDisk()
        store, writer = await write(disk)
        end = writer.last_stable_offset
        disk.die_after(int(part * changes))
        if part < 1 and changes:
            with pytest.raises(Died):
                await compact(store, writer, NOW_MS)
        else:
            await compact(store, writer, NOW_MS)
        disk.live()
        store.executor.shutdown()
        if power_loss is None:
            disk.kill_owner()
        else:
            disk.lose_power(random.Random(power_loss))
        store = await open_store(disk)
        assert not store.damages
        log = open_log(store, **_LOG_SETTINGS)
        assert log.end_offset == writer.log.end_offset
        written = {at: record for at, record in writer.committed.items() if at < end}
        found = await committed(log, end)
        assert found.items() <= written.items()
        assert _state(found) == _state(written)
        await store.close()

    asyncio.run(check())
