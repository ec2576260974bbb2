"""The Fetch response, by hand: record bytes go from the log to the socket as they are.

`encode` returns a list of buffers to be written one after the other; those that hold records are
the very buffers that the log returned. Versions 4 to 18: sessions from 7, flexible from 12, topic
ids instead of names from 13.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.wire.kafka.codec import write_unsigned_varint

Buffer = bytes | bytearray | memoryview

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_ABORTED = struct.Struct(">qq")
_FRONT_V7 = struct.Struct(">ihi")  # throttle, error, session
_PARTITION_V4 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_EPOCH_END = struct.Struct(">iq")


class PartitionData(NamedTuple):
    """What one partition answers."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None  # (producer id, first offset)
    records: Buffer = b""
    diverging: tuple[int, int] | None = None  # (epoch, end offset), only for followers


def encode(
    version: int,
    topics: Sequence[tuple[str | UUID, Sequence[PartitionData]]],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
) -> list[Buffer]:
    """The response body as buffers."""
    buffers: list[Buffer] = []
    flexible = version >= 12
    out = bytearray()
    if version >= 7:
        out += _FRONT_V7.pack(throttle_ms, error_code, session_id)
    else:
        out += _I32.pack(throttle_ms)
    _write_count(out, len(topics), flexible)
    for topic, partitions in topics:
        if isinstance(topic, UUID):
            out += topic.bytes
        else:
            _write_name(out, topic, flexible)
        _write_count(out, len(partitions), flexible)
        for data in partitions:
            _write_partition_front(out, data, version)
            if len(data.records) > 4096:  # worth a buffer of its own rather than a copy
                buffers.append(out)
                buffers.append(data.records)
                out = bytearray()
            else:
                out += data.records
            if flexible:
                _write_partition_tags(out, data)
        if flexible:
            out.append(0)
    if flexible:
        out.append(0)
    buffers.append(out)
    return buffers


def _write_partition_front(out: bytearray, data: PartitionData, version: int) -> None:
    flexible = version >= 12
    if version >= 5:
        out += _PARTITION_V5.pack(*data[:5])
    else:
        out += _PARTITION_V4.pack(*data[:4])
    if data.aborted is None:
        out += b"\0" if flexible else b"\xff\xff\xff\xff"
    else:
        _write_count(out, len(data.aborted), flexible)
        for producer_id, first_offset in data.aborted:
            out += _ABORTED.pack(producer_id, first_offset)
            if flexible:
                out.append(0)
    if version >= 11:
        out += b"\xff\xff\xff\xff"  # no preferred read replica
    if flexible:
        write_unsigned_varint(out, len(data.records) + 1)
    else:
        out += _I32.pack(len(data.records))


def _write_partition_tags(out: bytearray, data: PartitionData) -> None:
    if data.diverging is None:
        out.append(0)
        return
    out += b"\x01\x00"  # one tagged field, number 0
    write_unsigned_varint(out, _EPOCH_END.size + 1)
    out += _EPOCH_END.pack(*data.diverging)
    out.append(0)


def _write_count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        write_unsigned_varint(out, count + 1)
    else:
        out += _I32.pack(count)


def _write_name(out: bytearray, name: str, flexible: bool) -> None:
    raw = name.encode()
    if flexible:
        write_unsigned_varint(out, len(raw) + 1)
    else:
        out += _I16.pack(len(raw))
    out += raw
