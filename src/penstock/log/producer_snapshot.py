"""A partition's producers as of an offset, in a file: Kafka's `<offset>.snapshot`.

    @0   version  i16   1
    @2   crc      u32   CRC-32C of @6 to the end
    @6   count    i32
    @10  entries of 46 bytes: producer id i64, epoch i16, last sequence i32, last offset i64,
         offset delta i32, timestamp i64, coordinator epoch i32, first offset of the open
         transaction i64 (-1 when none)

A damaged snapshot is not an error: an older one and a longer replay give the same state.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from crc32c import crc32c

from penstock.model.producer import ProducerSnapshotEntry

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
assert _ENTRY.size == 46
_VERSION = 1


def encode_snapshot(entries: Sequence[ProducerSnapshotEntry]) -> bytes:
    pack = _ENTRY.pack
    body = _COUNT.pack(len(entries)) + b"".join([pack(*entry) for entry in entries])
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerSnapshotEntry] | None:
    """The entries; None when the file is damaged or of another version."""
    if len(data) < _HEAD.size + _COUNT.size:
        return None
    version, crc = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if version != _VERSION or crc32c(body) != crc:
        return None
    (count,) = _COUNT.unpack_from(body)
    if len(body) - _COUNT.size != count * _ENTRY.size:
        return None
    return [ProducerSnapshotEntry(*entry) for entry in _ENTRY.iter_unpack(body[_COUNT.size :])]
