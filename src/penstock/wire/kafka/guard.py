"""A walk over a flexible request before kio reads it, for two things that kio does not do.

kio reserves memory for as many items as a compact array claims, and the process ends when there is
not that much: twenty bytes would be enough to stop a broker. Here every count is held against the
bytes that are left. And a tagged field that the schema does not know, which KIP-482 says to ignore
so that newer clients can talk to older brokers, is an error to kio; here it is cut out.

It builds nothing and copies nothing unless there is something to cut: runs of fields of fixed size
are one addition, so that a usual request costs about as long as kio itself takes for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin

from penstock.errors import MalformedRequest
from penstock.wire.kafka.framing import read_unsigned_varint

Walk = Callable[[memoryview, int, list["Cut"]], int]

_SIZES = {
    "int8": 1, "int16": 2, "int32": 4, "int64": 8,
    "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
    "float64": 8, "bool": 1, "uuid": 16, "error_code": 2,
    "timedelta_i32": 4, "timedelta_i64": 8, "datetime_i64": 8,
}  # fmt: skip


class Cut(NamedTuple):
    """A tag section to be written anew: what stays of it."""

    begin: int
    end: int
    kept: bytes


def guarded(entity: Any, body: memoryview) -> memoryview:
    """`body` if it is safe to read as `entity`, without the tags nobody knows; else an error."""
    cuts: list[Cut] = []
    end = walk_of(entity)(body, 0, cuts)
    if end > len(body):
        raise MalformedRequest("the request ends too soon")
    if not cuts:
        return body
    pieces: list[bytes | memoryview] = []
    position = 0
    for cut in cuts:
        pieces += [body[position : cut.begin], cut.kept]
        position = cut.end
    pieces.append(body[position:])
    return memoryview(b"".join(pieces))


@cache
def walk_of(entity: Any) -> Walk:
    """The walk over one of kio's flexible dataclasses."""
    steps: list[Walk | int] = []
    known: dict[int, Walk] = {}
    for field in fields(entity):
        step = _step(field)
        if "tag" in field.metadata:
            known[field.metadata["tag"]] = _fixed(step) if isinstance(step, int) else step
        elif isinstance(step, int) and steps and isinstance(steps[-1], int):
            steps[-1] += step
        else:
            steps.append(step)
    tags = _tags(known)
    if len(steps) == 1 and isinstance(steps[0], int):
        return _fixed_and_tags(steps[0], tags)

    def walk(body: memoryview, position: int, cuts: list[Cut]) -> int:
        for step in steps:
            if isinstance(step, int):
                position += step
            else:
                position = step(body, position, cuts)
        return tags(body, position, cuts)

    return walk


def _fixed(size: int) -> Walk:
    return lambda _body, position, _cuts: position + size


def _fixed_and_tags(size: int, tags: Walk) -> Walk:
    def walk(body: memoryview, position: int, cuts: list[Cut]) -> int:
        position += size
        if position < len(body) and not body[position]:
            return position + 1
        return tags(body, position, cuts)

    return walk


def _step(field: Field[Any]) -> Walk | int:
    kind: Any = field.type
    nullable = get_origin(kind) in (UnionType, Union)
    if nullable:
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    is_array = get_origin(kind) is tuple
    if is_array:
        kind = get_args(kind)[0]
    item: Walk | int
    if is_dataclass(kind):
        entity: Any = kind
        item = walk_of(entity)
        if nullable and not is_array:
            item = _nullable_struct(item)
    else:
        item = _SIZES.get(field.metadata["kafka_type"], _bytes)
    if not is_array:
        return item
    return _fixed_array(item) if isinstance(item, int) else _array(item)


def _bytes(body: memoryview, position: int, _: list[Cut]) -> int:
    """A compact string, bytes or records: its length and one, zero for null."""
    length, position = read_unsigned_varint(body, position)
    return position + max(length - 1, 0)


def _count(body: memoryview, position: int, item_size: int) -> tuple[int, int]:
    """(items of a compact array, position of the first), held against what is left."""
    count, position = read_unsigned_varint(body, position)
    count -= 1
    if count * item_size > len(body) - position:
        raise MalformedRequest(f"an array of {count} items in {len(body) - position} bytes")
    return count, position


def _array(item: Walk) -> Walk:
    def walk(body: memoryview, position: int, cuts: list[Cut]) -> int:
        count, position = _count(body, position, 1)
        for _ in range(count):
            position = item(body, position, cuts)
        return position

    return walk


def _fixed_array(item_size: int) -> Walk:
    def walk(body: memoryview, position: int, _: list[Cut]) -> int:
        count, position = _count(body, position, item_size)
        return position + max(count, 0) * item_size

    return walk


def _nullable_struct(item: Walk) -> Walk:
    """A struct that may be null has a marker byte in front (KIP-893)."""

    def walk(body: memoryview, position: int, cuts: list[Cut]) -> int:
        if position >= len(body) or body[position] > 0x7F:
            return position + 1
        return item(body, position + 1, cuts)

    return walk


def _tags(known: dict[int, Walk]) -> Walk:
    def walk(body: memoryview, position: int, cuts: list[Cut]) -> int:
        begin = position
        count, position = read_unsigned_varint(body, position)
        kept: list[bytes] = []
        for _ in range(count):
            start = position
            tag, position = read_unsigned_varint(body, position)
            size, position = read_unsigned_varint(body, position)
            if position + size > len(body):
                raise MalformedRequest("a tagged field ends after the request")
            if tag in known:
                if known[tag](body, position, []) > position + size:
                    raise MalformedRequest("a tagged field is longer than it says")
                kept.append(bytes(body[start : position + size]))
            position += size
        if len(kept) < count:
            # A request has a handful of known tags, so their number is one byte.
            cuts.append(Cut(begin, position, bytes([len(kept)]) + b"".join(kept)))
        return position

    return walk
