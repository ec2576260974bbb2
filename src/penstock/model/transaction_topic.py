"""The bytes of `__transaction_state`: one record per transactional id, holding its whole state.

Kafka's TransactionLogKey version 0 and TransactionLogValue versions 0 and 1; we write version 1,
as Kafka does since its transactions have versions (KIP-890), and read both.

    key    i16 version 0 | string transactional id
    value  i16 version
           i64 producer id
           i16 producer epoch
           i32 time-out, ms
           i8  status
           array (null when Empty) of partitions by topic: string topic | array of i32
           i64 last update, ms
           i64 start of the transaction, ms; -1 none
           version 1: tagged fields  0 i64 previous producer id   1 i64 next producer id
                                     2 i16 transaction version of the client; left out at default

A record without a value forgets the transactional id.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock.errors import CorruptRecord
from penstock.model.fields import FieldReader, FieldWriter
from penstock.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

KEY_VERSION = 0
VALUE_VERSION = 1
_I64 = struct.Struct(">q")
_I16 = struct.Struct(">h")


class TransactionStatus(IntEnum):
    """Where a transaction is; the number is what the record holds."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that Kafka's tools show: `PrepareCommit`."""
        return self.name.title().replace("_", "")


class TransactionChanged(NamedTuple):
    """The state of a transactional id after a step.

    `last_epoch` is the epoch before the last bump, if the producer itself asked for the bump: it
    recognises a repeated InitProducerId. Kafka's record has no place for it, so it does not survive
    a restart; a repeat from before the restart is then fenced, which is safe.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: TransactionStatus
    partitions: tuple[TopicPartition, ...] = ()
    updated_at_ms: int = NO_TIMESTAMP
    started_at_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0
    last_epoch: int = NO_PRODUCER_EPOCH


class TransactionForgotten(NamedTuple):
    """The transactional id was idle for too long."""


def encode_key(transactional_id: str) -> bytes:
    return FieldWriter().i16(KEY_VERSION).string(transactional_id).done()


def decode_key(data: bytes | memoryview) -> str | None:
    """The transactional id; None for a kind of record that a newer broker may have written."""
    reader = FieldReader(data)
    if reader.i16() != KEY_VERSION:
        return None
    return reader.string()


def encode_value(state: TransactionChanged, version: int = VALUE_VERSION) -> bytes:
    flexible = version >= 1
    # The version itself is never in the flexible dialect, and i16 is the same in both.
    out = FieldWriter(flexible=flexible).i16(version)
    out.i64(state.producer_id).i16(state.producer_epoch)
    out.i32(state.timeout_ms).i8(state.status)
    if state.status is TransactionStatus.EMPTY:
        assert not state.partitions, "an empty transaction has no partitions"
        out.uvarint(0) if flexible else out.i32(-1)
    else:
        out.array(_by_topic(state.partitions), _write_topic)
    out.i64(state.updated_at_ms).i64(state.started_at_ms)
    if flexible:
        out.tags(_tagged(state))
    return out.done()


def decode_value(data: bytes | memoryview) -> TransactionChanged:
    version = _I16.unpack_from(data)[0] if len(data) >= 2 else -1
    if version not in (0, 1):
        raise CorruptRecord(f"a transaction record of version {version}")
    reader = FieldReader(data, flexible=version >= 1)
    reader.i16()
    producer_id, producer_epoch = reader.i64(), reader.i16()
    timeout_ms, status = reader.i32(), reader.i8()
    if not 0 <= status < len(TransactionStatus):
        raise CorruptRecord(f"a transaction of unknown status {status}")
    topics = reader.array(_read_topic)
    updated_at_ms, started_at_ms = reader.i64(), reader.i64()
    tags = reader.tags() if version >= 1 else {}
    return TransactionChanged(
        producer_id,
        producer_epoch,
        timeout_ms,
        TransactionStatus(status),
        tuple(partition for topic in topics for partition in topic),
        updated_at_ms,
        started_at_ms,
        _tag(tags, 0, _I64, NO_PRODUCER_ID),
        _tag(tags, 1, _I64, NO_PRODUCER_ID),
        _tag(tags, 2, _I16, 0),
    )


def _by_topic(partitions: Sequence[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def _write_topic(out: FieldWriter, item: tuple[str, list[int]]) -> None:
    topic, partitions = item
    out.string(topic).i32s(partitions)
    if out.flexible:
        out.tags()


def _read_topic(reader: FieldReader) -> list[TopicPartition]:
    topic = reader.string()
    partitions = [TopicPartition(topic, partition) for partition in reader.i32s()]
    if reader.flexible:
        reader.tags()
    return partitions


def _tagged(state: TransactionChanged) -> list[tuple[int, bytes]]:
    tags = []
    if state.previous_producer_id != NO_PRODUCER_ID:
        tags.append((0, _I64.pack(state.previous_producer_id)))
    if state.next_producer_id != NO_PRODUCER_ID:
        tags.append((1, _I64.pack(state.next_producer_id)))
    if state.client_version:
        tags.append((2, _I16.pack(state.client_version)))
    return tags


def _tag(tags: dict[int, bytes], tag: int, layout: struct.Struct, default: int) -> int:
    data = tags.get(tag)
    if data is None:
        return default
    if len(data) != layout.size:
        raise CorruptRecord(f"tagged field {tag} of a transaction record has {len(data)} bytes")
    return int(layout.unpack(data)[0])
