"""Record batches to Arrow columns, one pass, nothing kept per record but its cells.

Aborted transactions are left out as Kafka's consumers do (KIP-98): an aborted producer is silent
from its first offset to the control record that ends its transaction.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c

from penstock.spark.errors import CorruptBatch
from penstock.spark.fetching import Fetched, Range
from penstock.spark.queues import is_seen_copy

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
CRC_FROM = 21
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
ABORT_MARKER = 0

ROWS_PER_BATCH = 50_000
BYTES_PER_BATCH = 16 << 20


class Columns:
    """The cells of the next Arrow batch."""

    def __init__(self, wanted: Range, schema: pa.Schema, queue_began: int | None = None) -> None:
        self._partition = wanted.partition
        self._schema = schema
        self._queue_began = queue_began
        self._with_headers = "headers" in schema.names
        self._wants = frozenset(schema.names)
        self._clear()

    def _clear(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.headers: list[Any] = []
        self.offsets: list[Any] = []
        self.timestamps: list[Any] = []
        self.types: list[Any] = []
        self.rows = 0
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.rows >= ROWS_PER_BATCH or self.size_bytes >= BYTES_PER_BATCH

    def add(self, batch: memoryview, header: tuple[int, ...], start: int, end: int) -> None:
        """The records of one batch whose offsets lie in [start, end)."""
        base, last = header[0], header[0] + header[6]
        try:
            if base >= start and last < end and self._queue_began is None:
                offsets, stamps = self._all(batch, header)
            else:
                offsets, stamps = self._some(batch, start, end)
        except CorruptBatch:
            raise
        except Exception as failure:  # the compiled reader raises its own family, and IndexError
            raise CorruptBatch(f"{self._partition}: batch at offset {base}: {failure}") from None
        count = len(offsets)
        append_time = header[5] & LOG_APPEND_TIME
        self.offsets.append(offsets)
        self.timestamps.append(np.full(count, header[8], np.int64) if append_time else stamps)
        self.types.append(np.full(count, 1 if append_time else 0, np.int32))
        self.rows += count
        self.size_bytes += len(batch)

    def _all(self, batch: memoryview, header: tuple[int, ...]) -> tuple[Any, Any]:
        records = DefaultRecordBatch(batch)
        key, value = self.keys.append, self.values.append
        stamps: list[int] = []
        stamp = stamps.append
        dense = header[12] == header[6] + 1
        offsets: list[int] = []
        if self._with_headers or not dense:
            for record in records:
                key(record.key)
                value(record.value)
                stamp(record.timestamp)
                offsets.append(record.offset)
                if self._with_headers:
                    self.headers.append(record.headers or None)
        else:
            for record in records:
                key(record.key)
                value(record.value)
                stamp(record.timestamp)
        base = header[0]
        found = np.arange(base, base + len(stamps)) if dense else np.array(offsets, np.int64)
        return found, np.array(stamps, np.int64)

    def _some(self, batch: memoryview, start: int, end: int) -> tuple[Any, Any]:
        kept = [r for r in DefaultRecordBatch(batch) if start <= r.offset < end]
        if (began := self._queue_began) is not None:
            kept = [r for r in kept if not (r.headers and is_seen_copy(r, began))]
        self.keys += [record.key for record in kept]
        self.values += [record.value for record in kept]
        if self._with_headers:
            self.headers += [record.headers or None for record in kept]
        offsets = np.array([record.offset for record in kept], np.int64)
        return offsets, np.array([record.timestamp for record in kept], np.int64)

    def take(self) -> pa.RecordBatch:
        """The Arrow batch of what was added, in the schema asked for; starts anew."""
        rows, schema = self.rows, self._schema
        makers = {
            "key": lambda kind: pa.array(self.keys, kind),
            "value": lambda kind: pa.array(self.values, kind),
            "topic": lambda kind: pa.repeat(pa.scalar(self._partition.topic, kind), rows),
            "partition": lambda kind: pa.array(np.full(rows, self._partition.partition, np.int32)),
            "offset": lambda kind: pa.array(np.concatenate(self.offsets)),
            "timestamp": lambda kind: pa.array(np.concatenate(self.timestamps) * 1000).cast(kind),
            "timestampType": lambda kind: pa.array(np.concatenate(self.types)),
            "headers": lambda kind: headers_array(self.headers, kind),
        }
        arrays = [makers[field.name](field.type) for field in schema]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def headers_array(rows: list[Any], kind: pa.DataType) -> pa.Array:
    """`array<struct<key, value>>`; a record without headers has null, as in Spark's connector."""
    ends, keys, values, at = [0], [], [], 0
    for row in rows:
        for name, value in row or ():
            keys.append(name)
            values.append(value)
            at += 1
        ends.append(at)
    struct_type = kind.value_type
    cells = pa.StructArray.from_arrays(
        [pa.array(keys, struct_type.field(0).type), pa.array(values, struct_type.field(1).type)],
        fields=[struct_type.field(0), struct_type.field(1)],
    )
    empty = pa.array([row is None for row in rows], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), cells, type=kind, mask=empty)


def decode(
    fetched: Iterator[Fetched],
    wanted: Range,
    schema: pa.Schema,
    *,
    check_crcs: bool = True,
    queue_began: int | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, in Arrow batches of a size that Spark likes."""
    columns = Columns(wanted, schema, queue_began)
    for piece in fetched:
        start = max(wanted.start, piece.floor)
        for batch, header in visible_batches(piece, check_crcs):
            if header[0] + header[6] < start or header[0] >= wanted.end:
                continue
            columns.add(batch, header, start, wanted.end)
            if columns.is_full:
                yield columns.take()
    if columns.rows:
        yield columns.take()


def visible_batches(
    piece: Fetched, check_crcs: bool = True
) -> Iterator[tuple[memoryview, tuple[int, ...]]]:
    """The batches with records in them, without markers and aborted transactions."""
    silent: set[int] = set()
    # A transaction aborted before this piece is listed again by every fetch it reaches into.
    aborted = [(first, producer) for producer, first in piece.aborted]
    heapq.heapify(aborted)
    for batch, header in batches_of(piece.records, check_crcs):
        while aborted and aborted[0][0] <= header[0] + header[6]:
            silent.add(heapq.heappop(aborted)[1])
        if header[5] & CONTROL:
            if _is_abort(batch):
                silent.discard(header[9])
            continue
        if header[12] and not (header[5] & TRANSACTIONAL and header[9] in silent):
            yield batch, header


def batches_of(
    records: memoryview, check_crcs: bool = True
) -> Iterator[tuple[memoryview, tuple[int, ...]]]:
    """Each batch with its header as integers; `fetching` made sure that all are whole."""
    at = 0
    while at < len(records):
        header = HEADER.unpack_from(records, at)
        size = header[1] + 12
        batch = records[at : at + size]
        if header[3] != 2:
            raise CorruptBatch(f"a batch of message format {header[3]} at offset {header[0]}")
        if check_crcs and crc32c(batch[CRC_FROM:]) != header[4]:
            raise CorruptBatch(f"wrong checksum in the batch at offset {header[0]}")
        yield batch, header
        at += size


def _is_abort(batch: memoryview) -> bool:
    for record in DefaultRecordBatch(batch):
        return int.from_bytes(record.key[2:4], "big") == ABORT_MARKER
    return False
