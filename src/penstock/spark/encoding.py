"""Arrow rows to record batches, by topic and partition, ready to be sent or staged.

A batch is built without a producer: whoever sends it writes producer, epoch, sequence and the
transactional flag into its header and mends the checksum, which touches the bytes once at memory
speed. That is what lets executors encode and the driver commit.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from crc32c import crc32c

from penstock.spark.cluster import Cluster, TopicPartition
from penstock.spark.errors import SparkConnectorError
from penstock.spark.partitioner import choose

BATCH_BYTES = 512 * 1024  # of records before compression, unless a topic takes only less
DEFAULT_LARGEST = 1_048_588  # max.message.bytes, where we may not ask for it
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
NO_LIMIT = 1 << 30
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT, _ATTRIBUTES_AT, _CRC_AT, _COUNT_AT = 43, 21, 17, 57
_TRANSACTIONAL = 0x10


class Encoded(NamedTuple):
    """One record batch and where it belongs."""

    partition: TopicPartition
    records: bytes
    rows: int


class Encoder:
    """Collects rows of one task; hands out batches as they fill."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str | None,
        codec: str = "none",
        batch_bytes: int | None = None,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._batch_bytes = batch_bytes or BATCH_BYTES
        self._codec = CODECS[codec]
        self._counts: dict[str, int] = {}
        self._builders: dict[TopicPartition, tuple[Any, int]] = {}
        self._turn = time.monotonic_ns() // 1000
        self.rows = 0

    def add(self, rows: pa.RecordBatch) -> Iterator[Encoded]:
        """Take rows in; batches that are full come out."""
        self._turn += 1
        if not rows.num_rows:
            return
        names = rows.schema.names
        for topic, part in self._by_topic(rows):
            count = self._partition_count(topic)
            keys = _binary(part, "key") if "key" in names else None
            given = part.column("partition") if "partition" in names else None
            chosen = choose(keys, given, part.num_rows, count, self._turn)
            if given is not None and (chosen.min() < 0 or chosen.max() >= count):
                raise SparkConnectorError(
                    f"partition {int(chosen.max())} of topic {topic} does not exist: it has {count}"
                )
            order = np.argsort(chosen, kind="stable")
            sorted_rows = part.take(pa.array(order))
            edges: Any = np.searchsorted(chosen[order], np.arange(count + 1))
            for partition in range(count):
                low, high = int(edges[partition]), int(edges[partition + 1])
                if low < high:
                    yield from self._fill(
                        TopicPartition(topic, partition), sorted_rows.slice(low, high - low)
                    )

    def finish(self) -> Iterator[Encoded]:
        """What is left."""
        for partition in sorted(self._builders):
            yield self._close(partition)

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic is not None:
            yield self._topic, rows
            return
        topics = rows.column("topic")
        if topics.null_count:
            raise SparkConnectorError(
                "null topic present in the data; use the option 'topic' to name one for all rows"
            )
        for topic in pc.unique(topics).to_pylist():
            yield topic, rows.filter(pc.equal(topics, topic))

    def _partition_count(self, topic: str) -> int:
        if topic not in self._counts:
            found = self._cluster.topics([topic]).get(topic)
            if not found:
                # As a producer does: let the broker create it, if it creates topics by itself.
                self._cluster.create_topic(topic, -1, {})
                found = self._cluster.topics([topic]).get(topic) or [0]
            self._counts[topic] = len(found)
        return self._counts[topic]

    def _fill(self, partition: TopicPartition, rows: pa.RecordBatch) -> Iterator[Encoded]:
        now = time.time_ns() // 1_000_000
        names = rows.schema.names
        values = _binary(rows, "value").to_pylist()
        keys = _binary(rows, "key").to_pylist() if "key" in names else [None] * rows.num_rows
        headers = _headers(rows) if "headers" in names else None
        stamps = _timestamps(rows, now) if "timestamp" in names else None
        builder, at = self._builders.get(partition) or (self._new(partition), 0)
        append = builder.append
        self.rows += rows.num_rows
        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            stamp = stamps[row] if stamps is not None else now
            pairs = headers[row] if headers is not None else []
            if append(at, stamp, key, value, pairs) is None:  # it would become too large
                self._builders[partition] = (builder, at)
                yield self._close(partition)
                builder, at = self._new(partition), 0
                append = builder.append
                append(at, stamp, key, value, pairs)
            at += 1
        self._builders[partition] = (builder, at)

    def _new(self, partition: TopicPartition) -> Any:
        largest = self._cluster.largest_batch(partition.topic, DEFAULT_LARGEST)
        limit = min(self._batch_bytes, largest)
        return DefaultRecordBatchBuilder(2, self._codec, 0, -1, -1, -1, limit)

    def _close(self, partition: TopicPartition) -> Encoded:
        builder, rows = self._builders.pop(partition)
        return Encoded(partition, bytes(builder.build()), rows)


def own(batch: bytes, producer_id: int, epoch: int, sequence: int, transactional: bool) -> bytes:
    """The batch as this producer's: header rewritten, checksum mended, records untouched."""
    owned = bytearray(batch)
    _PRODUCER.pack_into(owned, _PRODUCER_AT, producer_id, epoch, sequence)
    if transactional:
        owned[_ATTRIBUTES_AT + 1] |= _TRANSACTIONAL
    checksum = crc32c(memoryview(owned)[_ATTRIBUTES_AT:])
    owned[_CRC_AT : _CRC_AT + 4] = checksum.to_bytes(4, "big")
    return bytes(owned)


def _binary(rows: pa.RecordBatch, name: str) -> pa.Array:
    column = rows.column(name)
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _headers(rows: pa.RecordBatch) -> list[list[tuple[str, bytes | None]]]:
    found = rows.column("headers").to_pylist()
    if any(header is None or header["key"] is None for row in found for header in row or ()):
        raise SparkConnectorError("null header, or header without a key, present in the data")
    return [[(header["key"], header["value"]) for header in row or ()] for row in found]


def _timestamps(rows: pa.RecordBatch, now: int) -> list[int]:
    stamps = rows.column("timestamp").cast(pa.timestamp("ms", "UTC"), safe=False)
    return [now if stamp is None else stamp for stamp in stamps.cast(pa.int64()).to_pylist()]
