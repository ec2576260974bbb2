"""AMQP field tables: named values with a type octet each, read and written without loss.

    table  = size u32 | entry*            entry = key shortstr | value
    value  = type octet | bytes           array = size u32 | value*

A table is walked in one pass over its bytes, however deep a hostile client nests it: `MAX_DEPTH`
levels are read, then the table is refused. To change one entry of a message's headers use
`read_entries` and `write_entries`: every entry that is not touched keeps its own bytes, so a double
stays a double, a short stays a short, and the order stays the publisher's.

The type octets are those RabbitMQ and its clients use, which is not quite the list of the
specification (AMQP 0-9-1 §4.2.5.5 and RabbitMQ's errata to it).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from decimal import Decimal

from penstock.errors import MalformedRequest

MAX_DEPTH = 32
_U32 = struct.Struct(">I")

# Types of a fixed size: how they are read. Decimals, timestamps and booleans are read apart.
_NUMBERS = {
    ord(tag): struct.Struct(layout)
    for tag, layout in {
        "b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I",
        "l": ">q", "L": ">q", "f": ">f", "d": ">d",
    }.items()
}  # fmt: skip
_FIXED_SIZES = {tag: number.size for tag, number in _NUMBERS.items()} | {
    ord("t"): 1,
    ord("D"): 5,
    ord("T"): 8,
    ord("V"): 0,
}
_STRING, _BYTES, _TABLE, _ARRAY = ord("S"), ord("x"), ord("F"), ord("A")
_BOOLEAN, _DECIMAL, _TIMESTAMP, _VOID = ord("t"), ord("D"), ord("T"), ord("V")


class Timestamp(int):
    """Seconds since 1970, written with the type of a timestamp rather than of a number."""


class LongString(bytes):
    """A string that is not UTF-8: read as bytes, written as the string it was."""


def read_table(data: bytes, position: int = 0) -> tuple[dict[str, object], int]:
    """The table that starts at `position`, and the position after it."""
    return _read_table(data, position, len(data), MAX_DEPTH)


def decode_table(data: bytes) -> dict[str, object]:
    """The table that `data` consists of."""
    table, end = read_table(data)
    if end != len(data):
        raise MalformedRequest(f"{len(data) - end} bytes follow a table")
    return table


def encode_table(table: Mapping[str, object]) -> bytes:
    """The bytes of a table, its size in front."""
    body = b"".join([_key(name) + encode_value(value) for name, value in table.items()])
    return _U32.pack(len(body)) + body


def read_entries(data: bytes, position: int = 0) -> dict[str, bytes]:
    """Each key with its value's own bytes, type octet included; nested values are checked too."""
    position, end = _extent(data, position, len(data))
    entries: dict[str, bytes] = {}
    while position < end:
        key, position = _read_key(data, position, end)
        after = _skip_value(data, position, end, MAX_DEPTH - 1)
        entries[key] = data[position:after]
        position = after
    return entries


def write_entries(entries: Mapping[str, bytes]) -> bytes:
    """The bytes of a table made of `read_entries`' values or `encode_value`'s."""
    body = b"".join([_key(name) + value for name, value in entries.items()])
    return _U32.pack(len(body)) + body


def skip_table(data: bytes, position: int, limit: int) -> int:
    """The position after a table, all of which has been checked to be well formed."""
    return _skip_table(data, position, limit, MAX_DEPTH)


def decode_value(data: bytes) -> object:
    """One value as `read_entries` gives it."""
    value, end = _read_value(data, 0, len(data), MAX_DEPTH)
    if end != len(data):
        raise MalformedRequest(f"{len(data) - end} bytes follow a value")
    return value


def encode_value(value: object) -> bytes:
    """One value with its type octet. Whole numbers are 64 bits wide, as RabbitMQ writes its own."""
    match value:
        case str():
            text = value.encode()
            return b"S" + _U32.pack(len(text)) + text
        case bool():
            return b"t\x01" if value else b"t\x00"
        case Timestamp():
            return b"T" + struct.pack(">Q", value)
        case int():
            return b"l" + struct.pack(">q", value)
        case None:
            return b"V"
        case float():
            return b"d" + struct.pack(">d", value)
        case LongString():
            return b"S" + _U32.pack(len(value)) + value
        case bytes() | bytearray():
            return b"x" + _U32.pack(len(value)) + value
        case Mapping():
            return b"F" + encode_table(value)
        case Sequence():
            body = b"".join(map(encode_value, value))
            return b"A" + _U32.pack(len(body)) + body
        case Decimal():
            return b"D" + _decimal_bytes(value)
    raise TypeError(f"a field table cannot hold {type(value).__name__}")


def _decimal_bytes(value: Decimal) -> bytes:
    exponent = value.as_tuple().exponent
    scale = -exponent if isinstance(exponent, int) and exponent < 0 else 0
    number = int(value.scaleb(scale))
    return struct.pack(">Bi", scale, number)


def _key(name: str) -> bytes:
    text = name.encode("utf-8", "surrogateescape")
    if len(text) > 255:
        raise ValueError(f"a key of {len(text)} bytes; 255 is the most")
    return bytes((len(text),)) + text


# --- reading --------------------------------------------------------------------------------------


def _extent(data: bytes, position: int, limit: int) -> tuple[int, int]:
    """Where the content of a sized value begins and ends."""
    if position + 4 > limit:
        raise MalformedRequest("a table ends inside a size")
    start = position + 4
    end = start + int.from_bytes(data[position:start], "big")
    if end > limit:
        raise MalformedRequest("a table holds a value longer than itself")
    return start, end


def _read_key(data: bytes, position: int, limit: int) -> tuple[str, int]:
    start = position + 1
    end = start + data[position]
    if end >= limit:  # at least the type octet follows
        raise MalformedRequest("a table ends inside a key")
    # A key that is not UTF-8 is kept as it is: it is the publisher's, nobody here looks for it.
    return data[start:end].decode("utf-8", "surrogateescape"), end


def _read_table(
    data: bytes, position: int, limit: int, depth: int
) -> tuple[dict[str, object], int]:
    if depth == 0:
        raise MalformedRequest(f"a table nested more than {MAX_DEPTH} deep")
    position, end = _extent(data, position, limit)
    table: dict[str, object] = {}
    while position < end:
        key, position = _read_key(data, position, end)
        table[key], position = _read_value(data, position, end, depth - 1)
    return table, end


def _read_value(data: bytes, position: int, limit: int, depth: int) -> tuple[object, int]:
    if position >= limit:
        raise MalformedRequest("a table ends where a value should be")
    tag = data[position]
    position += 1
    size = _FIXED_SIZES.get(tag)
    if size is not None:
        if position + size > limit:
            raise MalformedRequest("a table ends inside a number")
        return _read_fixed(data, position, tag), position + size
    if tag == _TABLE:
        return _read_table(data, position, limit, depth)
    if tag == _ARRAY:
        return _read_array(data, position, limit, depth)
    if tag not in (_STRING, _BYTES):
        raise MalformedRequest(f"a table holds a value of the unknown type {chr(tag)!r}")
    start, end = _extent(data, position, limit)
    content = data[start:end]
    if tag == _BYTES:
        return content, end
    try:
        return content.decode(), end
    except UnicodeDecodeError:
        return LongString(content), end


def _read_fixed(data: bytes, position: int, tag: int) -> object:
    number = _NUMBERS.get(tag)
    if number is not None:
        return number.unpack_from(data, position)[0]
    if tag == _BOOLEAN:
        return data[position] != 0
    if tag == _TIMESTAMP:
        return Timestamp(int.from_bytes(data[position : position + 8], "big"))
    if tag == _DECIMAL:
        scale, digits = struct.unpack_from(">Bi", data, position)
        return Decimal(digits).scaleb(-scale)
    return None


def _read_array(data: bytes, position: int, limit: int, depth: int) -> tuple[list[object], int]:
    if depth == 0:
        raise MalformedRequest(f"a table nested more than {MAX_DEPTH} deep")
    position, end = _extent(data, position, limit)
    values: list[object] = []
    while position < end:
        value, position = _read_value(data, position, end, depth - 1)
        values.append(value)
    return values, end


# --- walking without reading ----------------------------------------------------------------------


def _skip_table(data: bytes, position: int, limit: int, depth: int) -> int:
    """Every message with headers is walked here, so the usual types are not a call each."""
    if depth == 0:
        raise MalformedRequest(f"a table nested more than {MAX_DEPTH} deep")
    position, end = _extent(data, position, limit)
    sizes = _FIXED_SIZES
    while position < end:
        position += 1 + data[position]
        if position >= end:
            raise MalformedRequest("a table ends inside a key")
        tag = data[position]
        size = sizes.get(tag)
        if size is not None:
            position += 1 + size
        elif tag == _STRING:
            position += 5 + int.from_bytes(data[position + 1 : position + 5], "big")
        else:
            position = _skip_value(data, position, end, depth - 1)
        if position > end:
            raise MalformedRequest("a table holds a value longer than itself")
    return end


def _skip_value(data: bytes, position: int, limit: int, depth: int) -> int:
    """The position after a value. `position` is below `limit`: a type octet is there."""
    tag = data[position]
    position += 1
    size = _FIXED_SIZES.get(tag)
    if size is not None:
        position += size
        if position > limit:
            raise MalformedRequest("a table ends inside a number")
        return position
    if tag == _TABLE:
        return _skip_table(data, position, limit, depth)
    if tag not in (_STRING, _BYTES, _ARRAY):
        raise MalformedRequest(f"a table holds a value of the unknown type {chr(tag)!r}")
    start, end = _extent(data, position, limit)
    if tag == _ARRAY:
        if depth == 0:
            raise MalformedRequest(f"a table nested more than {MAX_DEPTH} deep")
        while start < end:
            start = _skip_value(data, start, end, depth - 1)
    return end
