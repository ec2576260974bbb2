"""Which batches a topic takes."""

from __future__ import annotations

import pytest

from penstock.errors import (
    CorruptRecord,
    InvalidRecord,
    InvalidTimestamp,
    RecordListTooLarge,
    RecordTooLarge,
)
from penstock.machines.admission import admit
from penstock.model import batch, compression
from penstock.model.records import build_batch, build_marker
from penstock.model.topic_config import TopicSettings, resolve
from support import batches

NOW = 1_700_000_000_000
DAY = 86_400_000


def settings(**overrides: str) -> TopicSettings:
    return resolve({name.replace("_", "."): value for name, value in overrides.items()}, {})


def one_batch(timestamp_ms: int = NOW, key: bytes | None = b"k") -> memoryview:
    return memoryview(build_batch([(key, b"v", ())], timestamp_ms=timestamp_ms))


def test_a_sound_batch_is_taken() -> None:
    assert admit(one_batch(), settings(), NOW).record_count == 1


def test_a_batch_over_the_limit_is_too_large() -> None:
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
        admit(one_batch(), settings(max_message_bytes="50"), NOW)


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    large = memoryview(build_batch([(b"k", b"v" * 2_000_000, ())], timestamp_ms=NOW))
    tight = settings(max_message_bytes="3000000", segment_bytes="1048576")
    with pytest.raises(RecordListTooLarge):
        admit(large, tight, NOW)


def test_two_batches_at_once_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="one batch"):
        admit(memoryview(bytearray(bytes(one_batch()) * 2)), settings(), NOW)


def test_a_flipped_bit_is_noticed() -> None:
    records = one_batch()
    records[65] ^= 1
    with pytest.raises(CorruptRecord, match="checksum"):
        admit(records, settings(), NOW)


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 65])
def test_a_cut_off_batch_is_no_batch_at_all(cut: int) -> None:
    with pytest.raises(InvalidRecord):
        admit(one_batch()[:cut], settings(), NOW)


@pytest.mark.parametrize("magic", [0, 1])
def test_an_old_message_format_is_named_as_such(magic: int) -> None:
    records = one_batch()
    records[16] = magic
    with pytest.raises(InvalidRecord, match="format"):
        admit(records, settings(), NOW)


@pytest.mark.parametrize(("at", "value"), [(23, 5), (23, -1), (57, 7), (57, 0), (57, -1)])
def test_counts_that_contradict_each_other_are_refused(at: int, value: int) -> None:
    records = bytearray(one_batch())
    records[at : at + 4] = value.to_bytes(4, "big", signed=True)
    batch.set_attributes(records, 0, len(records), 0)
    with pytest.raises((InvalidRecord, CorruptRecord)):
        admit(memoryview(records), settings(), NOW)


def test_clients_cannot_write_control_records() -> None:
    marker = build_marker(
        producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp_ms=NOW
    )
    with pytest.raises(InvalidRecord, match="control"):
        admit(memoryview(marker), settings(), NOW)


def test_a_timestamp_from_the_future_is_refused_with_its_index() -> None:
    with pytest.raises(InvalidTimestamp) as refusal:
        admit(one_batch(NOW + 2 * DAY), settings(), NOW)
    assert [index for index, _ in refusal.value.record_errors] == [0]


def test_an_old_timestamp_is_refused_only_where_the_topic_says_so() -> None:
    admit(one_batch(NOW - 300 * DAY), settings(), NOW)
    with pytest.raises(InvalidTimestamp):
        admit(one_batch(NOW - 2 * DAY), settings(message_timestamp_before_max_ms=str(DAY)), NOW)


def test_a_topic_that_stamps_records_itself_does_not_look_at_theirs() -> None:
    admit(one_batch(NOW + 300 * DAY), settings(message_timestamp_type="LogAppendTime"), NOW)


def test_a_compacted_topic_names_the_records_without_a_key() -> None:
    records = build_batch([(b"k", b"1", ()), (None, b"2", ())], timestamp_ms=NOW)
    with pytest.raises(InvalidRecord) as refusal:
        admit(memoryview(records), settings(cleanup_policy="compact"), NOW)
    assert [index for index, _ in refusal.value.record_errors] == [1]


def _recounted(records: bytes, count: int) -> memoryview:
    """The batch with another number of records in its header, and a checksum to match."""
    changed = bytearray(records)
    changed[23:27] = (count - 1).to_bytes(4, "big")
    changed[57:61] = count.to_bytes(4, "big")
    batch.set_attributes(changed, 0, len(changed), changed[22])
    return memoryview(changed)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("claimed", [1, 2, 4, 5])
def test_a_header_that_counts_other_records_than_there_are_is_refused(
    codec: int, claimed: int
) -> None:
    plain = build_batch([(b"k", b"v" * 20, ())] * 3, timestamp_ms=NOW)
    packed = bytes(plain[:61]) + compression.compress(codec, bytes(plain[61:]))
    packed = bytearray(packed)
    packed[8:12] = (len(packed) - 12).to_bytes(4, "big")
    batch.set_attributes(packed, 0, len(packed), codec)
    admit(memoryview(packed), settings(), NOW)
    with pytest.raises((InvalidRecord, CorruptRecord)):
        admit(_recounted(packed, claimed), settings(), NOW)


def test_a_count_that_the_bytes_cannot_hold_is_refused_without_reading_them() -> None:
    with pytest.raises(InvalidRecord, match="cannot hold"):
        admit(_recounted(bytes(one_batch()), 1_000_000), settings(), NOW)


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_bomb_is_refused_before_it_has_unpacked(codec: int) -> None:
    plain = build_batch([(b"k", b"\0" * 40_000_000, ())], timestamp_ms=NOW)
    bomb = bytearray(bytes(plain[:61]) + compression.compress(codec, bytes(plain[61:])))
    bomb[8:12] = (len(bomb) - 12).to_bytes(4, "big")
    batch.set_attributes(bomb, 0, len(bomb), codec)
    with pytest.raises(RecordTooLarge, match="unpacks"):
        admit(memoryview(bomb), settings(max_message_bytes="10000000"), NOW)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_small_packed_batch_cannot_claim_millions_of_records(codec: str) -> None:
    """They would be offsets that nobody wrote, and queues go through them one by one."""
    data = batches.batch([b"v"] * 10, timestamps=[NOW] * 10, codec=codec)
    for at, claimed in ((23, (1 << 31) - 2), (57, (1 << 31) - 1)):
        data = batches.with_header_field(data, at, ">i", claimed)
    with pytest.raises((CorruptRecord, InvalidRecord)):
        admit(memoryview(bytearray(data)), settings(), NOW)


def test_many_records_that_pack_well_are_taken() -> None:
    data = batches.batch([b"v"] * 5000, timestamps=[NOW] * 5000, codec="zstd")
    assert len(data) < 5000
    assert admit(memoryview(bytearray(data)), settings(), NOW).record_count == 5000
