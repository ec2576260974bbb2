"""The log against a list: whatever is done to it, and however it dies, it is a prefix of the list.

The disk is made of memory and can lose power: then only what was synced is sure to be there, and
any torn mixture of the rest may be.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.errors import OffsetOutOfRange
from penstock.log.flusher import Flusher
from penstock.model.batch import read_header
from penstock.model.records import read_records
from penstock.runtime.memory_disk import MemoryDisk
from support.effort import examples
from support.logs import NOW_MS, append, make_batch, open_log, open_store, read_all

T = TypeVar("T")
_LOG_SETTINGS = {"segment_bytes": 2000, "index_interval_bytes": 200}


class LogAgainstList(RuleBasedStateMachine):
    """Every rule does the same to the log and to the list `batches`."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.disk = MemoryDisk(volatile=True)
        self.batches: list[bytes] = []
        self.synced = 0  # batches that must survive a power loss
        self.start = 0
        self.epoch = 0

    def teardown(self) -> None:
        self.run(self.store.close(clean=False))
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def _open(self) -> None:
        self.store = self.run(open_store(self.disk, most_open_files=3))
        self.flusher = Flusher(on_fatal=self._fatal)
        self.log = open_log(self.store, **_LOG_SETTINGS)

    def _fatal(self, failure: BaseException) -> None:
        raise AssertionError("a sync failed") from failure

    @initialize()
    def begin(self) -> None:
        self._open()

    # --- what is done to it -----------------------------------------------------------------------

    @rule(sizes=st.lists(st.integers(0, 900), min_size=1, max_size=4), age=st.integers(0, 5000))
    def append(self, sizes: list[int], age: int) -> None:
        batches = [
            make_batch([b"v" * size] * (1 + size % 3), timestamp_ms=NOW_MS + age + at)
            for at, size in enumerate(sizes)
        ]
        append(self.log, *batches, epoch=self.epoch)
        self.log.assign_epoch(self.epoch, read_header(batches[0]).base_offset)
        self.batches += [bytes(batch) for batch in batches]

    @rule()
    def sync(self) -> None:
        self.run(self.flusher.synced(self.log))
        self.synced = len(self.batches)
        assert self.log.synced_offset == self.log.end_offset

    @rule()
    def checkpoint(self) -> None:
        self.run(self.store.checkpoint())

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        offset = int(self.log.start_offset + part * (self.log.end_offset - self.log.start_offset))
        if not self.log.segments or offset < self.log.segments[0].base_offset:
            return
        self.log.truncate_to(offset)
        self.batches = [batch for batch in self.batches if read_header(batch).last_offset < offset]
        self.start = self.log.start_offset
        # A log that is cut below its recovery point has to write that down before it goes on.
        self.sync()
        self.checkpoint()

    @rule(part=st.floats(0, 1))
    def advance_start(self, part: float) -> None:
        end = read_header(self.batches[self.synced - 1]).next_offset if self.synced else 0
        offset = int(part * end)
        self.log.advance_start(offset)
        self.start = max(self.start, offset)

    # --- how it dies ------------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        self.run(self.flusher.close())
        self.run(self.store.close())
        self.synced = len(self.batches)
        self._open()
        assert self.store.was_clean
        assert self.log.start_offset >= min(self.start, self.log.end_offset)

    @rule()
    def kill(self) -> None:
        self.store.executor.shutdown()
        self.disk.kill_owner()
        self._open()
        assert not self.store.was_clean
        assert not self.store.damages
        self._start_may_be_older()
        assert self._on_disk() == self._expected(len(self.batches))

    @rule(seed=st.none() | st.integers(0, 1 << 16))
    def lose_power(self, seed: int | None) -> None:
        self.store.executor.shutdown()
        self.disk.lose_power(None if seed is None else random.Random(seed))
        self._open()
        self._start_may_be_older()
        found = self._on_disk()
        kept = next(
            (n for n in range(self.synced, len(self.batches) + 1) if found == self._expected(n)),
            None,
        )
        assert kept is not None, "not a prefix that holds everything synced"
        self.batches = self.batches[:kept]
        self.synced = kept

    def _start_may_be_older(self) -> None:
        """DeleteRecords is kept by the next checkpoint, not at once."""
        assert self.log.start_offset <= max(self.start, 0)
        self.start = self.log.start_offset
        if not self.log.segments:
            self.start = 0
        self.epoch += 1

    def _on_disk(self) -> list[bytes]:
        return self.run(read_all(self.log))

    def _expected(self, count: int) -> list[bytes]:
        return [
            batch
            for batch in self.batches[:count]
            if read_header(batch).last_offset >= self.log.start_offset
        ]

    # --- what must hold ---------------------------------------------------------------------------

    @invariant()
    def ends_where_the_list_ends(self) -> None:
        end = read_header(self.batches[-1]).next_offset if self.batches else 0
        assert self.log.end_offset >= end
        assert self.log.synced_offset <= self.log.end_offset
        assert self.log.size_bytes == sum(segment.size for segment in self.log.segments)

    @invariant()
    def holds_what_the_list_holds(self) -> None:
        assert self._on_disk() == self._expected(len(self.batches))

    @rule(part=st.floats(0, 1), max_bytes=st.integers(0, 4000), min_one=st.booleans())
    def read_somewhere(self, part: float, max_bytes: int, min_one: bool) -> None:
        start, end = self.log.start_offset, self.log.end_offset
        offset = int(start + part * (end - start))
        chunk = self.run(self.log.read(offset, max_bytes, upper_offset=end, min_one=min_one))
        following = [b for b in self.batches if read_header(b).last_offset >= offset]
        taken = b""
        for at, batch in enumerate(following):
            if len(taken) + len(batch) > max_bytes and not (at == 0 and min_one):
                break
            taken += batch
        # A chunk ends with its segment; what it has is the beginning of what there is.
        assert taken.startswith(bytes(chunk.data))
        assert bool(taken) == bool(chunk.data)

    @rule(beyond=st.integers(1, 1000))
    def read_outside(self, beyond: int) -> None:
        for offset in (self.log.start_offset - beyond, self.log.end_offset + beyond):
            try:
                self.run(self.log.read(offset, 100, upper_offset=1 << 60))
            except OffsetOutOfRange:
                continue
            raise AssertionError(f"offset {offset} was readable")

    @rule(age=st.integers(-1, 5005))
    def find_by_time(self, age: int) -> None:
        found = self.run(self.log.find_timestamp(NOW_MS + age, upper_offset=self.log.end_offset))
        expected = next(
            (
                record.offset
                for batch in self.batches
                for record in read_records(batch)
                if record.timestamp >= NOW_MS + age and record.offset >= self.log.start_offset
            ),
            None,
        )
        assert (None if found is None else found.offset) == expected

    @invariant()
    def knows_who_wrote_what(self) -> None:
        for batch in self.batches:
            header = read_header(batch)
            if header.base_offset >= self.log.start_offset:
                found = self.log.leader_epochs.epoch_at(header.base_offset)
                assert found == header.leader_epoch, (self.log.epochs, header)


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(max_examples=examples(60), stateful_step_count=40)
