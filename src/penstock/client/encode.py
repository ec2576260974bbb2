"""Messages into record batches, for the home in this process.

A batch is cut off when it reaches `TARGET_BYTES`, or the topic's `max.message.bytes` if that is
less; a message that is larger by itself travels alone, for the topic to refuse.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from penstock.client.outgoing import Row
from penstock.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

TARGET_BYTES = 512 * 1024


class Producer(NamedTuple):
    """Who writes: nobody in particular, or a transaction."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_PRODUCER_EPOCH
    transactional: bool = False


NOBODY = Producer()


class EncodedBatch(NamedTuple):
    """A batch and how many of the rows are in it."""

    data: bytearray
    record_count: int


def encode_batches(
    rows: Iterable[Row],
    now_ms: int,
    *,
    max_bytes: int = TARGET_BYTES,
    producer: Producer = NOBODY,
    sequence: int = NO_SEQUENCE,
) -> Iterator[EncodedBatch]:
    """The rows, in order, as batches. The partition of a row is not looked at."""
    limit = min(max_bytes, TARGET_BYTES)
    builder = append = None
    count = 0
    for key, value, headers, timestamp_ms, _ in rows:
        if timestamp_ms < 0:
            timestamp_ms = now_ms
        if (
            append is not None
            and append(count, timestamp_ms, key, value, list(headers)) is not None
        ):
            count += 1
            continue
        if builder is not None:  # it is full
            yield EncodedBatch(builder.build(), count)
            sequence = sequence + count if sequence >= 0 else sequence
        builder = _builder(producer, sequence, limit)
        append = builder.append
        append(0, timestamp_ms, key, value, list(headers))
        count = 1
    if builder is not None:
        yield EncodedBatch(builder.build(), count)


def _builder(producer: Producer, sequence: int, limit: int) -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(
        2,
        0,
        int(producer.transactional),
        producer.producer_id,
        producer.epoch,
        sequence,
        limit,
    )
