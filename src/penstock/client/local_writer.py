"""From the callers' threads into the log: how the home in this process publishes.

One message at a time: callers append to a deque and wake the loop once per burst; the loop takes
everything that is there, puts what goes to the same partition into one batch, and appends it.
While the disk syncs, the next burst gathers. Many at once: the caller's thread makes the batches,
the loop only appends them.

    callers ──▶ deque ──▶ by partition ──▶ batch ──▶ Replica.append ──▶ Replica.safe ──▶ receipts
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from penstock.client.encode import EncodedBatch, encode_batches
from penstock.client.errors import (
    Closed,
    InvalidArgument,
    PenstockError,
    of_broker_error,
)
from penstock.client.home import WhenWritten
from penstock.client.message import Receipt
from penstock.client.outgoing import Outgoing, Row
from penstock.client.partitioner import Partitioner, checked
from penstock.client.receipts import WrittenBatch
from penstock.client.sender import settle_all
from penstock.errors import BrokerError, InvalidRecord, InvalidTopicName
from penstock.model.topic import Topic, is_internal
from penstock.runtime.clock import Clock
from penstock.services.partitions import Partitions
from penstock.services.replica import Replica
from penstock.services.topics import Topics

_MOST_AT_ONCE = 5_000  # messages of one burst; then the loop does other things

Placed = tuple[int, EncodedBatch, Sequence[int]]  # partition, batch, which rows are in it


class LocalWriter:
    """Appends what is published. `enqueue` and `place` are for any thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        topics: Topics,
        partitions: Partitions,
        clock: Clock,
        partitioner: Partitioner,
    ) -> None:
        self._loop = loop
        self._topics = topics
        self._partitions = partitions
        self._clock = clock
        self._partitioner = partitioner
        self._outbox: deque[Outgoing] = deque()
        self._is_awake = False
        # Topics that are being created or opened: what goes to them waits here, in order.
        self._opening: dict[str, list[Outgoing]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._turn = asyncio.Lock()  # of those who write many at once, in the order of their coming

    def __repr__(self) -> str:
        return f"<LocalWriter {len(self._outbox)} waiting>"

    # --- one at a time ----------------------------------------------------------------------------

    def enqueue(self, outgoing: Outgoing) -> None:
        """From any thread. The loop sets `_is_awake` back before it looks into the deque, so what
        is appended when it is set will be seen, and no lock is needed."""
        self._outbox.append(outgoing)
        if self._is_over:  # looked at after the append, and set before the deque is emptied
            self.end()
        elif not self._is_awake:
            self._is_awake = True
            with contextlib.suppress(RuntimeError):  # it closed this moment: `end` comes next
                self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._is_awake = False
        outbox = self._outbox
        count = min(len(outbox), _MOST_AT_ONCE)
        self._route([outbox.popleft() for _ in range(count)])
        if outbox and not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._drain)

    def _route(self, burst: Sequence[Outgoing]) -> None:
        groups: dict[tuple[str, int], list[Outgoing]] = {}
        if self._is_over:
            _give_back(burst)
            return
        for outgoing in burst:
            name = outgoing.topic
            waiting = self._opening.get(name)
            if waiting is not None:
                waiting.append(outgoing)
                continue
            topic = self._topics.find(name)
            if topic is None:
                self._opening[name] = [outgoing]
                self._spawn(self._open_topic(name))
                continue
            try:
                partition = self.choose(topic, outgoing.partition, outgoing.key)
            except PenstockError as failure:
                outgoing.settle(None, failure)
                continue
            outgoing.partition = partition
            groups.setdefault((name, partition), []).append(outgoing)
        for (name, partition), group in groups.items():
            replica = self._partitions.find(name, partition)
            if replica is None:
                if name in self._opening:
                    self._opening[name] += group
                else:
                    self._opening[name] = group
                    self._spawn(self._open_partition(name, partition))
            else:
                self._append(replica, group)
        for name in {name for name, _ in groups}:
            self._partitioner.new_batch(name)

    def choose(self, topic: Topic, partition: int, key: bytes | None) -> int:
        """The partition of a message that may name its own."""
        count = topic.partition_count
        if partition < 0:
            try:
                partition = self._partitioner.partition(topic.name, key, count)
            except Exception as failure:  # a user's function
                raise InvalidArgument(f"the partitioner failed: {failure!r}") from failure
        return checked(partition, topic.name, count)

    async def _open_topic(self, name: str) -> None:
        try:
            await self.ensure(name)
        except BrokerError as failure:
            self._refuse(self._opening.pop(name, ()), failure)
        else:
            self._route(self._opening.pop(name, ()))

    async def _open_partition(self, name: str, partition: int) -> None:
        try:
            await self._partitions.replica(name, partition)
        except BrokerError as failure:
            self._refuse(self._opening.pop(name, ()), failure)
        else:
            self._route(self._opening.pop(name, ()))

    async def ensure(self, name: str) -> Topic:
        """The topic, created if need be and allowed."""
        if is_internal(name):
            raise InvalidTopicName(f"{name} is the broker's own: clients may only read it")
        return self._topics.find(name) or await self._topics.auto_create(name)

    def _append(self, replica: Replica, group: Sequence[Outgoing]) -> None:
        now_ms = self._clock.now_ms()
        written: list[tuple[int, Sequence[Outgoing]]] = []
        end_offset = at = 0
        for batch in encode_batches(
            ((o.key, o.value, o.headers, o.timestamp_ms, 0) for o in group),
            now_ms,
            max_bytes=replica.settings.max_message_bytes,
        ):
            part = group[at : at + batch.record_count]
            at += batch.record_count
            try:
                appended = replica.append(memoryview(batch.data), now_ms)
            except InvalidRecord as failure:
                if len(part) == 1:
                    self._refuse(part, failure)
                else:  # one of them is wrong: the others must not suffer for it
                    for outgoing in part:
                        self._append(replica, [outgoing])
                continue
            except BrokerError as failure:
                self._refuse(part, failure)
                continue
            written.append((appended.base_offset, part))
            end_offset = appended.end_offset
        if written:
            self._spawn(self._settle(replica, end_offset, written, now_ms))

    async def _settle(
        self,
        replica: Replica,
        end_offset: int,
        written: Sequence[tuple[int, Sequence[Outgoing]]],
        now_ms: int,
    ) -> None:
        try:
            await replica.safe(end_offset)
        except BrokerError as failure:
            for _, part in written:
                self._refuse(part, failure)
            return
        except asyncio.CancelledError:
            for _, part in written:
                _give_back(part)
            raise
        topic, partition = replica.topic, replica.partition
        for base_offset, part in written:
            settle_all(
                part,
                [
                    Receipt(
                        topic,
                        partition,
                        offset,
                        outgoing.timestamp_ms if outgoing.timestamp_ms >= 0 else now_ms,
                        outgoing.message_id,
                    )
                    for offset, outgoing in enumerate(part, base_offset)
                ],
            )

    def _refuse(self, group: Sequence[Outgoing], failure: BrokerError) -> None:
        refusal = of_broker_error(failure)
        for outgoing in group:
            outgoing.settle(None, refusal)

    # --- many at once -----------------------------------------------------------------------------

    def place(self, topic: Topic, rows: Sequence[Row]) -> list[Placed]:
        """In the caller's thread: the rows as batches, each for one partition."""
        now_ms = self._clock.now_ms()
        max_bytes = self._topics.settings(topic.name).max_message_bytes
        if all(row[0] is None and row[4] < 0 for row in rows):
            return self._place_in_batches(topic, rows, now_ms, max_bytes)
        by_partition: dict[int, list[int]] = {}
        for index, row in enumerate(rows):
            partition = self.choose(topic, row[4], row[0])
            by_partition.setdefault(partition, []).append(index)
        placed: list[Placed] = []
        for partition, indexes in by_partition.items():
            at = 0
            chosen = [rows[index] for index in indexes]
            for batch in encode_batches(chosen, now_ms, max_bytes=max_bytes):
                placed.append((partition, batch, indexes[at : at + batch.record_count]))
                at += batch.record_count
        return placed

    def _place_in_batches(
        self, topic: Topic, rows: Sequence[Row], now_ms: int, max_bytes: int
    ) -> list[Placed]:
        """No row says where it wants to go: each batch may go where it likes."""
        placed: list[Placed] = []
        at = 0
        for batch in encode_batches(rows, now_ms, max_bytes=max_bytes):
            partition = self.choose(topic, -1, None)
            placed.append((partition, batch, range(at, at + batch.record_count)))
            at += batch.record_count
            self._partitioner.new_batch(topic.name)
        return placed

    def append_placed(self, topic: str, placed: Sequence[Placed], done: WhenWritten) -> None:
        """On the loop: append batches that `place` made; `done` when all of them are safe."""
        if self._is_over:
            done(None, _closed())
            return
        self._spawn(self._append_placed(topic, placed, done))

    async def _append_placed(self, topic: str, placed: Sequence[Placed], done: WhenWritten) -> None:
        now_ms = self._clock.now_ms()
        written: list[WrittenBatch] = []
        ends: dict[Replica, int] = {}
        try:
            async with self._turn:
                while topic in self._opening:  # what was published before is still waiting
                    await asyncio.sleep(0.001)
                for partition, batch, indexes in placed:
                    found = self._partitions.find(topic, partition)
                    replica = found or await self._partitions.replica(topic, partition)
                    appended = replica.append(memoryview(batch.data), now_ms)
                    ends[replica] = appended.end_offset
                    written.append(
                        WrittenBatch(topic, partition, appended.base_offset, indexes, now_ms)
                    )
                    await asyncio.sleep(0)  # half a megabyte was written: others have a turn
            for replica, end_offset in ends.items():
                await replica.safe(end_offset)
        except BrokerError as failure:
            done(None, of_broker_error(failure))
        except asyncio.CancelledError:
            done(None, _closed())
            raise
        else:
            done(written, None)

    # --- the end ----------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Return when everything that was enqueued has been settled."""
        while self._outbox or self._opening or self._tasks:
            if self._tasks:
                await asyncio.wait(set(self._tasks))
            else:
                await asyncio.sleep(0)

    def fail_all(self, why: PenstockError) -> None:
        """Nothing can be written any more: tell all who wait."""
        waiting = [outgoing for group in self._opening.values() for outgoing in group]
        self._opening.clear()
        with contextlib.suppress(IndexError):  # empty; others may be at it in their threads
            while True:
                waiting.append(self._outbox.popleft())
        for outgoing in waiting:
            outgoing.settle(None, why)

    def end(self) -> None:
        """Take nothing any more; who came too late is told."""
        self._is_over = True
        self.fail_all(_closed())


def _closed() -> Closed:
    return Closed("it was closed before this was known to be written")


def _give_back(group: Sequence[Outgoing]) -> None:
    for outgoing in group:
        outgoing.settle(None, _closed())
