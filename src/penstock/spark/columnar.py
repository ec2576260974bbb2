"""The records of many batches as columns, without a Python object for any of them.

    record   length | attributes i8 | timestamp delta | offset delta | key length | key |
             value length | value | header count | headers          (all numbers but i8: varints)

Where a record begins is known only from the length of the one before it, so that chain is followed
record by record, but by strides where lengths repeat. Everything else is read for all records at
once with numpy, eight bytes at a time; keys and values are then cut out of the batches by Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode

from penstock.spark.errors import CorruptBatch

HEADER_BYTES = 61
_DECODERS = {1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}
_PATIENCE = 12  # records of equal length before a stride is tried
_LONGEST_VARINT = 10
_WORD_BYTES = 8

Ints = Any  # numpy array of int64


class Cells(NamedTuple):
    """Where the cells of records lie in `payload`; a null has length -1."""

    payload: Any  # numpy array of uint8
    offset_deltas: Ints
    timestamp_deltas: Ints
    key_starts: Ints
    key_lengths: Ints
    value_starts: Ints
    value_lengths: Ints

    def only(self, kept: Any) -> Cells:
        """Those of them that the mask keeps."""
        return Cells(self.payload, *(column[kept] for column in self[1:]))

    def keys(self) -> pa.Array:
        return _cut_out(self.payload, self.key_starts, self.key_lengths)

    def values(self) -> pa.Array:
        return _cut_out(self.payload, self.value_starts, self.value_lengths)


def body_of(batch: memoryview, attributes: int) -> bytes:
    """The records of a batch of format 2, without the header, decompressed."""
    codec = attributes & 7
    try:
        body = bytes(batch[HEADER_BYTES:])
        return body if not codec else bytes(_DECODERS[codec](body))
    except Exception as failure:  # each codec has errors of its own
        raise CorruptBatch(f"records cannot be decompressed: {failure}") from None


def cells_of(bodies: Sequence[bytes], counts: Sequence[int]) -> Cells:
    """Take the records of some batches apart. `CorruptBatch` when numbers do not fit together."""
    try:
        return _cells(bodies, counts)
    except (IndexError, ValueError, OverflowError) as failure:
        raise CorruptBatch(f"records cannot be read: {failure}") from None


def _cells(bodies: Sequence[bytes], counts: Sequence[int]) -> Cells:
    # The words of the last records reach beyond them.
    payload = b"".join([*bodies, bytes(2 * _WORD_BYTES)])
    data: Any = np.frombuffer(payload, np.uint8)
    words: Any = np.ndarray((len(data) - _WORD_BYTES + 1,), "<u8", payload, 0, (1,))
    starts, at = [], 0
    for body, count in zip(bodies, counts, strict=True):
        starts.append(at + _record_starts(body, np.frombuffer(body, np.uint8), count))
        at += len(body)
    lengths, places = _varints(words, data, np.concatenate(starts))
    ends = places + lengths
    timestamp_deltas, places = _varints(words, data, places + 1)
    offset_deltas, places = _varints(words, data, places)
    key_lengths, key_starts = _varints(words, data, places)
    value_lengths, value_starts = _varints(words, data, key_starts + np.maximum(key_lengths, 0))
    if (value_starts + np.maximum(value_lengths, 0) >= ends).any() or (ends > at).any():
        raise CorruptBatch("a record is longer than it says")
    return Cells(
        data[:at],
        offset_deltas,
        timestamp_deltas,
        key_starts,
        key_lengths,
        value_starts,
        value_lengths,
    )


def _record_starts(payload: bytes, data: Any, count: int) -> Ints:
    """Where each record begins: at the varint of its length."""
    runs: list[Ints] = []
    single: list[int] = []
    at, found, previous, repeats, patience = 0, 0, -1, 0, _PATIENCE
    while found < count:
        single.append(at)
        found += 1
        first = payload[at]
        if first < 0x80:
            step = 1 + (first >> 1)
        else:
            second = payload[at + 1]
            if second < 0x80:
                step = 2 + ((second << 7 | first & 0x7F) >> 1)
            else:
                step = _long_step(payload, at)
        at += step
        if step != previous:
            previous, repeats = step, 0
            continue
        repeats += 1
        if repeats >= patience and found < count:
            run = _stride(data, at, step, at - step, count - found)
            # Where strides end soon they cost more than they save.
            patience = _PATIENCE if len(run) > 4 * patience else patience * 2
            repeats = 0
            if len(run):
                runs += [np.array(single, np.int64), run]
                single = []
                found += len(run)
                at = int(run[-1]) + step
    runs.append(np.array(single, np.int64))
    return np.concatenate(runs)


def _long_step(payload: bytes, at: int) -> int:
    length = 0
    for index in range(_LONGEST_VARINT):
        byte = payload[at + index]
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return index + 1 + (length >> 1)
    raise ValueError("a length of more than ten bytes")


def _stride(data: Any, at: int, step: int, like: int, most: int) -> Ints:
    """Starts from `at` on, one every `step` bytes, as long as each says the length that the one
    at `like` says: then the next does begin a step later."""
    places: Any = at + step * np.arange(min(most, (len(data) - at) // step), dtype=np.int64)
    same: Any = np.ones(len(places), bool)
    for index in range(_LONGEST_VARINT):
        byte = data[like + index]
        same &= data[places + index] == byte
        if byte < 0x80:
            break
    differs = np.flatnonzero(~same)
    return places if not len(differs) else places[: differs[0]]


def _varints(words: Any, data: Any, at: Ints) -> tuple[Ints, Ints]:
    """The signed number at each place, and the place behind it."""
    word = words[at].astype(np.int64)
    value, size, more = word & 0x7F, 1, (word >> 7) & 1
    for index in range(1, 5):
        if not more.any():
            break
        value |= (((word >> (8 * index)) & 0x7F) * more) << (7 * index)
        size = size + more
        more = more & (word >> (8 * index + 7))
    else:
        if more.any():  # more than 35 bits: seldom, and one by one
            return _long_varints(data, at)
    return (value >> 1) ^ -(value & 1), at + size


def _long_varints(data: Any, at: Ints) -> tuple[Ints, Ints]:
    values, ends = [], []
    for place in at.tolist():
        value = 0
        for index in range(_LONGEST_VARINT):
            byte = int(data[place + index])
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                break
        else:
            raise ValueError("a number of more than ten bytes")
        values.append((value >> 1) ^ -(value & 1))
        ends.append(place + index + 1)
    return np.array(values, np.int64), np.array(ends, np.int64)


def _cut_out(payload: Any, starts: Ints, lengths: Ints) -> pa.Array:
    """Slices of the payload as a column: an array of cells and gaps in turns, without the gaps."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    edges: Any = np.empty(2 * count, np.int32)
    edges[0::2] = starts
    np.add(starts, np.maximum(lengths, 0), out=edges[1::2], casting="unsafe")
    if (np.diff(edges) < 0).any() or edges[-1] > len(payload):
        raise CorruptBatch("a key or a value reaches beyond its record")
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(payload)]
    both = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    null = lengths < 0
    wanted = pa.array(np.arange(0, 2 * count, 2, dtype=np.int32), mask=null if null.any() else None)
    return both.take(wanted)
