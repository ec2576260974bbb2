"""Which partition a row goes to: its own column, the key's hash as Kafka's Java clients take it,
or, without a key, runs of rows in turn.

The hash is murmur2 over a whole Arrow column at once: rows of equal key length are hashed together,
four bytes of each at a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

_M = np.uint32(0x5BD1E995)
_SEED = np.uint32(0x9747B28C)
Hashes = Any  # numpy array of uint32


def murmur2(keys: pa.Array) -> Hashes:
    """Kafka's hash of each key (binary, no nulls)."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    lengths = np.diff(offsets)
    hashes: Hashes = np.empty(len(keys), np.uint32)
    for length in np.unique(lengths):
        rows = np.nonzero(lengths == length)[0]
        cells = data[offsets[rows][:, None] + np.arange(length)] if length else None
        hashes[rows] = _murmur2_equal(cells, len(rows), int(length))
    return hashes


def _murmur2_equal(cells: Any, rows: int, length: int) -> Hashes:
    with np.errstate(over="ignore"):
        h: Hashes = np.full(rows, _SEED ^ np.uint32(length), np.uint32)
        whole = length & ~3
        for at in range(0, whole, 4):
            k: Hashes = np.zeros(rows, np.uint32)
            for byte in range(4):
                k |= cells[:, at + byte].astype(np.uint32) << np.uint32(8 * byte)
            k *= _M
            k ^= k >> np.uint32(24)
            k *= _M
            h *= _M
            h ^= k
        if length & 3:
            for byte in range(length - whole - 1, -1, -1):
                h ^= cells[:, whole + byte].astype(np.uint32) << np.uint32(8 * byte)
            h *= _M
        h ^= h >> np.uint32(13)
        h *= _M
        h ^= h >> np.uint32(15)
    return h


def choose(
    keys: pa.Array | None, partitions: pa.Array | None, rows: int, count: int, turn: int
) -> Any:
    """A partition below `count` for each row. `turn` moves rows without keys along."""
    spread: Any = (np.arange(rows, dtype=np.int64) * count // max(rows, 1) + turn) % count
    chosen = spread
    if keys is not None and keys.null_count < rows:
        valid = np.asarray(keys.is_valid())
        hashes = murmur2(keys.drop_null()).astype(np.int64)
        chosen[valid] = (hashes & 0x7FFFFFFF) % count
    if partitions is not None and partitions.null_count < rows:
        valid = np.asarray(partitions.is_valid())
        chosen[valid] = np.asarray(partitions.drop_null()).astype(np.int64)
    return chosen
