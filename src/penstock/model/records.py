"""The records inside a batch, for the few places that must look: compaction, look-up by timestamp,
internal topics, queues. The codec is aiokafka's, compiled; unpacking is bounded here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from penstock.errors import CorruptRecord
from penstock.model import batch as batches
from penstock.model import compression
from penstock.model.batch import HEADER_BYTES, BatchHeader, read_header
from penstock.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

UNPACK_LIMIT = 32 * 1024 * 1024  # a batch that unpacks to more is refused

Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """One record, decoded."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


@cache
def _codec() -> Any:
    """aiokafka brings its whole client along: it is imported when a record is first looked at."""
    from aiokafka.record import default_records

    return default_records


def warm_up() -> None:
    """Import the codec now rather than at the first record."""
    _codec()


def new_builder() -> Any:
    """Builds one batch as `build_batch` does, record by record, for those who must be quick.

    `append(delta, timestamp_ms, key, value, headers)`, headers being a list, then `build()`.
    """
    return _codec().DefaultRecordBatchBuilder(
        2, 0, 0, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, 1 << 30
    )


def raw_records(batch: bytes) -> Any:
    """The codec's own objects of an uncompressed batch: offset, timestamp, key, value, headers."""
    return _codec().DefaultRecordBatch(batch)


def read_records(
    batch: bytes | bytearray | memoryview, limit: int = UNPACK_LIMIT
) -> Iterator[Record]:
    """The records of one batch whose checksum has been checked. Control records included."""
    header = read_header(batch)
    whole = _uncompressed(batch, header, limit)
    try:
        for record in _codec().DefaultRecordBatch(whole):
            yield Record(record.offset, record.timestamp, record.key, record.value, record.headers)
    except CorruptRecord:
        raise
    except Exception as failure:  # the compiled reader raises its own family, and IndexError
        raise CorruptRecord(f"unreadable records in a batch: {failure}") from None


def _uncompressed(batch: bytes | bytearray | memoryview, header: BatchHeader, limit: int) -> bytes:
    if not header.codec:
        return bytes(batch)
    unpacked = compression.decompress(header.codec, memoryview(batch)[HEADER_BYTES:], limit)
    fields = header._replace(
        attributes=header.attributes & ~batches.CODEC_MASK,
        length=HEADER_BYTES - batches.LENGTH_PREFIX_BYTES + len(unpacked),
    )
    return batches.HEADER.pack(*fields) + unpacked


def build_batch(
    records: Iterable[tuple[bytes | None, bytes | None, Headers]],
    *,
    timestamp_ms: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """An uncompressed batch of (key, value, headers), all at one time, base offset 0."""
    builder = _codec().DefaultRecordBatchBuilder(
        2, 0, int(transactional), producer_id, producer_epoch, base_sequence, 1 << 30
    )
    for delta, (key, value, headers) in enumerate(records):
        builder.append(delta, timestamp_ms, key, value, list(headers))
    built: bytearray = builder.build()
    if control:
        header = read_header(built)
        batches.set_attributes(built, 0, len(built), header.attributes | batches.CONTROL_FLAG)
    return built


# --- the marker that ends a transaction in a partition --------------------------------------------

ABORT, COMMIT = 0, 1
_CONTROL_KEY = struct.Struct(">hh")  # version, type
_CONTROL_VALUE = struct.Struct(">hi")  # version, coordinator epoch


def build_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
) -> bytearray:
    """The control batch that commits or aborts a producer's transaction."""
    return build_batch(
        [
            (
                _CONTROL_KEY.pack(0, COMMIT if commit else ABORT),
                _CONTROL_VALUE.pack(0, coordinator_epoch),
                (),
            )
        ],
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(batch: bytes | bytearray | memoryview) -> tuple[bool, int]:
    """(committed, coordinator epoch) of a control batch; other control records raise."""
    for record in read_records(batch):
        if record.key is None or len(record.key) < 4 or record.value is None:
            break
        _, kind = _CONTROL_KEY.unpack_from(record.key)
        _, coordinator_epoch = _CONTROL_VALUE.unpack_from(record.value)
        if kind in (ABORT, COMMIT):
            return kind == COMMIT, coordinator_epoch
    raise CorruptRecord("a control batch that ends no transaction")
