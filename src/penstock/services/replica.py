"""One partition as this broker holds it: its log, its producers, and how far readers may see.

    start_offset <= last_stable_offset <= high_watermark <= end_offset

A record is safe when the high watermark has passed it: with `durability=fsync` that is when its
bytes are on the medium, with `durability=os` when the kernel has them. Nobody reads it and no
producer is answered before that. With one replica the in-sync set is this broker; with more, the
watermark is the minimum over the set, and this is the only place that moves it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from penstock.errors import (
    DuplicateSequence,
    FencedLeaderEpoch,
    NotEnoughReplicas,
    OffsetOutOfRange,
    StorageError,
    UnknownLeaderEpoch,
)
from penstock.log.chunk import LogChunk
from penstock.log.flusher import Flusher
from penstock.log.partition_log import PartitionLog
from penstock.machines.admission import admit
from penstock.machines.producers import NO_GUARD, ProducerStates
from penstock.model import batch as batches
from penstock.model.batch import BatchHeader, read_header
from penstock.model.records import build_marker, read_marker
from penstock.model.topic_config import TopicSettings
from penstock.services.recall import recall_batches

_logger = logging.getLogger("penstock")

__all__ = ["NO_GUARD", "Appended", "Replica"]


class Appended(NamedTuple):
    """Where a batch went; `end_offset` is what must become safe before it is acknowledged."""

    base_offset: int
    end_offset: int
    append_time_ms: int  # -1 unless the topic stamps records itself


class Replica:
    """The leader of one partition. Everything runs on the event loop, only the disk elsewhere."""

    __slots__ = (
        "_flusher",
        "_leads",
        "_waiting",
        "_watchers",
        "bytes_in",
        "bytes_out",
        "high_watermark",
        "in_sync_count",
        "leader_epoch",
        "log",
        "messages_in",
        "messages_out",
        "partition",
        "producers",
        "replica_count",
        "settings",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        log: PartitionLog,
        flusher: Flusher,
        settings: TopicSettings,
        leader_epoch: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.log = log
        self.settings = settings
        self.leader_epoch = leader_epoch
        self.producers = ProducerStates()
        self.high_watermark = log.start_offset
        self.in_sync_count = 1
        self.replica_count = 1
        self.messages_in = 0
        self.messages_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self._flusher = flusher
        self._leads = False  # whether this leader has written anything yet
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._watchers: list[asyncio.Event] = []

    def __repr__(self) -> str:
        log = self.log
        return (
            f"<Replica {self.topic}-{self.partition} {log.start_offset}"
            f"..{self.last_stable_offset}..{self.high_watermark}..{log.end_offset}>"
        )

    async def load(self, now_ms: int) -> None:
        """Rebuild what the producers did from the newest snapshot and the batches after it."""
        snapshot = self.log.newest_producer_snapshot()
        position = self.log.start_offset
        if snapshot is not None:
            position = max(position, snapshot[0])
            self.producers.restore(snapshot[1])
            await recall_batches(self.log, self.producers, position, now_ms)
        if position < self.log.end_offset:
            async for data in self.log.batches(position):
                self._replay(data, now_ms)
        await self._flusher.synced(self.log)
        self.advance(self.log.end_offset)

    def _replay(self, data: memoryview, now_ms: int) -> None:
        header = read_header(data)
        if header.producer_id < 0:
            return
        if not header.is_control:
            self.producers.apply(header, now_ms)
            return
        if header.record_count == 0:  # a marker that compaction has emptied
            return
        committed, coordinator_epoch = read_marker(data)
        aborted = self.producers.apply_marker(header, committed, coordinator_epoch, now_ms)
        if aborted is not None:
            self.log.append_aborted(*aborted)

    # --- writing ----------------------------------------------------------------------------------

    def append(
        self, records: memoryview, now_ms: int, *, acks: int = -1, guard: int = NO_GUARD
    ) -> Appended:
        """Append a client's batch. It is not safe yet: await `safe(appended.end_offset)`."""
        if acks == -1:
            self._check_in_sync()
        header = admit(records, self.settings, now_ms)
        try:
            if header.producer_id >= 0:
                self.producers.check(header, guard=guard)
        except DuplicateSequence as again:
            if again.base_offset < 0:
                raise
            end_offset = again.base_offset + header.last_offset_delta + 1
            return Appended(again.base_offset, end_offset, self._append_time(again.append_time_ms))
        if self.settings.log_append_time:
            batches.set_log_append_time(records, 0, header, now_ms)
        return self._append(records, now_ms)

    def _check_in_sync(self) -> None:
        """More replicas than the partition has cannot be asked for: all of them are enough."""
        needed = min(self.settings.min_insync_replicas, self.replica_count)
        if self.in_sync_count < needed:
            raise NotEnoughReplicas(
                f"{self.in_sync_count} replicas in sync, min.insync.replicas asks for {needed}"
            )

    def append_own(self, records: bytearray, now_ms: int) -> Appended:
        """Append a batch that the broker made itself: the state of groups and transactions."""
        header = read_header(records)
        if header.producer_id >= 0:
            self.producers.check(header, client=False)
        return self._append(memoryview(records), now_ms)

    async def write_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
    ) -> None:
        """End a producer's transaction in this partition; returns when the marker is safe."""
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        marker = build_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=now_ms,
        )
        header, rolled = self._write(memoryview(marker), now_ms)
        aborted = self.producers.apply_marker(header, commit, coordinator_epoch, now_ms)
        if aborted is not None:
            self.log.append_aborted(*aborted)
        self._written(rolled)
        await self.safe(header.next_offset)

    def _append(self, records: memoryview, now_ms: int) -> Appended:
        header, rolled = self._write(records, now_ms)
        if header.producer_id >= 0:
            self.producers.apply(header, now_ms)
        self._written(rolled)
        self.messages_in += header.record_count
        self.bytes_in += len(records)
        append_time_ms = now_ms if self.settings.log_append_time else -1
        return Appended(header.base_offset, header.next_offset, append_time_ms)

    def _write(self, records: memoryview, now_ms: int) -> tuple[BatchHeader, bool]:
        log = self.log
        batches.stamp(records, 0, log.end_offset, self.leader_epoch)
        header = read_header(records)
        rolled = log.append((records,), (header,), now_ms)
        if not self._leads:  # the first batch of this leader begins its epoch
            log.assign_epoch(self.leader_epoch, header.base_offset)
            self._leads = True
        return header, rolled

    def _written(self, rolled: bool) -> None:
        """After every append, whoever waits for it or not: have it made safe."""
        if rolled:
            try:
                self.log.write_producer_snapshot(self.producers.snapshot())
            except StorageError as failure:  # the next start replays a little more, that is all
                _logger.warning("no snapshot of the producers of %s: %s", self.log.name, failure)
        synced = self._flusher.submit(self.log)
        if synced.done():
            self._synced(synced)
        else:
            synced.add_done_callback(self._synced)

    def _append_time(self, append_time_ms: int) -> int:
        return append_time_ms if self.settings.log_append_time else -1

    # --- becoming safe ----------------------------------------------------------------------------

    async def safe(self, end_offset: int) -> None:
        """Return when everything below `end_offset` is safe. This is where a message is kept."""
        waiter = self.when_safe(end_offset)
        if waiter is not None:
            await waiter

    def when_safe(self, end_offset: int) -> asyncio.Future[None] | None:
        """`safe` as a future; None when there is nothing to wait for."""
        if self.high_watermark >= end_offset:
            return None
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self._flusher.failure is not None:  # nothing becomes safe any more
            waiter.set_exception(StorageError(f"a sync has failed: {self._flusher.failure}"))
        else:
            self._waiting.append((end_offset, waiter))
        return waiter

    def _synced(self, synced: asyncio.Future[None]) -> None:
        """A round of the flusher is over."""
        failure = synced.exception()
        if failure is not None:
            waiting, self._waiting = self._waiting, []
            for _, waiter in waiting:
                if not waiter.done():
                    waiter.set_exception(failure)
        elif self.settings.durability == "fsync":
            self.advance(self.log.synced_offset)
        else:
            self.advance(self.log.end_offset)

    def advance(self, safe_offset: int) -> None:
        """Everything below `safe_offset` is safe: writers are answered, readers may see it."""
        if safe_offset <= self.high_watermark:
            return
        self.high_watermark = safe_offset
        self.producers.advance_high_watermark(safe_offset)
        waiting, self._waiting = self._waiting, []
        for entry in waiting:
            if entry[0] > safe_offset:
                self._waiting.append(entry)
            elif not entry[1].done():  # else its request was given up
                entry[1].set_result(None)
        self.wake()

    def abandon(self) -> None:
        """The partition is deleted: nobody need wait for the disk, and readers look elsewhere."""
        waiting, self._waiting = self._waiting, []
        for _, waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)
        self.wake()

    # --- reading ----------------------------------------------------------------------------------

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction is decided."""
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    def visible_end(self, read_committed: bool) -> int:
        """Where a reader of this isolation must stop."""
        return self.last_stable_offset if read_committed else self.high_watermark

    async def read(
        self, offset: int, max_bytes: int, *, read_committed: bool, min_one: bool
    ) -> LogChunk:
        """Whole batches from `offset` on, as far as the reader may see."""
        log = self.log
        if not log.start_offset <= offset <= log.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in {log.start_offset}..{log.end_offset} of {log.name}"
            )
        upper = self.visible_end(read_committed)
        chunk = log.try_read(offset, max_bytes, upper_offset=upper, min_one=min_one)
        if chunk is None:
            chunk = await log.read(offset, max_bytes, upper_offset=upper, min_one=min_one)
        self.bytes_out += len(chunk.data)
        self.messages_out += chunk.record_count
        return chunk

    def check_epoch(self, epoch: int) -> None:
        """Refuse a client that knows an older or newer leader than there is; -1 knows none."""
        if epoch < 0 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"epoch {epoch} is over; it is {self.leader_epoch} now")
        raise UnknownLeaderEpoch(f"epoch {epoch} has not begun; it is {self.leader_epoch} now")

    def delete_before(self, offset: int) -> int:
        """Make `offset` the log's start (-1: the high watermark); returns the new start."""
        if offset == -1:
            offset = self.high_watermark
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRange(f"cannot delete up to {offset}: {self!r}")
        if offset > self.log.start_offset:
            self.log.advance_start(offset)
            self.wake()
        return self.log.start_offset

    # --- waiting for more -------------------------------------------------------------------------

    def watch(self, event: asyncio.Event) -> None:
        """Set `event` whenever readers may see more, or the partition is gone."""
        self._watchers.append(event)

    def unwatch(self, event: asyncio.Event) -> None:
        self._watchers.remove(event)

    def wake(self) -> None:
        for event in self._watchers:
            event.set()
