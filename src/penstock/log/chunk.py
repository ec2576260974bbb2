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
    start, missing, damaged = _skip(view, offset)
    if missing or damaged:
        return Picked(start, start, offset, offset, 0, 0, missing, damaged)
    unpack, crc_of = _WALK.unpack_from, crc32c
    end = len(view)
    last_header = end - HEADER_BYTES
    limit = min(end, start + max_bytes)
    at = start
    first = base = offset
    delta = -1
    count = records = 0
    while True:
        if at > last_header:
            missing = HEADER_BYTES
            break
        base_offset, length, magic, crc, offset_delta, record_count = unpack(view, at)
        stop = at + length + LENGTH_PREFIX_BYTES
        if base_offset >= upper_offset:
            break
        if length < _SMALLEST or magic != 2:
            damaged = f"not a record batch (magic {magic}, length {length})"
            break
        if stop > limit and (count or not min_one or stop > end):
            if stop > end and (stop - start <= max_bytes or (min_one and not count)):
                missing = stop - at
            break
        if crc_of(view[at + ATTRIBUTES_AT : stop]) != crc:
            damaged = (
                f"wrong checksum in the batch of offsets {base_offset} "
                f"to {base_offset + offset_delta}"
            )
            break
        if not count:
            first = base_offset
        base, delta = base_offset, offset_delta
        at = stop
        count += 1
        records += record_count
    return Picked(start, at, first, base + delta + 1, count, records, missing, damaged)


def _skip(view: memoryview, offset: int) -> tuple[int, int, str]:
    """(position of the batch that holds `offset`, bytes missing to see it, damage)."""
    at = 0
    while len(view) - at >= HEADER_BYTES:
        base, length, magic, _, delta, _ = _WALK.unpack_from(view, at)
        if magic != 2 or length < _SMALLEST or delta < 0:
            return at, 0, f"not a record batch (magic {magic}, length {length})"
        if base + delta >= offset:
            return at, 0, ""
        at += length + LENGTH_PREFIX_BYTES
    return at, HEADER_BYTES, ""
