"""The journal of one queue on disk: what became of its messages, written a little later.

Records are collected for a few milliseconds and written as one batch; they reach the medium within
a second, or at once when somebody waits for that. So a process that is killed forgets the last few
milliseconds of acknowledgements, and a machine that loses power the last second: the messages are
delivered again. Nothing that was published is ever lost by this.

A queue that nobody has taken from has no journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from penstock.errors import StorageError
from penstock.log.flusher import Flusher
from penstock.log.partition_log import PartitionLog
from penstock.log.settings import UNLIMITED, LogSettings
from penstock.model import batch as batches
from penstock.model.batch import read_header
from penstock.model.offset_ranges import merge_ranges
from penstock.model.queue_journal import (
    Acked,
    Checkpoint,
    JournalRecord,
    decode,
    encode,
)
from penstock.model.records import build_batch, read_records
from penstock.runtime.clock import Clock

JOURNAL_SETTINGS = LogSettings(
    segment_bytes=1 << 20,
    segment_index_bytes=64 << 10,
    retention_ms=UNLIMITED,
    file_delete_delay_ms=1_000,
)
WRITE_SECONDS = 0.005
SYNC_SECONDS = 1.0
_CHECKPOINT_BYTES = 512 << 10  # of records, after which a checkpoint is worth its while


class QueueJournal:
    """Writes and replays the records of one queue. Lives on the event loop."""

    __slots__ = (
        "_clock",
        "_collect",
        "_flusher",
        "_log",
        "_pending",
        "_settled",
        "_since_checkpoint",
        "_sync_timer",
        "_write_timer",
        "is_closed",
    )

    def __init__(
        self,
        log: PartitionLog,
        flusher: Flusher,
        clock: Clock,
        collect: Callable[[], JournalRecord | None],
    ) -> None:
        self._log = log
        self._flusher = flusher
        self._clock = clock
        self._collect = collect  # what the owner only knows in sum, when something is written
        self._pending: list[JournalRecord] = []
        self._settled: list[tuple[int, int]] = []  # ranges of all ACKED records that wait
        self._write_timer: asyncio.TimerHandle | None = None
        self._sync_timer: asyncio.TimerHandle | None = None
        self._since_checkpoint = 0
        self.is_closed = False

    def __repr__(self) -> str:
        return f"<QueueJournal {self._log.name} {self._log.end_offset}>"

    @property
    def wants_checkpoint(self) -> bool:
        """Whether so much was written since the last checkpoint that another would pay."""
        return self._since_checkpoint > _CHECKPOINT_BYTES

    async def replay(self, apply: Callable[[JournalRecord], None]) -> None:
        """Give every record that is there to `apply`, oldest first."""
        async for data in self._log.batches(self._log.start_offset):
            for record in read_records(data):
                apply(decode(record.value or b""))
        self._since_checkpoint = self._log.size_bytes

    def add(self, record: JournalRecord) -> None:
        """Write the record soon."""
        # Settling is final, so all that is acknowledged within a few milliseconds is one record.
        if type(record) is Acked:
            self._settled += record.ranges
        else:
            self._pending.append(record)
        self.touch()

    def touch(self) -> None:
        """Have what the owner collects written soon."""
        if self._write_timer is None and not self.is_closed:
            loop = asyncio.get_running_loop()
            self._write_timer = loop.call_later(WRITE_SECONDS, self.write)

    def write(self) -> None:
        """Write what waits."""
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        if self.is_closed:
            return
        pending, self._pending = self._pending, []
        collected = self._collect()
        if collected is not None:
            pending.append(collected)
        if self._settled:
            pending.append(Acked(tuple(merge_ranges(self._settled))))
            self._settled = []
        if pending:
            try:
                self._append(pending)
            except StorageError:
                # A full disk. Nobody was promised anything: keep it and try again later.
                self._keep(pending)

    async def write_safely(self) -> None:
        """Write what waits, and return when it is on the medium; StorageError when it cannot be."""
        self.write()
        if (self._pending or self._settled) and not self.is_closed:
            raise StorageError(f"cannot write to {self._log.name}")
        await self._flusher.synced(self._log)

    def checkpoint(self, record: Checkpoint) -> None:
        """Write a checkpoint, which makes everything before it superfluous once it is safe."""
        self.write()
        at = self._log.end_offset
        try:
            self._append([record])
        except StorageError:
            return
        self._since_checkpoint = 0
        self._flusher.submit(self._log).add_done_callback(partial(self._let_go, at))

    def _let_go(self, at: int, safe: asyncio.Future[None]) -> None:
        """The checkpoint at that offset is on the medium: what is before it may leave it."""
        if not safe.cancelled() and safe.exception() is None and not self._log.retired:
            self._log.advance_start(at)

    def close(self, *, write: bool = True) -> None:
        """Write what waits, unless the queue is gone, and do nothing more."""
        if write:
            self.write()
            if self._sync_timer is not None:
                self._sync()
        self.is_closed = True
        for timer in (self._write_timer, self._sync_timer):
            if timer is not None:
                timer.cancel()

    def _keep(self, records: list[JournalRecord]) -> None:
        for record in records:
            if type(record) is Acked:
                self._settled += record.ranges
            else:
                self._pending.append(record)
        loop = asyncio.get_running_loop()
        self._write_timer = loop.call_later(SYNC_SECONDS, self.write)

    def _append(self, records: list[JournalRecord]) -> None:
        now_ms = self._clock.now_ms()
        batch = build_batch(((None, encode(record), ()) for record in records), timestamp_ms=now_ms)
        batches.stamp(batch, 0, self._log.end_offset, 0)
        self._log.append((batch,), (read_header(batch),), now_ms)
        self._since_checkpoint += len(batch)
        if self._sync_timer is None and not self.is_closed:
            loop = asyncio.get_running_loop()
            self._sync_timer = loop.call_later(SYNC_SECONDS, self._sync)

    def _sync(self) -> None:
        self._sync_timer = None
        self._flusher.submit(self._log).add_done_callback(_look_at)


def _look_at(waiter: asyncio.Future[None]) -> None:
    """A failed sync ends the process elsewhere; nobody here waits for it."""
    if not waiter.cancelled():
        waiter.exception()
