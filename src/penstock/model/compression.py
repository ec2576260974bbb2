"""The four codecs of a record batch, and the bound on what they may unpack to.

A batch is kept compressed as it was sent. Where the broker must look inside (compaction, lookup by
timestamp, queues, key checks) it unpacks into a buffer of a size fixed beforehand, so that a small
batch cannot ask for a large memory.
"""

from __future__ import annotations

import cramjam

from penstock.errors import CorruptRecord, RecordTooLarge, UnsupportedCompression

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# Kafka's Java client frames snappy in the xerial format; librdkafka sends raw blocks.
#   magic "\x82SNAPPY\x00" | version i32 | compatible i32 | { block length i32 | raw snappy } ...
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16


def decompress(codec: int, data: bytes | bytearray | memoryview, limit: int) -> bytes:
    """Unpack at most `limit` bytes, else `RecordTooLarge`."""
    if codec == NONE:
        return bytes(data)
    if codec == SNAPPY:
        return _decompress_snappy(bytes(data), limit)
    try:
        module = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}[codec]
    except KeyError:
        raise UnsupportedCompression(f"unknown codec {codec}") from None
    return _decompress_growing(module, bytes(data), limit)


def _decompress_growing(module: object, data: bytes, limit: int) -> bytes:
    """Try a generous buffer first and grow it to the limit: most batches fit the first time."""
    room = min(limit, max(16 * len(data), 64 * 1024))
    while True:
        # One byte more than allowed tells "exactly full" from "did not fit".
        target = bytearray(room + 1)
        try:
            size = module.decompress_into(data, target)  # type: ignore[attr-defined]
        except cramjam.DecompressionError as failure:
            if room < limit and _ran_out_of_room(failure):
                room = min(limit, room * 8)
                continue
            if _ran_out_of_room(failure):
                raise RecordTooLarge(f"a batch unpacks to more than {limit} bytes") from None
            raise CorruptRecord(f"cannot decompress a batch: {failure}") from None
        if size <= room:
            return bytes(memoryview(target)[:size])
        if room >= limit:
            raise RecordTooLarge(f"a batch unpacks to more than {limit} bytes")
        room = min(limit, room * 8)


def _ran_out_of_room(failure: BaseException) -> bool:
    text = str(failure).lower()
    return "write whole buffer" in text or "too small" in text or "not enough" in text


def _decompress_snappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_block(data, limit)
    parts: list[bytes] = []
    position, room = _XERIAL_HEADER_BYTES, limit
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if length > len(data) - position:
            raise CorruptRecord("a snappy block runs past the end of its batch")
        part = _decompress_snappy_block(data[position : position + length], room)
        room -= len(part)
        parts.append(part)
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: bytes, limit: int) -> bytes:
    # A raw snappy block announces its unpacked size as a varint in front.
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    if size > limit:
        raise RecordTooLarge(f"a batch unpacks to more than {limit} bytes")
    try:
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as failure:
        raise CorruptRecord(f"cannot decompress a batch: {failure}") from None


def compress(codec: int, data: bytes) -> bytes:
    """Pack as Kafka's clients expect it."""
    if codec == NONE:
        return data
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(data))
        version = (1).to_bytes(4, "big")
        return _XERIAL_MAGIC + version + version + len(block).to_bytes(4, "big") + block
    if codec == LZ4:
        return bytes(cramjam.lz4.compress(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data, level=3))
    raise UnsupportedCompression(f"unknown codec {codec}")
