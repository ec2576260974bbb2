"""An internal topic used as a log of state: what groups and transactions remember.

`append` returns when the records are durable; they are one batch, so a crash keeps all or none.
Recovery is `replay`. Compaction of the topic keeps the last record of each key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from penstock.model.batch import BatchHeader, read_header
from penstock.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from penstock.model.records import Record, build_batch, read_marker, read_records
from penstock.runtime.clock import Clock
from penstock.services.partitions import Partitions
from penstock.services.topics import Topics


class ReplayedBatch(NamedTuple):
    """One batch of a journal; `marker` tells how a transaction ended, for control batches."""

    header: BatchHeader
    records: list[Record]
    marker: bool | None


def java_hash(text: str) -> int:
    """`String.hashCode()` of Java: it decides which partition coordinates a group."""
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


class Journal:
    """The partitions of one internal topic, created when first written."""

    def __init__(
        self, topic: str, partition_count: int, topics: Topics, partitions: Partitions, clock: Clock
    ) -> None:
        self.topic = topic
        self._partition_count = partition_count
        self._topics = topics
        self._partitions = partitions
        self._clock = clock

    @property
    def partition_count(self) -> int:
        """As the topic has it once it exists; else as it will be created."""
        topic = self._topics.find(self.topic)
        return topic.partition_count if topic is not None else self._partition_count

    def partition_for(self, key: str) -> int:
        # As Kafka does it, whose tools must find a group where they look: the lowest number, which
        # has no absolute value in Java, counts as zero.
        number = java_hash(key)
        return 0 if number == -(1 << 31) else abs(number) % self.partition_count

    async def ensure(self) -> None:
        """Create the topic if this is the first time it is needed."""
        await self._topics.ensure_internal(self.topic)

    async def append(
        self,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        *,
        producer: tuple[int, int] | None = None,
        base_sequence: int = -1,
        wait: bool = True,
    ) -> None:
        """Write the records as one batch; returns when they are durable.

        Without `wait` it returns when they are written. They are durable before, or together with,
        anything that is written to the partition after them.
        """
        await self.ensure()
        replica = await self._partitions.replica(self.topic, partition)
        now_ms = self._clock.now_ms()
        producer_id, producer_epoch = producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        batch = build_batch(
            ((key, value, ()) for key, value in records),
            timestamp_ms=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=producer is not None,
        )
        appended = replica.append_own(batch, now_ms)
        if wait:
            await replica.safe(appended.end_offset)

    async def replay(self, partition: int) -> AsyncIterator[ReplayedBatch]:
        """Everything the partition holds, oldest first."""
        if self._topics.find(self.topic) is None:
            return
        replica = await self._partitions.replica(self.topic, partition)
        async for data in replica.log.batches(replica.log.start_offset):
            header = read_header(data)
            if not header.is_control:
                yield ReplayedBatch(header, list(read_records(data)), None)
            elif header.record_count:
                committed, _ = read_marker(data)
                yield ReplayedBatch(header, [], committed)

    async def partitions_with_data(self) -> list[int]:
        """The partitions that a restart must replay."""
        topic = self._topics.find(self.topic)
        if topic is None:
            return []
        return [
            partition
            for partition in range(topic.partition_count)
            if self._partitions.has_data(topic, partition)
        ]
