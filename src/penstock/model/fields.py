"""Kafka's primitive field types, written and read: what records of internal topics are made of.

Two dialects, as in Kafka's message definitions: the old one with fixed-size lengths (strings i16,
bytes and arrays i32, null is -1), and the flexible one of KIP-482 (lengths are unsigned varints of
length + 1, null is 0, each structure ends with tagged fields). The reader checks every length
against what is left, so damaged bytes raise `CorruptRecord` and allocate nothing.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from penstock.errors import CorruptRecord

_I8 = struct.Struct(">b")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_NO_UUID = uuid.UUID(int=0)

T = TypeVar("T")


class FieldWriter:
    """Collects the bytes of one structure. `flexible` chooses the dialect."""

    __slots__ = ("_buffer", "flexible")

    def __init__(self, *, flexible: bool = False) -> None:
        self._buffer = bytearray()
        self.flexible = flexible

    def done(self) -> bytes:
        return bytes(self._buffer)

    def i8(self, value: int) -> FieldWriter:
        self._buffer += _I8.pack(value)
        return self

    def i16(self, value: int) -> FieldWriter:
        self._buffer += _I16.pack(value)
        return self

    def i32(self, value: int) -> FieldWriter:
        self._buffer += _I32.pack(value)
        return self

    def i64(self, value: int) -> FieldWriter:
        self._buffer += _I64.pack(value)
        return self

    def uid(self, value: uuid.UUID | None) -> FieldWriter:
        self._buffer += (value or _NO_UUID).bytes
        return self

    def uvarint(self, value: int) -> FieldWriter:
        while value > 0x7F:
            self._buffer.append(0x80 | (value & 0x7F))
            value >>= 7
        self._buffer.append(value)
        return self

    def string(self, value: str | None) -> FieldWriter:
        data = None if value is None else value.encode()
        if self.flexible:
            self.uvarint(0 if data is None else len(data) + 1)
        else:
            self.i16(-1 if data is None else len(data))
        self._buffer += data or b""
        return self

    def blob(self, value: bytes | None) -> FieldWriter:
        self._length(value)
        self._buffer += value or b""
        return self

    def array(self, items: Sequence[T], write: Callable[[FieldWriter, T], object]) -> FieldWriter:
        self._length(items)
        for item in items:
            write(self, item)
        return self

    def i32s(self, values: Sequence[int]) -> FieldWriter:
        return self.array(values, FieldWriter.i32)

    def strings(self, values: Sequence[str]) -> FieldWriter:
        return self.array(values, FieldWriter.string)

    def tags(self, fields: Iterable[tuple[int, bytes]] = ()) -> FieldWriter:
        """Ends a structure of the flexible dialect: (tag, bytes) in rising order of tags."""
        listed = list(fields)
        self.uvarint(len(listed))
        for tag, data in listed:
            self.uvarint(tag).uvarint(len(data))
            self._buffer += data
        return self

    def _length(self, value: Sequence[object] | bytes | None) -> None:
        if self.flexible:
            self.uvarint(0 if value is None else len(value) + 1)
        else:
            self.i32(-1 if value is None else len(value))


class FieldReader:
    """Reads what `FieldWriter` writes."""

    __slots__ = ("_data", "_position", "flexible")

    def __init__(self, data: bytes | memoryview, *, flexible: bool = False) -> None:
        self._data = memoryview(data)
        self._position = 0
        self.flexible = flexible

    @property
    def remaining(self) -> int:
        return len(self._data) - self._position

    def i8(self) -> int:
        return int(_I8.unpack(self._take(1))[0])

    def i16(self) -> int:
        return int(_I16.unpack(self._take(2))[0])

    def i32(self) -> int:
        return int(_I32.unpack(self._take(4))[0])

    def i64(self) -> int:
        return int(_I64.unpack(self._take(8))[0])

    def uid(self) -> uuid.UUID:
        return uuid.UUID(bytes=bytes(self._take(16)))

    def uvarint(self) -> int:
        value = shift = 0
        while shift < 35:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise CorruptRecord("a varint of more than five bytes")

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise CorruptRecord("null where a string must be")
        return text

    def nullable_string(self) -> str | None:
        length = self.uvarint() - 1 if self.flexible else self.i16()
        if length < 0:
            return None
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError:
            raise CorruptRecord("a string that is not UTF-8") from None

    def blob(self) -> bytes:
        return self.nullable_blob() or b""

    def nullable_blob(self) -> bytes | None:
        length = self.uvarint() - 1 if self.flexible else self.i32()
        return None if length < 0 else bytes(self._take(length))

    def array(self, read: Callable[[FieldReader], T]) -> tuple[T, ...]:
        length = self.uvarint() - 1 if self.flexible else self.i32()
        if length > self.remaining:  # every element takes at least a byte
            raise CorruptRecord(f"an array of {length} elements in {self.remaining} bytes")
        return tuple(read(self) for _ in range(length))

    def i32s(self) -> tuple[int, ...]:
        return self.array(FieldReader.i32)

    def strings(self) -> tuple[str, ...]:
        return self.array(FieldReader.string)

    def tags(self) -> dict[int, bytes]:
        count = self.uvarint()
        if count > self.remaining:
            raise CorruptRecord(f"{count} tagged fields in {self.remaining} bytes")
        found: dict[int, bytes] = {}
        for _ in range(count):
            tag = self.uvarint()
            found[tag] = bytes(self._take(self.uvarint()))
        return found

    def _take(self, count: int) -> memoryview:
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise CorruptRecord(f"{count} bytes wanted, {self.remaining} are there")
        taken = self._data[self._position : end]
        self._position = end
        return taken
