"""One producer id in one partition: its epoch, its last five batches, its open transaction.

Answers whether a batch comes next, was written before, or is out of order. What all producers of a
partition have in common (the first unstable offset, verification) is in `producers.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from penstock.errors import DuplicateSequence, OutOfOrderSequence
from penstock.model.batch import BatchHeader, add_sequence
from penstock.model.ids import NO_SEQUENCE
from penstock.model.producer import ProducerSnapshotEntry

REMEMBERED_BATCHES = 5  # as many as a producer may have in flight
NO_OFFSET = -1
NO_COORDINATOR_EPOCH = -1
_SEQUENCES = 0x7FFFFFFF  # sequences are counted modulo 2^31


class RememberedBatch(NamedTuple):
    """Enough of an accepted batch to recognise it when it is sent again."""

    base_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int


class ProducerState:
    """What a partition remembers of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_seen_ms",
        "next_sequence",
        "transaction_offset",
    )

    def __init__(self, epoch: int, now_ms: int) -> None:
        self.epoch = epoch
        self.next_sequence = 0
        self.batches: list[RememberedBatch] = []
        self.transaction_offset = NO_OFFSET  # first offset of the open transaction
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_seen_ms = now_ms

    def __repr__(self) -> str:
        return (
            f"ProducerState(epoch={self.epoch}, last_sequence={self.last_sequence}, "
            f"batches={len(self.batches)}, transaction_offset={self.transaction_offset})"
        )

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def check_duplicate(self, header: BatchHeader) -> None:
        """Raises `DuplicateSequence` with the first offset it got when the batch is remembered."""
        if header.producer_epoch != self.epoch or header.base_sequence == self.next_sequence:
            return
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.base_sequence == header.base_sequence and batch.last_sequence == last_sequence:
                raise DuplicateSequence(
                    f"sequences {header.base_sequence} to {last_sequence} of producer "
                    f"{header.producer_id} were already written",
                    batch.last_offset - batch.offset_delta,
                    batch.timestamp,
                )

    def check_sequence(self, header: BatchHeader) -> None:
        """Raises `OutOfOrderSequence` unless the batch comes next. A new epoch starts at 0."""
        expected = self.next_sequence if header.producer_epoch == self.epoch else 0
        if header.base_sequence != expected:
            raise OutOfOrderSequence(
                f"sequence {header.base_sequence} of producer {header.producer_id} epoch "
                f"{header.producer_epoch} is out of order: {expected} comes next"
            )

    def append(self, header: BatchHeader, now_ms: int) -> None:
        """The batch is in the log."""
        if header.producer_epoch > self.epoch:
            self.advance_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        first = header.base_sequence
        last = (first + delta) & _SEQUENCES if first >= 0 else first
        batches = self.batches
        batches.append(RememberedBatch(first, last, header.base_offset + delta, delta, now_ms))
        if len(batches) > REMEMBERED_BATCHES:
            del batches[0]
        self.next_sequence = (last + 1) & _SEQUENCES
        self.last_seen_ms = now_ms

    def advance_epoch(self, epoch: int) -> None:
        """A newer epoch starts at sequence 0 and shares no batch with the older one."""
        if epoch > self.epoch:
            self.epoch = epoch
            self.next_sequence = 0
            self.batches.clear()

    @property
    def is_incomplete(self) -> bool:
        """Whether the producer has written more batches than are remembered of it."""
        remembered = self.batches
        return 0 < len(remembered) < REMEMBERED_BATCHES and remembered[0].base_sequence > 0

    def recall(self, headers: Iterable[BatchHeader], now_ms: int) -> None:
        """Remember again batches of this producer that were found in the log."""
        known = {batch.last_offset for batch in self.batches}
        found = [
            RememberedBatch(
                header.base_sequence,
                header.last_sequence,
                header.last_offset,
                header.last_offset_delta,
                now_ms,
            )
            for header in headers
            if header.producer_epoch == self.epoch
            and not header.is_control
            and header.last_offset not in known
        ]
        self.batches = sorted(found + self.batches, key=lambda batch: batch.last_offset)
        del self.batches[:-REMEMBERED_BATCHES]

    def to_snapshot(self, producer_id: int) -> ProducerSnapshotEntry:
        """The last batch stands for all of them."""
        last = self.batches[-1] if self.batches else None
        return ProducerSnapshotEntry(
            producer_id,
            self.epoch,
            last.last_sequence if last else NO_SEQUENCE,
            last.last_offset if last else NO_OFFSET,
            last.offset_delta if last else 0,
            self.last_seen_ms,
            self.coordinator_epoch,
            self.transaction_offset,
        )

    @classmethod
    def from_snapshot(cls, entry: ProducerSnapshotEntry) -> ProducerState:
        _, epoch, last, last_offset, delta, timestamp, coordinator_epoch, transaction = entry
        state = cls(epoch, timestamp)
        state.coordinator_epoch = coordinator_epoch
        state.transaction_offset = transaction
        if last_offset != NO_OFFSET:
            base = (last - delta) & _SEQUENCES if last >= 0 else last
            state.batches.append(RememberedBatch(base, last, last_offset, delta, timestamp))
            state.next_sequence = add_sequence(last, 1)
        return state
