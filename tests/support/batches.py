"""Record batches built and read by aiokafka's codec: a second opinion on the broker's own."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from crc32c import crc32c

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    codec: str = "none",
    timestamps: Sequence[int] | None = None,
    producer: tuple[int, int] = (-1, -1),
    sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """One batch of `values`; `producer` is (id, epoch)."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=CODECS[codec],
        is_transactional=int(transactional),
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        batch_size=64 << 20,
    )
    now = int(time.time() * 1000)
    for number, value in enumerate(values):
        key = keys[number] if keys else None
        timestamp = timestamps[number] if timestamps else now + number
        builder.append(number, timestamp=timestamp, key=key, value=value, headers=[])
    return bytes(builder.build())


def with_header_field(data: bytes, at: int, layout: str, value: int, *, seal: bool = True) -> bytes:
    """The batch with one header field overwritten and, unless told not to, its CRC made right."""
    changed = bytearray(data)
    struct.pack_into(layout, changed, at, value)
    return sealed(changed) if seal else bytes(changed)


def sealed(data: bytes | bytearray) -> bytes:
    changed = bytearray(data)
    struct.pack_into(">I", changed, 17, crc32c(bytes(changed[21:])))
    return bytes(changed)


def records(data: bytes) -> Iterator[Any]:
    """Every record of every batch in `data`, control records left out."""
    readable = MemoryRecords(data)
    while readable.has_next():
        one = readable.next_batch()
        assert one is not None
        assert one.validate_crc()
        if not one.is_control_batch:
            yield from one


def base_offsets(data: bytes) -> list[int]:
    found, at = [], 0
    while at + 12 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        found.append(base)
        at += 12 + length
    return found


def batch_attributes(data: bytes) -> int:
    """The attributes of the first batch: codec in the low three bits."""
    (attributes,) = struct.unpack_from(">h", data, 21)
    return int(attributes)
