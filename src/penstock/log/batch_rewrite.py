"""Writing a batch again with fewer records: what compaction leaves of it.

Offsets stay: the batch keeps its first and last offset, sequence and producer, and each record its
offset. Records are copied as they are, byte for byte; only when a delete horizon is set do their
timestamps have to be written anew, because the horizon takes the place of the base timestamp that
they are counted from (KIP-534):

    record = length varint | attributes i8 | timestamp delta varint | offset delta varint | rest
"""

from __future__ import annotations

from collections.abc import Container

from crc32c import crc32c

from penstock.model import compression
from penstock.model.batch import (
    ATTRIBUTES_AT,
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
)
from penstock.model.records import UNPACK_LIMIT
from penstock.runtime.disk import Buffer


def rewrite_batch(
    batch: Buffer,
    header: BatchHeader,
    offsets: Container[int],
    *,
    max_timestamp: int,
    delete_horizon_ms: int | None = None,
) -> bytes:
    """The batch with only the records at `offsets`, compressed as before."""
    packed = memoryview(batch)[HEADER_BYTES : header.size]
    body = compression.decompress(header.codec, packed, UNPACK_LIMIT)
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_FLAG
        base_timestamp = delete_horizon_ms
    shift = header.base_timestamp - base_timestamp
    parts: list[bytes] = []
    at = 0
    for _ in range(header.record_count):
        length, inner = read_varint(body, at)
        end = inner + length
        timestamp_delta, behind_timestamp = read_varint(body, inner + 1)
        offset_delta, _ = read_varint(body, behind_timestamp)
        if header.base_offset + offset_delta in offsets:
            if not shift:
                parts.append(body[at:end])
            else:
                moved = (
                    body[inner : inner + 1]
                    + write_varint(timestamp_delta + shift)
                    + body[behind_timestamp:end]
                )
                parts.append(write_varint(len(moved)) + moved)
        at = end
    records = compression.compress(header.codec, b"".join(parts))
    return _sealed(
        header._replace(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=len(parts),
        ),
        records,
    )


def empty_batch(header: BatchHeader) -> bytes:
    """The batch without any record, kept to remember the producer's last sequence."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG)
    return _sealed(
        header._replace(attributes=attributes, base_timestamp=header.max_timestamp, record_count=0),
        b"",
    )


def _sealed(header: BatchHeader, records: bytes) -> bytes:
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(records)
    head = HEADER.pack(*header._replace(length=length, crc=0))
    crc = crc32c(records, crc32c(head[ATTRIBUTES_AT:]))
    return HEADER.pack(*header._replace(length=length, crc=crc)) + records


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, position behind it) of a zigzag-encoded varint."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def write_varint(value: int) -> bytes:
    """A zigzag-encoded varint."""
    left = (value << 1) if value >= 0 else ((-value << 1) - 1)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)
