"""What a partition remembers of producers and their transactions, as kept in its files."""

from __future__ import annotations

from typing import NamedTuple

NO_OFFSET = -1


class ProducerSnapshotEntry(NamedTuple):
    """One producer in a `.snapshot` file, field by field as Kafka writes it.

    Only the last batch is kept: after a restart a producer's duplicates are recognised for that
    batch and those replayed behind the snapshot. `last_offset` is that of the last data batch;
    with `offset_delta` it gives the batch's first. `txn_first_offset` is -1 outside a transaction.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    txn_first_offset: int = NO_OFFSET


class AbortedTransaction(NamedTuple):
    """One entry of a `.txnindex` file.

    Records of `producer_id` from `first_offset` up to the abort marker at `last_offset` must not be
    shown to a reader of committed data. `last_stable_offset` is the partition's right after the
    marker was written: no transaction that began before it is open any more.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int
