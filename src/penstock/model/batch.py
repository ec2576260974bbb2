"""A record batch, seen from outside: Kafka's message format, version 2.

The bytes of a batch are the same on the wire and on disk. The broker reads only the header, and
writes only the two fields in front of the checksum, so records stay opaque:

    @0   base offset            i64   set by the broker, outside the checksum
    @8   length                 i32   bytes after this field (size - 12)
    @12  partition leader epoch i32   set by the broker, outside the checksum
    @16  magic                  i8    2
    @17  crc                    u32   CRC-32C of @21 to the end
    @21  attributes             i16   0-2 codec, 3 timestamp type, 4 transactional, 5 control,
                                      6 delete horizon (base timestamp holds it)
    @23  last offset delta      i32
    @27  base timestamp         i64
    @35  max timestamp          i64
    @43  producer id            i64
    @51  producer epoch         i16
    @53  base sequence          i32
    @57  record count           i32
    @61  records

`docs/formats.md` has the records inside. Nothing here allocates more than it is given.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c

from penstock.errors import CorruptRecord, UnsupportedMessageFormat

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
assert HEADER_BYTES == 61
LENGTH_AT = 8
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
LENGTH_PREFIX_BYTES = 12  # base offset and length: what `length` does not count

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_BASE_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_PREFIX = struct.Struct(">qii")


class BatchHeader(NamedTuple):
    """The 61 bytes in front of the records, as integers."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap after 2^31-1."""
        if self.base_sequence < 0:
            return self.base_sequence
        return add_sequence(self.base_sequence, self.last_offset_delta)


def add_sequence(sequence: int, increment: int) -> int:
    """Producer sequences count from 0 to 2^31-1 and start again."""
    return (sequence + increment) & 0x7FFFFFFF


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`; the caller has made sure that 61 bytes are there."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def checked_batches(
    buffer: bytes | bytearray | memoryview, *, where: str = "request"
) -> list[tuple[int, BatchHeader]]:
    """Every batch in `buffer` with its position, each checked: size, magic, checksum, counts.

    Raises `CorruptRecord` if the buffer is not exactly a row of whole, sound batches.
    """
    found: list[tuple[int, BatchHeader]] = []
    view = memoryview(buffer)
    end = len(view)
    position = 0
    while position < end:
        if end - position < HEADER_BYTES:
            if end - position > MAGIC_AT and view[position + MAGIC_AT] < 2:
                raise UnsupportedMessageFormat("message format older than version 2")
            raise CorruptRecord(f"{where}: {end - position} bytes left at {position}, not a batch")
        header = BatchHeader._make(HEADER.unpack_from(view, position))
        check_header(header, end - position, where, position)
        if crc32c(view[position + ATTRIBUTES_AT : position + header.length + 12]) != header.crc:
            raise CorruptRecord(f"{where}: wrong checksum in the batch at {position}")
        found.append((position, header))
        position += header.length + LENGTH_PREFIX_BYTES
    return found


def check_header(header: BatchHeader, available: int, where: str, position: int) -> None:
    """Everything that can be known of a batch without reading past its header."""
    if header.magic != 2:
        if 0 <= header.magic < 2:
            raise UnsupportedMessageFormat("message format older than version 2")
        raise CorruptRecord(f"{where}: magic byte {header.magic} at {position}")
    size = header.length + LENGTH_PREFIX_BYTES
    if size < HEADER_BYTES or size > available:
        raise CorruptRecord(
            f"{where}: a batch of {size} bytes at {position}, {available} are there"
        )
    if header.last_offset_delta < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise CorruptRecord(
            f"{where}: {header.record_count} records over {header.last_offset_delta + 1} offsets "
            f"at {position}"
        )
    if header.attributes & CODEC_MASK > 4:
        raise CorruptRecord(f"{where}: unknown codec {header.attributes & CODEC_MASK}")


def whole_batches(buffer: bytes | bytearray | memoryview, start: int = 0) -> Iterator[BatchHeader]:
    """Headers of the whole batches in `buffer`; stops at the first one that is cut off.

    No checksum is looked at: use it on bytes that have been checked.
    """
    end = len(buffer)
    while end - start >= HEADER_BYTES:
        header = BatchHeader._make(HEADER.unpack_from(buffer, start))
        if header.length + LENGTH_PREFIX_BYTES > end - start:
            return
        yield header
        start += header.length + LENGTH_PREFIX_BYTES


def crc_is_right(
    buffer: bytes | bytearray | memoryview, position: int, header: BatchHeader
) -> bool:
    """Whether the checksum of the whole batch at `position` matches its bytes."""
    view = memoryview(buffer)
    return crc32c(view[position + ATTRIBUTES_AT : position + header.size]) == header.crc


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, epoch: int) -> None:
    """Give the batch at `position` its place in the log. Does not touch the checksummed bytes."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + 12, epoch)


def set_attributes(
    buffer: bytearray | memoryview, position: int, size: int, attributes: int
) -> None:
    """Replace the attributes of a batch and mend its checksum."""
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_AT, attributes)
    _mend_crc(buffer, position, size)


def set_log_append_time(
    buffer: bytearray | memoryview, position: int, header: BatchHeader, now_ms: int
) -> None:
    """Mark the batch as stamped by the broker at `now_ms` and mend its checksum."""
    _ATTRIBUTES.pack_into(
        buffer, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME_FLAG
    )
    _MAX_TIMESTAMP.pack_into(buffer, position + 35, now_ms)
    _mend_crc(buffer, position, header.size)


def _mend_crc(buffer: bytearray | memoryview, position: int, size: int) -> None:
    view = memoryview(buffer)
    _CRC.pack_into(
        buffer, position + CRC_AT, crc32c(view[position + ATTRIBUTES_AT : position + size])
    )
