"""How much a micro-batch reads, and how it is cut into tasks. Pure: numbers in, numbers out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from penstock.spark.cluster import TopicPartition
from penstock.spark.fetching import Range
from penstock.spark.offsets import Positions


def ranges_between(start: Positions, end: Positions) -> list[Range]:
    """The ranges that are not empty, in order."""
    found = [Range(tp, start[tp], end[tp]) for tp in sorted(end) if tp in start]
    return [wanted for wanted in found if wanted.size]


def limit_rows(start: Positions, end: Positions, rows: int) -> Positions:
    """An end such that about `rows` offsets are read, shared out by how much each partition has.

    A partition with anything to read gets at least one offset, so a small one is never starved.
    """
    sizes = {wanted.partition: wanted.size for wanted in ranges_between(start, end)}
    total = sum(sizes.values())
    if total <= rows:
        return dict(end)
    limited = dict(end)
    for tp, size in sizes.items():
        limited[tp] = min(end[tp], start[tp] + max(1, size * rows // total))
    return limited


def limit_bytes(
    start: Positions,
    end: Positions,
    size_bytes: int,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> Positions:
    """The same for bytes; `bytes_per_offset` is what a sample of each partition showed."""
    sizes = {
        wanted.partition: wanted.size * bytes_per_offset.get(wanted.partition, 1.0)
        for wanted in ranges_between(start, end)
    }
    total = sum(sizes.values())
    if total <= size_bytes:
        return dict(end)
    limited = dict(end)
    for tp, size in sizes.items():
        share = size / total * size_bytes / max(bytes_per_offset.get(tp, 1.0), 1e-9)
        limited[tp] = min(end[tp], start[tp] + max(1, int(share)))
    return limited


def split(
    ranges: Sequence[Range], *, min_partitions: int | None, max_records: int | None
) -> list[Range]:
    """Cut ranges so that there are at least `min_partitions` tasks of at most `max_records`.

    Without either, one task per partition of the topic: a task is then one sequential read.
    """
    pieces: list[Range] = []
    for wanted in ranges:
        count = -(-wanted.size // max_records) if max_records else 1
        pieces += _cut(wanted, count)
    if min_partitions and len(pieces) < min_partitions:
        counts = _shares([wanted.size for wanted in pieces], min_partitions)
        pieces = [
            piece
            for wanted, count in zip(pieces, counts, strict=True)
            for piece in _cut(wanted, count)
        ]
    return pieces


def _shares(sizes: list[int], count: int) -> list[int]:
    """How many pieces each range is cut into: about as its size, `count` in all if there is so
    much to cut."""
    total = sum(sizes)
    shares = [min(size, max(1, size * count // total)) for size in sizes]
    while sum(shares) < min(count, total):  # next the range whose pieces are the largest
        largest = max(range(len(sizes)), key=lambda at: sizes[at] / shares[at])
        shares[largest] += 1
    return shares


def _cut(wanted: Range, count: int) -> list[Range]:
    count = max(1, min(count, wanted.size))
    edges = [wanted.start + wanted.size * at // count for at in range(count + 1)]
    return [Range(wanted.partition, low, high) for low, high in pairwise(edges) if low < high]
