"""Produce, by hand: the one request whose bytes are not copied.

kio would copy the records out of the request and spend longer on the response than the log does on
the append, so this hot API has its own reader and writer. Versions 3 to 13: flexible from 9, topic
ids instead of names from 13.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.errors import MalformedRequest
from penstock.wire.kafka.codec import write_unsigned_varint
from penstock.wire.kafka.framing import read_unsigned_varint, skip_tags

_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_I32_I32 = struct.Struct(">ii")
_RESULT = struct.Struct(">ihqq")
_RESULT_WITH_START = struct.Struct(">ihqqq")


class PartitionRecords(NamedTuple):
    partition: int
    records: memoryview | None


class TopicRecords(NamedTuple):
    topic: str | UUID
    partitions: list[PartitionRecords]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]


class PartitionResult(NamedTuple):
    partition: int
    error_code: int
    base_offset: int = -1
    append_time_ms: int = -1
    start_offset: int = -1
    record_errors: Sequence[tuple[int, str]] = ()
    error_message: str | None = None


def decode(body: memoryview, version: int) -> ProduceRequest:
    """The request; its records are views into `body`."""
    try:
        return _decode_compact(body, version) if version >= 9 else _decode(body)
    except (struct.error, UnicodeDecodeError, ValueError) as failure:
        raise MalformedRequest(f"Produce v{version}: {failure}") from None


def _decode(body: memoryview) -> ProduceRequest:
    transactional_id, at = _read_string(body, 0)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(body, at)
    at += 6
    topics: list[TopicRecords] = []
    (count,) = _I32.unpack_from(body, at)
    at += 4
    for _ in range(_checked_count(count, body, at)):
        name, at = _read_string(body, at)
        if name is None:
            raise MalformedRequest("a topic without a name")
        (partition_count,) = _I32.unpack_from(body, at)
        at += 4
        partitions = []
        for _ in range(_checked_count(partition_count, body, at)):
            index, size = _I32_I32.unpack_from(body, at)
            at += 8
            records = None
            if size >= 0:
                records, at = _slice(body, at, size)
            partitions.append(PartitionRecords(index, records))
        topics.append(TopicRecords(name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_compact(body: memoryview, version: int) -> ProduceRequest:
    transactional_id, at = _read_compact_string(body, 0)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(body, at)
    topics: list[TopicRecords] = []
    count, at = read_unsigned_varint(body, at + 6)
    for _ in range(_checked_count(count - 1, body, at)):
        topic: str | UUID | None
        if version >= 13:
            raw, at = _slice(body, at, 16)
            topic = UUID(bytes=bytes(raw))
        else:
            topic, at = _read_compact_string(body, at)
        if topic is None:
            raise MalformedRequest("a topic without a name")
        partition_count, at = read_unsigned_varint(body, at)
        partitions = []
        for _ in range(_checked_count(partition_count - 1, body, at)):
            (index,) = _I32.unpack_from(body, at)
            size, at = read_unsigned_varint(body, at + 4)
            records = None
            if size:
                records, at = _slice(body, at, size - 1)
            at = skip_tags(body, at)
            partitions.append(PartitionRecords(index, records))
        at = skip_tags(body, at)
        topics.append(TopicRecords(topic, partitions))
    skip_tags(body, at)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _checked_count(count: int, body: memoryview, at: int) -> int:
    if count > len(body) - at:  # an entry has at least one byte
        raise MalformedRequest(f"an array of {count} in the {len(body) - at} bytes left")
    return max(count, 0)


def _slice(body: memoryview, at: int, size: int) -> tuple[memoryview, int]:
    if size < 0 or at + size > len(body):
        raise MalformedRequest(f"{size} bytes of records where {len(body) - at} are left")
    return body[at : at + size], at + size


def _read_string(body: memoryview, at: int) -> tuple[str | None, int]:
    (length,) = _I16.unpack_from(body, at)
    at += 2
    if length < 0:
        return None, at
    raw, at = _slice(body, at, length)
    return str(raw, "utf-8"), at


def _read_compact_string(body: memoryview, at: int) -> tuple[str | None, int]:
    length, at = read_unsigned_varint(body, at)
    if not length:
        return None, at
    raw, at = _slice(body, at, length - 1)
    return str(raw, "utf-8"), at


# --- the response ---------------------------------------------------------------------------------


def encode(
    version: int,
    topics: Sequence[tuple[str | UUID, Sequence[PartitionResult]]],
    throttle_ms: int,
) -> bytearray:
    """The response body."""
    out = bytearray()
    flexible = version >= 9
    _write_count(out, len(topics), flexible)
    for topic, results in topics:
        if isinstance(topic, UUID):
            out += topic.bytes
        else:
            _write_string(out, topic, flexible)
        _write_count(out, len(results), flexible)
        for result in results:
            _write_result(out, result, version)
        if flexible:
            out.append(0)
    out += _I32.pack(throttle_ms)
    if flexible:
        out.append(0)
    return out


def _write_result(out: bytearray, result: PartitionResult, version: int) -> None:
    if version >= 5:
        out += _RESULT_WITH_START.pack(*result[:5])
    else:
        out += _RESULT.pack(*result[:4])
    if version < 8:
        return
    flexible = version >= 9
    _write_count(out, len(result.record_errors), flexible)
    for index, message in result.record_errors:
        out += _I32.pack(index)
        _write_string(out, message, flexible)
        if flexible:
            out.append(0)
    _write_string(out, result.error_message, flexible)
    if flexible:
        out.append(0)


def _write_count(out: bytearray, count: int, flexible: bool) -> None:
    if flexible:
        write_unsigned_varint(out, count + 1)
    else:
        out += _I32.pack(count)


def _write_string(out: bytearray, text: str | None, flexible: bool) -> None:
    if text is None:
        out += b"\0" if flexible else b"\xff\xff"
        return
    raw = text.encode()
    if flexible:
        write_unsigned_varint(out, len(raw) + 1)
    else:
        out += _I16.pack(len(raw))
    out += raw
