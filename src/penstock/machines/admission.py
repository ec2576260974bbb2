"""Which batches a topic takes: the checks between a client's bytes and the log.

What the header tells is checked for every batch. Records are looked at only where the topic's
settings make it necessary: a compacted topic needs keys, a bound on old timestamps needs each one.
"""

from __future__ import annotations

from penstock.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    RecordListTooLarge,
    RecordTooLarge,
    UnsupportedMessageFormat,
)
from penstock.model.batch import (
    HEADER_BYTES,
    BatchHeader,
    checked_batches,
    crc_is_right,
    read_header,
)
from penstock.model.ids import NO_TIMESTAMP
from penstock.model.records import UNPACK_LIMIT, read_records
from penstock.model.topic_config import TopicSettings

_FOREVER_MS = (1 << 63) - 1
_SMALLEST_RECORD = 7  # length, attributes, two deltas, no key, no value, no headers: a byte each
_READ_THROUGH = 128  # batches of up to so many records are read through


def admit(records: memoryview, settings: TopicSettings, now_ms: int) -> BatchHeader:
    """The header of the one batch in `records`, or the reason why the topic refuses it."""
    try:
        batches = checked_batches(records)
    except UnsupportedMessageFormat as old:
        raise InvalidRecord(str(old)) from None
    except CorruptRecord as damage:
        if _was_made_so(records):
            raise InvalidRecord(str(damage)) from None
        raise
    if len(batches) != 1:
        raise InvalidRecord(f"a partition takes one batch a request, not {len(batches)}")
    header = batches[0][1]
    size = header.size
    if size > settings.max_message_bytes:
        raise RecordTooLarge(
            f"a batch of {size} bytes; max.message.bytes is {settings.max_message_bytes}"
        )
    if size > settings.segment_bytes:
        raise RecordListTooLarge(
            f"a batch of {size} bytes; segment.bytes is {settings.segment_bytes}"
        )
    if header.record_count != header.last_offset_delta + 1 or header.record_count == 0:
        raise InvalidRecord(
            f"a batch of {header.record_count} records over {header.last_offset_delta + 1} offsets"
        )
    if header.base_offset != 0:
        raise InvalidRecord(f"a client's batch begins at offset 0, not {header.base_offset}")
    if header.is_control:
        raise InvalidRecord("clients may not write control records")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecord("an idempotent batch needs an epoch and a sequence")
    _check_records(records, header)
    if not settings.log_append_time:
        _check_timestamps(records, header, settings, now_ms)
    if settings.compacted:
        _check_keys(records)
    return header


def _was_made_so(records: memoryview) -> bool:
    """Whether a batch was written wrongly, not damaged on its way: sending it again is no use."""
    if len(records) < HEADER_BYTES:
        return True
    header = read_header(records)
    if header.magic != 2 or header.size < HEADER_BYTES:
        return False
    return header.size > len(records) or crc_is_right(records, 0, header)


def _check_records(records: memoryview, header: BatchHeader) -> None:
    """Whether the records are there that the header counts.

    A client that gets this wrong would stop every reader of the partition. Small batches are read
    through, which finds every mistake; in large ones that would cost a third of the broker's
    throughput, so there only what cannot be true is refused, and the checksum is trusted. Packed
    records can be many in few bytes: more of them than bytes is rare enough to be looked at.
    """
    count = header.record_count
    if not header.codec and header.size < HEADER_BYTES + _SMALLEST_RECORD * count:
        raise InvalidRecord(f"{header.size} bytes cannot hold {count} records")
    if count > _READ_THROUGH and (not header.codec or count <= header.size - HEADER_BYTES):
        return
    expected = header.base_offset
    try:
        for record in read_records(records, UNPACK_LIMIT):
            if record.offset != expected:
                raise InvalidRecord("the records of a batch are not numbered one after the other")
            expected += 1
    except CorruptRecord as nonsense:
        raise InvalidRecord(str(nonsense)) from None  # the checksum is right: it was made so


def _check_timestamps(
    records: memoryview, header: BatchHeader, settings: TopicSettings, now_ms: int
) -> None:
    latest = min(now_ms + settings.message_timestamp_after_max_ms, _FOREVER_MS)
    earliest = now_ms - settings.message_timestamp_before_max_ms
    # Only the first and the highest timestamp are in the header: a bound on old ones needs a look.
    if header.max_timestamp <= latest and earliest <= 0:
        return
    wrong = tuple(
        (index, f"timestamp {record.timestamp} is not within [{earliest}, {latest}]")
        for index, record in enumerate(read_records(records))
        if record.timestamp != NO_TIMESTAMP and not earliest <= record.timestamp <= latest
    )
    if wrong:
        raise InvalidTimestamp(
            f"{len(wrong)} records have a timestamp too far from the broker's clock", wrong
        )


def _check_keys(records: memoryview) -> None:
    keyless = tuple(
        (index, "a compacted topic needs a key")
        for index, record in enumerate(read_records(records))
        if record.key is None
    )
    if keyless:
        raise InvalidRecord("a compacted topic cannot accept a record without a key", keyless)
