"""Walking a segment's file batch by batch, checking each: what recovery and doctors do."""

from __future__ import annotations

from collections.abc import Iterator

from crc32c import crc32c

from penstock.model.batch import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    BatchHeader,
)
from penstock.runtime.disk import File

_READ_BYTES = 4 << 20


class Scan:
    """Iterates (position, header) of the sound batches of a file, from a position on.

    It stops before the first batch that is not sound; `position` and `next_offset` then say where.
    With `step_over_damage` it goes on behind a batch whose checksum is wrong if the batch behind it
    is sound and follows its offsets; such batches are iterated too, and listed in `damaged`.
    """

    def __init__(
        self,
        file: File,
        *,
        position: int,
        end: int,
        next_offset: int,
        limit_offset: int = 1 << 63,
        step_over_damage: bool = False,
    ) -> None:
        self._file = file
        self._end = end
        self._limit_offset = limit_offset  # offsets from here on belong to the next segment
        self._step_over_damage = step_over_damage
        self._buffer = memoryview(b"")
        self._origin = position
        self.position = position
        self.next_offset = next_offset
        self.damaged: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        while self.position < self._end:
            header = self._header(self.position, self.next_offset)
            if header is None:
                return
            if not self._is_sound(self.position, header):
                if not (self._step_over_damage and self._is_followed(header)):
                    return
                self.damaged.append(self.position)
            yield self.position, header
            self.position += header.size
            self.next_offset = header.next_offset

    def batch(self, header: BatchHeader) -> memoryview:
        """The bytes of the batch that was iterated last."""
        return self._bytes(self.position, header.size)

    def _bytes(self, position: int, length: int) -> memoryview:
        at = position - self._origin
        if at < 0 or at + length > len(self._buffer):
            wanted = min(max(length, _READ_BYTES), self._end - position)
            self._buffer = memoryview(self._file.read(wanted, position))
            self._origin, at = position, 0
        return self._buffer[at : at + length]

    def _header(self, position: int, next_offset: int) -> BatchHeader | None:
        """The header at `position` if it may stand there."""
        if self._end - position < HEADER_BYTES:
            return None
        view = self._bytes(position, HEADER_BYTES)
        if len(view) < HEADER_BYTES:
            return None
        header = BatchHeader._make(HEADER.unpack_from(view))
        if (
            header.magic != 2
            or header.length < HEADER_BYTES - LENGTH_PREFIX_BYTES
            or header.last_offset_delta < 0
            or header.base_offset < next_offset
            or position + header.size > self._end
            or header.last_offset >= self._limit_offset
        ):
            return None
        return header

    def _is_sound(self, position: int, header: BatchHeader) -> bool:
        return crc32c(self._bytes(position, header.size)[ATTRIBUTES_AT:]) == header.crc

    def _is_followed(self, header: BatchHeader) -> bool:
        position = self.position + header.size
        following = self._header(position, header.next_offset)
        return following is not None and self._is_sound(position, following)
