"""From a stream of bytes to whole requests, with a bound on what a claimed length may allocate.

    size i32 | api key i16 | api version i16 | correlation id i32 | client id nullable string |
    tag section (flexible versions) | body

A frame's buffer grows with the bytes that really arrive, so a client that claims a large request
and sends nothing costs nothing. Bytes of small frames come through a scratch buffer that all
connections share: it is empty again whenever control returns to the event loop.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from penstock.errors import MalformedRequest

SCRATCH_BYTES = 256 * 1024
_FIRST_GROWTH = 64 * 1024
_HEADER = struct.Struct(">hhih")
_SIZE = struct.Struct(">i")


class Frames:
    """Cuts one connection's bytes into frames. Not one byte is copied twice for large requests."""

    __slots__ = ("_filled", "_limit", "_partial", "_scratch", "_size")

    def __init__(self, scratch: bytearray, limit: int) -> None:
        self._scratch = memoryview(scratch)
        self._limit = limit
        self._partial: bytearray | None = None  # holds the size field too until the size is known
        self._filled = 0
        self._size = -1  # of the frame being filled; -1 while its size field is incomplete

    def space(self) -> memoryview:
        """Where the next bytes should be written."""
        if self._size < 0 or self._partial is None:
            return self._scratch
        if self._filled == len(self._partial):
            self._grow()
        return memoryview(self._partial)[self._filled :]

    def wrote(self, count: int) -> list[memoryview]:
        """`count` bytes were written into the last `space()`; returns the frames now whole."""
        if self._size >= 0 and self._partial is not None:
            self._filled += count
            if self._filled < self._size:
                return []
            frame = memoryview(self._partial)
            self._partial, self._filled, self._size = None, 0, -1
            return [frame]
        return self._cut(self._scratch[:count])

    def _cut(self, view: memoryview) -> list[memoryview]:
        if self._partial is not None:  # the beginning of a size field was left from the last read
            view = memoryview(bytes(self._partial) + view)
            self._partial = None
        frames: list[memoryview] = []
        position, end = 0, len(view)
        while end - position >= 4:
            size = _SIZE.unpack_from(view, position)[0]
            if not 0 < size <= self._limit:
                raise MalformedRequest(
                    f"a request of {size} bytes; at most {self._limit} are accepted"
                )
            if end - position - 4 < size:
                self._begin(size, view[position + 4 :])
                return frames
            frames.append(memoryview(bytearray(view[position + 4 : position + 4 + size])))
            position += 4 + size
        if position < end:
            self._partial = bytearray(view[position:])
        return frames

    def _begin(self, size: int, got: memoryview) -> None:
        self._size, self._filled = size, len(got)
        self._partial = bytearray(min(size, max(_FIRST_GROWTH, 2 * len(got))))
        self._partial[: len(got)] = got

    def _grow(self) -> None:
        assert self._partial is not None
        larger = bytearray(min(self._size, 4 * len(self._partial)))
        larger[: self._filled] = self._partial
        self._partial = larger

    @property
    def buffered_bytes(self) -> int:
        """What an unfinished frame holds in memory."""
        return len(self._partial) if self._partial is not None else 0


class RequestHeader(NamedTuple):
    """The front of every request, and where its body begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int  # before the tag section of flexible versions: see `skip_tags`


def read_header(frame: memoryview) -> RequestHeader:
    """The header without its tags: whether there are tags depends on the API and version."""
    try:
        api_key, api_version, correlation_id, length = _HEADER.unpack_from(frame, 0)
    except struct.error:
        raise MalformedRequest(f"a request of {len(frame)} bytes has no header") from None
    position = _HEADER.size
    if length < -1 or position + max(length, 0) > len(frame):
        raise MalformedRequest(f"a client id of {length} bytes")
    if length == -1:
        return RequestHeader(api_key, api_version, correlation_id, None, position)
    try:
        client_id = str(frame[position : position + length], "utf-8")
    except UnicodeDecodeError:
        raise MalformedRequest("the client id is not UTF-8") from None
    return RequestHeader(api_key, api_version, correlation_id, client_id, position + length)


def read_unsigned_varint(view: memoryview, position: int) -> tuple[int, int]:
    """(value, next position); at most five bytes."""
    value = shift = 0
    while True:
        try:
            byte = view[position]
        except IndexError:
            raise MalformedRequest("the request ends inside a number") from None
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise MalformedRequest("a number of more than five bytes")


def skip_tags(view: memoryview, position: int) -> int:
    """Past a tag section, whatever is in it."""
    if position < len(view) and not view[position]:
        return position + 1
    count, position = read_unsigned_varint(view, position)
    for _ in range(count):
        _, position = read_unsigned_varint(view, position)
        size, position = read_unsigned_varint(view, position)
        position += size
        if position > len(view):
            raise MalformedRequest("a tagged field runs past the end of the request")
    return position
