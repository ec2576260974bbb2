"""A journal in memory that behaves as the real one: one batch an append, replay in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from penstock.errors import StorageError
from penstock.model.batch import BatchHeader, read_header, stamp
from penstock.model.records import Record, build_batch, build_marker, read_marker, read_records


class ReplayedBatch(NamedTuple):
    header: BatchHeader
    records: list[Record]
    marker: bool | None


class MemoryJournal:
    """Batches by partition. `fail` makes appends raise; `gate` holds them back while it is set."""

    def __init__(self, partition_count: int = 50) -> None:
        self.partition_count = partition_count
        self.batches: dict[int, list[bytearray]] = {}
        self.appends = 0
        self.fail = False
        self.gate: asyncio.Event | None = None
        self._ends: dict[int, int] = {}

    def partition_for(self, key: str) -> int:
        return sum(key.encode()) % self.partition_count

    async def append(
        self,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        *,
        producer: tuple[int, int] | None = None,
        base_sequence: int = -1,
        wait: bool = True,
    ) -> None:
        if self.fail:
            raise StorageError("no space left on device")
        producer_id, producer_epoch = producer or (-1, -1)
        batch = build_batch(
            ((key, value, ()) for key, value in records),
            timestamp_ms=1_000,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=producer is not None,
        )
        self._write(partition, batch)
        self.appends += 1
        if not wait:
            return
        if self.gate is not None:
            await self.gate.wait()
        else:
            await asyncio.sleep(0)  # a real append lets others run before it is durable

    def mark(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """End a producer's transaction in a partition."""
        marker = build_marker(
            producer_id=producer_id,
            producer_epoch=0,
            commit=commit,
            coordinator_epoch=0,
            timestamp_ms=1_000,
        )
        self._write(partition, marker)

    async def replay(self, partition: int) -> AsyncIterator[ReplayedBatch]:
        for batch in self.batches.get(partition, []):
            header = read_header(batch)
            if header.is_control:
                yield ReplayedBatch(header, [], read_marker(batch)[0])
            else:
                yield ReplayedBatch(header, list(read_records(batch)), None)

    async def partitions_with_data(self) -> list[int]:
        return sorted(self.batches)

    def _write(self, partition: int, batch: bytearray) -> None:
        end = self._ends.get(partition, 0)
        stamp(batch, 0, end, 0)
        self._ends[partition] = read_header(batch).next_offset
        self.batches.setdefault(partition, []).append(batch)
