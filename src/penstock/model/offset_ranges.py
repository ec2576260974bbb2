"""Offsets of a log as ranges [low, high), in rising order and without overlap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Range = tuple[int, int]


def as_ranges(offsets: Iterable[int]) -> list[Range]:
    """Offsets in rising order as ranges."""
    ranges: list[Range] = []
    low = high = -1
    for offset in offsets:
        if offset == high:
            high += 1
        elif offset > high:
            if high > low:
                ranges.append((low, high))
            low, high = offset, offset + 1
    if high > low:
        ranges.append((low, high))
    return ranges


def merge_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Ranges in any order, made rising and joined where they touch or overlap."""
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1]:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return merged


def without(low: int, high: int, holes: Sequence[Range]) -> list[Range]:
    """[low, high) without the holes, which are in rising order."""
    left: list[Range] = []
    for start, stop in holes:
        if low < start:
            left.append((low, start))
        low = stop
    if low < high:
        left.append((low, high))
    return left


def size_of(ranges: Iterable[Range]) -> int:
    """How many offsets are in them."""
    return sum(high - low for low, high in ranges)
