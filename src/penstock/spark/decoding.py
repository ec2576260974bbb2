"""Record batches to Arrow columns: many batches at once (columnar.py), or record by record.

Aborted transactions are left out as Kafka's consumers do (KIP-98): an aborted producer is silent
from its first offset to the control record that ends its transaction.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatch
from crc32c import crc32c

from penstock.spark.cluster import TopicPartition
from penstock.spark.columnar import body_of, cells_of
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
    """The cells of the next Arrow batch, taken from record batches as they are."""

    def __init__(self, wanted: Range, schema: pa.Schema) -> None:
        self._partition = wanted.partition
        self._schema = schema
        self._end = wanted.end
        self._clear()

    def _clear(self) -> None:
        self._bodies: list[bytes] = []
        self._headers: list[tuple[int, ...]] = []
        self._starts: list[int] = []
        self.rows = 0
        self.size_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.rows >= ROWS_PER_BATCH or self.size_bytes >= BYTES_PER_BATCH

    def add(self, batch: memoryview, header: tuple[int, ...], start: int) -> None:
        """The records of one batch from offset `start` on."""
        body = body_of(batch, header[5])
        self._bodies.append(body)
        self._headers.append(header)
        self._starts.append(start)
        self.rows += header[12]
        self.size_bytes += len(body)

    def take(self) -> pa.RecordBatch:
        """The Arrow batch of what was added, in the schema asked for; starts anew."""
        headers: Any = np.array([(h[0], h[5], h[7], h[8], h[12]) for h in self._headers], np.int64)
        bases, attributes, first_stamps, last_stamps, counts = headers.T
        cells = cells_of(self._bodies, counts.tolist())
        offsets = np.repeat(bases, counts) + cells.offset_deltas
        timestamps = np.repeat(first_stamps, counts) + cells.timestamp_deltas
        types: Any = np.repeat((attributes & LOG_APPEND_TIME) // LOG_APPEND_TIME, counts)
        if types.any():
            timestamps = np.where(types, np.repeat(last_stamps, counts), timestamps)
        kept = (offsets >= np.repeat(self._starts, counts)) & (offsets < self._end)
        if not kept.all():
            cells = cells.only(kept)
            offsets, timestamps, types = offsets[kept], timestamps[kept], types[kept]
        self._clear()
        cut = {"key": cells.keys, "value": cells.values}
        return _arrow(self._schema, self._partition, offsets, timestamps, types, cut)


class RecordColumns(Columns):
    """The same, record by record: for headers, and for queues, where headers decide."""

    def __init__(self, wanted: Range, schema: pa.Schema, queue_began: int | None) -> None:
        self._queue_began = queue_began
        super().__init__(wanted, schema)

    def _clear(self) -> None:
        super()._clear()
        self._kept: list[tuple[Any, int]] = []

    def add(self, batch: memoryview, header: tuple[int, ...], start: int) -> None:
        end, began = self._end, self._queue_began
        try:
            kept = [r for r in DefaultRecordBatch(batch) if start <= r.offset < end]
        except Exception as failure:  # the compiled reader raises its own family, and IndexError
            raise CorruptBatch(f"records cannot be read: {failure}") from None
        if began is not None:
            kept = [r for r in kept if not (r.headers and is_seen_copy(r, began))]
        self._kept += [(record, header[5] & LOG_APPEND_TIME) for record in kept]
        self.rows += len(kept)
        self.size_bytes += len(batch)

    def take(self) -> pa.RecordBatch:
        records = [record for record, _ in self._kept]
        types = np.array([1 if append_time else 0 for _, append_time in self._kept], np.int64)
        self._clear()
        cut = {
            "key": lambda: pa.array([record.key for record in records], pa.binary()),
            "value": lambda: pa.array([record.value for record in records], pa.binary()),
            "headers": lambda: headers_array(
                [record.headers or None for record in records], self._schema.field("headers").type
            ),
        }
        offsets = np.array([record.offset for record in records], np.int64)
        timestamps = np.array([record.timestamp for record in records], np.int64)
        return _arrow(self._schema, self._partition, offsets, timestamps, types, cut)


def _arrow(
    schema: pa.Schema,
    partition: TopicPartition,
    offsets: Any,
    timestamps: Any,
    types: Any,
    cut: Mapping[str, Callable[[], pa.Array]],
) -> pa.RecordBatch:
    """The columns in the schema's order; `cut` makes those that lie in the records themselves."""
    rows = len(offsets)
    makers: dict[str, Callable[[pa.DataType], pa.Array]] = {
        "topic": lambda kind: pa.repeat(pa.scalar(partition.topic, kind), rows),
        "partition": lambda kind: pa.array(np.full(rows, partition.partition, np.int32)),
        "offset": lambda kind: pa.array(offsets),
        "timestamp": lambda kind: pa.array(timestamps * 1000).cast(kind),
        "timestampType": lambda kind: pa.array(types.astype(np.int32)),
    }
    arrays = [
        cut[field.name]() if field.name in cut else makers[field.name](field.type)
        for field in schema
    ]
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
    columns = (
        RecordColumns(wanted, schema, queue_began)
        if "headers" in schema.names or queue_began is not None
        else Columns(wanted, schema)
    )
    for piece in fetched:
        start = max(wanted.start, piece.floor)
        for batch, header in visible_batches(piece, check_crcs):
            if header[0] + header[6] < start or header[0] >= wanted.end:
                continue
            try:
                columns.add(batch, header, start)
                full = columns.take() if columns.is_full else None
            except CorruptBatch as failure:
                place = f"{wanted.partition}: batch at offset {header[0]} or before it"
                raise CorruptBatch(f"{place}: {failure}") from None
            if full is not None and full.num_rows:
                yield full
    if columns.rows:
        rest = columns.take()
        if rest.num_rows:
            yield rest


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
