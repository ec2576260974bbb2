"""Picking whole, sound batches out of bytes read from a segment.

This is the inner loop of every fetch: one struct and one checksum for each batch, nothing else.
A batch whose checksum is wrong is never part of a chunk.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from crc32c import crc32c

from penstock.model.batch import ATTRIBUTES_AT, HEADER_BYTES, LENGTH_PREFIX_BYTES
from penstock.runtime.disk import Buffer

# base offset, length, magic, crc, last offset delta, record count: see model/batch.py
_WALK = struct.Struct(">qi4xbI2xi30xi")
assert _WALK.size == HEADER_BYTES
_SMALLEST = HEADER_BYTES - LENGTH_PREFIX_BYTES


class LogChunk(NamedTuple):
    """Whole batches as they lie in the log.

    `next_offset` is where the following read goes on. `first_offset` may be lower than the one
    asked for, because a batch is never cut. Empty `data` means there is nothing yet.
    """

    data: Buffer
    first_offset: int
    next_offset: int
    batch_count: int
    record_count: int


class Picked(NamedTuple):
    """What `pick` found in a buffer. `start` == `end` when it found nothing to take.

    `missing` is the number of bytes, from `end`, that must be there to go on; 0 when the walk is
    over. `damaged` says that the batch at `end` is not sound.
    """

    start: int
    end: int
    first_offset: int
    next_offset: int
    batch_count: int
    record_count: int
    missing: int
    damaged: str


def pick(view: memoryview, offset: int, max_bytes: int, upper_offset: int, min_one: bool) -> Picked:
    """The batches from the one that holds `offset`, below `upper_offset`, within `max_bytes`.

    At least one when `min_one`. `view` begins at a batch at or before the wanted one.
    """
    unpack, crc_of = _WALK.unpack_from, crc32c
    at, end = 0, len(view)
    start = -1
    first = next_offset = offset
    count = records = missing = 0
    damaged = ""
    while True:
        if end - at < HEADER_BYTES:
            missing = HEADER_BYTES
            break
        base, length, magic, crc, delta, record_count = unpack(view, at)
        if magic != 2 or length < _SMALLEST or delta < 0:
            damaged = f"not a record batch (magic {magic}, length {length})"
            break
        size = length + LENGTH_PREFIX_BYTES
        if base + delta < offset:
            at += size
            if at > end:
                missing = HEADER_BYTES
                break
            continue
        if base >= upper_offset:
            break
        if start < 0:
            if size > max_bytes and not min_one:
                break
        elif at + size - start > max_bytes:
            break
        if size > end - at:
            missing = size
            break
        if crc_of(view[at + ATTRIBUTES_AT : at + size]) != crc:
            damaged = f"wrong checksum in the batch of offsets {base} to {base + delta}"
            break
        if start < 0:
            start, first = at, base
        at += size
        next_offset = base + delta + 1
        count += 1
        records += record_count
    return Picked(
        at if start < 0 else start, at, first, next_offset, count, records, missing, damaged
    )
