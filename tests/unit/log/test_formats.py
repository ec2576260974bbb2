"""Every file of a partition, byte for byte as Kafka writes it."""

from __future__ import annotations

import struct
import uuid

import pytest
from crc32c import crc32c

from penstock.log import checkpoint, layout
from penstock.log.epochs import LeaderEpochs
from penstock.log.offset_index import OffsetIndex
from penstock.log.partition_directory import decode_metadata, encode_metadata
from penstock.log.producer_snapshot import decode_snapshot, encode_snapshot
from penstock.log.time_index import TimeIndex
from penstock.log.txn_index import TransactionIndex
from penstock.model.ids import TopicPartition
from penstock.model.producer import AbortedTransaction, ProducerSnapshotEntry

# --- names ----------------------------------------------------------------------------------------


def test_files_are_named_by_twenty_digits() -> None:
    assert layout.file_name(42, layout.LOG) == "00000000000000000042.log"
    assert layout.offset_of("00000000000000000042.log", layout.LOG) == 42


@pytest.mark.parametrize("name", ["42.log", "00000000000000000042.index", "x.log", ".log"])
def test_other_names_are_not_segments(name: str) -> None:
    assert layout.offset_of(name, layout.LOG) is None


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("orders-0", ("orders", 0)),
        ("with-dash-12", ("with-dash", 12)),
        ("__consumer_offsets-49", ("__consumer_offsets", 49)),
        ("orders", None),
        ("-1", None),
        ("orders-01", None),
        ("orders-0.abc-delete", None),
        ("catalogue.sqlite", None),
    ],
)
def test_partition_directories_are_told_from_other_names(
    name: str, split: tuple[str, int] | None
) -> None:
    assert layout.split_directory(name) == split


# --- the offset index -----------------------------------------------------------------------------


def offset_index() -> OffsetIndex:
    index = OffsetIndex(1000)
    for offset, position in ((1009, 4100), (1019, 8300), (1500, 12500)):
        index.append(offset, position)
    return index


def test_the_offset_index_holds_relative_offsets_and_positions() -> None:
    assert offset_index().to_bytes() == bytes.fromhex(
        "00000009 00001004 00000013 0000206c 000001f4 000030d4"
    )
    assert offset_index().to_bytes(2) == bytes.fromhex("000001f4 000030d4")


def test_an_offset_is_looked_for_at_or_before_its_batch() -> None:
    index = offset_index()
    asked = {1000: 0, 1008: 0, 1009: 4100, 1018: 4100, 1019: 8300, 1499: 8300, 1500: 12500}
    assert {offset: index.position_before(offset) for offset in asked} == asked
    assert index.position_before(1 << 40) == 12500
    assert list(index.positions_behind(4100)) == [8300, 12500]


def test_a_sound_offset_index_is_read_back() -> None:
    index = OffsetIndex.load(1000, offset_index().to_bytes(), 20_000)
    assert index is not None
    assert index.to_bytes() == offset_index().to_bytes()
    assert index.last_entry() == (1500, 12500)


@pytest.mark.parametrize(
    ("data", "log_bytes"),
    [
        (offset_index().to_bytes()[:-1], 20_000),  # cut within an entry
        (offset_index().to_bytes() + bytes(8), 20_000),  # zeros at the end: never written
        (bytes(8) + offset_index().to_bytes() + bytes(8), 20_000),
        (offset_index().to_bytes(), 12_500),  # points behind the log
        (struct.pack(">iiii", 5, 100, 5, 200), 20_000),  # offsets do not rise
        (struct.pack(">iiii", 5, 200, 6, 200), 20_000),  # positions do not rise
        (struct.pack(">ii", -1, 200), 20_000),
    ],
)
def test_a_damaged_offset_index_is_refused(data: bytes, log_bytes: int) -> None:
    assert OffsetIndex.load(1000, data, log_bytes) is None


def test_truncating_the_offset_index_forgets_batches_that_reach_the_offset() -> None:
    index = offset_index()
    index.truncate(1500)
    assert index.last_entry() == (1019, 8300)
    index.truncate(1019)
    assert index.last_entry() == (1009, 4100)
    index.truncate(0)
    assert index.last_entry() is None
    assert index.last_position == 0


# --- the time index -------------------------------------------------------------------------------


def time_index() -> TimeIndex:
    index = TimeIndex(1000)
    index.maybe_append(5000, 1009)
    index.maybe_append(4000, 1019)  # not larger: no entry
    index.maybe_append(6000, 1030)
    return index


def test_the_time_index_holds_timestamps_and_relative_offsets() -> None:
    assert time_index().to_bytes() == bytes.fromhex(
        "0000000000001388 00000009 0000000000001770 0000001e"
    )


def test_a_time_is_looked_for_behind_the_last_smaller_entry() -> None:
    index = time_index()
    asked = {0: 1000, 5000: 1000, 5001: 1009, 6000: 1009, 6001: 1030, 9999: 1030}
    assert {timestamp: index.offset_before(timestamp) for timestamp in asked} == asked


def test_a_time_index_is_read_back_and_a_damaged_one_refused() -> None:
    data = time_index().to_bytes()
    index = TimeIndex.load(1000, data)
    assert index is not None
    assert index.last_entry() == (6000, 1030)
    assert index.last_timestamp == 6000
    assert TimeIndex.load(1000, data + bytes(12)) is None
    assert TimeIndex.load(1000, data[:-1]) is None
    assert TimeIndex.load(1000, data[12:] + data[:12]) is None


def test_truncating_the_time_index_forgets_offsets_from_there_on() -> None:
    index = time_index()
    index.truncate(1030)
    assert index.last_entry() == (5000, 1009)
    index.truncate(1009)
    assert (index.last_entry(), index.last_timestamp) == (None, -1)


# --- the transaction index ------------------------------------------------------------------------

ABORTED = [AbortedTransaction(7, 10, 20, 15), AbortedTransaction(8, 15, 30, 31)]


def transaction_index() -> TransactionIndex:
    index = TransactionIndex()
    for entry in reversed(ABORTED):
        assert index.add(entry)
    return index


def test_the_transaction_index_holds_versioned_entries_by_marker() -> None:
    assert transaction_index().to_bytes() == bytes.fromhex(
        "0000 0000000000000007 000000000000000a 0000000000000014 000000000000000f"
        "0000 0000000000000008 000000000000000f 000000000000001e 000000000000001f"
    )


def test_an_aborted_transaction_is_noted_once() -> None:
    index = transaction_index()
    assert not index.add(ABORTED[0])
    assert list(index) == ABORTED


def test_a_transaction_index_is_read_as_far_as_it_makes_sense() -> None:
    data = transaction_index().to_bytes()
    assert list(TransactionIndex.load(data)) == ABORTED
    assert list(TransactionIndex.load(data[:-1])) == ABORTED[:1]
    assert list(TransactionIndex.load(data[:34] + bytes(34))) == ABORTED[:1]
    assert list(TransactionIndex.load(b"\0\1" + data[2:])) == []


def test_truncating_the_transaction_index_goes_by_marker() -> None:
    index = transaction_index()
    assert index.from_offset(21) == ABORTED[1:]
    index.truncate(30)
    assert list(index) == ABORTED[:1]


# --- producer snapshots ---------------------------------------------------------------------------

PRODUCERS = [
    ProducerSnapshotEntry(1000, 3, 41, 99, 4, 1_700_000_000_000, -1, 90),
    ProducerSnapshotEntry(1001, 0, 2_147_483_647, 50, 0, 5, 2),
]


def test_a_snapshot_is_a_checksum_and_entries_of_46_bytes() -> None:
    data = encode_snapshot(PRODUCERS)
    assert len(data) == 10 + 2 * 46
    version, crc, count = struct.unpack_from(">hIi", data)
    assert (version, count) == (1, 2)
    assert crc == crc32c(data[6:])
    assert data[10:56] == bytes.fromhex(
        "00000000000003e8 0003 00000029 0000000000000063 00000004"
        "0000018bcfe56800 ffffffff 000000000000005a"
    )


def test_a_snapshot_is_read_back_and_a_damaged_one_is_not() -> None:
    data = encode_snapshot(PRODUCERS)
    assert decode_snapshot(data) == PRODUCERS
    assert decode_snapshot(encode_snapshot([])) == []
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0x10
        assert decode_snapshot(bytes(damaged)) is None, f"byte {at}"
        assert decode_snapshot(data[:at]) is None


# --- text files -----------------------------------------------------------------------------------


def test_partition_metadata_holds_the_topic_id_as_kafka_prints_it() -> None:
    topic_id = uuid.UUID("3f2504e0-4f89-41d3-9a0c-0305e82c3301")
    data = encode_metadata(topic_id)
    assert data == b"version: 0\ntopic_id: PyUE4E-JQdOaDAMF6CwzAQ\n"
    assert decode_metadata(data) == topic_id


@pytest.mark.parametrize("data", [b"", b"version: 1\ntopic_id: AAAA", b"version: 0\n", b"\xff\0"])
def test_unreadable_partition_metadata_names_no_topic(data: bytes) -> None:
    assert decode_metadata(data) is None


def test_leader_epochs_are_lines_of_epoch_and_offset() -> None:
    epochs = LeaderEpochs([(0, 0), (3, 150)])
    assert epochs.to_text() == "0\n2\n0 0\n3 150\n"
    read = LeaderEpochs.from_text(epochs.to_text())
    assert read is not None
    assert read.entries == [(0, 0), (3, 150)]


@pytest.mark.parametrize("text", ["", "1\n0\n", "0\n2\n0 0\n", "0\n1\nx y\n", "0\n2\n3 0\n1 5\n"])
def test_damaged_leader_epochs_are_refused(text: str) -> None:
    assert LeaderEpochs.from_text(text) is None


def test_offset_checkpoints_are_lines_of_topic_partition_offset() -> None:
    offsets = {TopicPartition("orders", 0): 1500, TopicPartition("orders", 1): 7}
    data = checkpoint.encode_offsets(offsets)
    assert data == b"0\n2\norders 0 1500\norders 1 7\n"
    assert checkpoint.decode_offsets(data) == offsets
    assert checkpoint.decode_offsets(checkpoint.encode_offsets({})) == {}


@pytest.mark.parametrize("data", [b"", b"0\n1\n", b"0\n1\norders x 3\n", b"9\n0\n", b"0\n\xff\n"])
def test_a_damaged_checkpoint_is_refused(data: bytes) -> None:
    assert checkpoint.decode_offsets(data) is None


def test_the_clean_shutdown_marker_is_kafkas_json() -> None:
    assert checkpoint.encode_clean_shutdown(7) == b'{"version":0,"brokerEpoch":7}'


def test_properties_are_read_back() -> None:
    properties = {"version": "1", "cluster.id": "abc=", "node.id": "3"}
    data = checkpoint.encode_properties(properties)
    assert checkpoint.decode_properties(b"#comment=1\n" + data) == properties
