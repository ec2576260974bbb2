"""The small print of Fetch (raw requests): long poll, limits, mid-batch offsets, ids and epochs."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from support.batches import base_offsets, batch, records
from support.fetching import fetch, fetch_bytes, fetch_request
from support.wire import Wire, create_topic

Connect = Callable[[], Wire]
Name = Callable[[str], str]


def produce(wire: Wire, topic: str, *batches: bytes, version: int = 9) -> list[int]:
    """The base offset of each batch."""
    offsets = []
    for data in batches:
        partition = {"index": 0, "records": data}
        values = {
            "transactional_id": None,
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [{"name": topic, "partition_data": [partition]}],
        }
        answer = wire.call("produce", version, values)
        (made,) = answer.responses[0].partition_responses
        assert made.error_code.value == 0, made
        offsets.append(made.base_offset)
    return offsets


@pytest.fixture
def filled(wire: Wire, name: Name) -> str:
    """Offsets 0-2, 3-5 and 6-8 in three batches."""
    topic = name("fetch")
    create_topic(wire, topic)
    values = [b"a", b"b", b"c"]
    assert produce(wire, topic, batch(values), batch(values), batch(values)) == [0, 3, 6]
    return topic


def test_an_offset_inside_a_batch_brings_the_whole_batch(wire: Wire, filled: str) -> None:
    for offset, first in [(0, 0), (2, 0), (3, 3), (4, 3), (8, 6)]:
        assert base_offsets(fetch_bytes(wire, filled, offset))[0] == first


def test_all_batches_from_there_come_in_one_answer(wire: Wire, filled: str) -> None:
    assert base_offsets(fetch_bytes(wire, filled, 4)) == [3, 6]
    values = [one.value for one in records(fetch_bytes(wire, filled))]
    assert values == [b"a", b"b", b"c"] * 3


def test_one_batch_comes_however_small_the_limit(wire: Wire, filled: str) -> None:
    data = fetch_bytes(wire, filled, 0, max_bytes=1, partition_max_bytes=1)
    assert base_offsets(data)[0] == 0
    assert len(list(records(data))) >= 3


def test_the_limit_of_a_partition_is_kept_when_more_is_there(wire: Wire, filled: str) -> None:
    one = len(batch([b"a", b"b", b"c"]))
    data = fetch_bytes(wire, filled, 0, partition_max_bytes=one * 2)
    assert len(data) <= one * 2
    assert base_offsets(data)[0] == 0


def test_the_watermarks_come_with_the_records(wire: Wire, filled: str) -> None:
    partition = fetch(wire, filled, 4)
    assert partition.high_watermark == 9
    assert partition.last_stable_offset == 9
    assert partition.log_start_offset == 0


@pytest.mark.parametrize("offset", [-1, 10, 1 << 40])
def test_an_offset_out_of_range_is_told(wire: Wire, filled: str, offset: int) -> None:
    started = time.monotonic()
    partition = fetch(wire, filled, offset, max_wait=5000)
    assert partition.error_code.name == "offset_out_of_range"
    assert not partition.records
    assert time.monotonic() - started < 3, "an error does not wait"


def test_a_reader_at_the_end_waits_as_long_as_it_asked(wire: Wire, filled: str) -> None:
    started = time.monotonic()
    partition = fetch(wire, filled, 9, max_wait=600)
    waited = time.monotonic() - started
    assert partition.error_code.value == 0
    assert not partition.records
    assert 0.5 <= waited < 2.5


def test_a_reader_that_does_not_want_to_wait_is_answered_at_once(wire: Wire, filled: str) -> None:
    started = time.monotonic()
    fetch(wire, filled, 9, max_wait=0)
    assert time.monotonic() - started < 0.4


def test_a_waiting_reader_is_woken_by_the_first_record(
    connect: Connect, wire: Wire, filled: str
) -> None:
    waiting = connect()
    waiting.send("fetch", 12, fetch_request(filled, 9, max_wait=10_000))
    time.sleep(0.1)
    started = time.monotonic()
    produce(wire, filled, batch([b"new"]))
    answer = waiting.receive()
    assert time.monotonic() - started < 2
    data = bytes(answer.responses[0].partitions[0].records)
    assert [one.value for one in records(data)] == [b"new"]


def test_a_waiting_reader_waits_for_as_many_bytes_as_it_asked(
    connect: Connect, wire: Wire, filled: str
) -> None:
    waiting = connect()
    waiting.send("fetch", 12, fetch_request(filled, 9, max_wait=10_000, min_bytes=3000))
    produce(wire, filled, batch([b"x" * 1000]))
    produce(wire, filled, batch([b"x" * 1000]))
    waiting.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        waiting.socket.recv(1)
    waiting.socket.settimeout(15)
    produce(wire, filled, batch([b"x" * 1000]))
    data = bytes(waiting.receive().responses[0].partitions[0].records)
    assert base_offsets(data) == [9, 10, 11]


def test_min_bytes_count_over_all_partitions(connect: Connect, wire: Wire, name: Name) -> None:
    topic = name("fetch")
    create_topic(wire, topic, partitions=2)
    produce(wire, topic, batch([b"x" * 1000]))
    request = fetch_request(topic, max_wait=300, min_bytes=500)
    first = request["topics"][0]["partitions"][0]
    request["topics"][0]["partitions"] = [{**first, "partition": 1}, first]
    started = time.monotonic()
    answer = wire.call("fetch", 12, request)
    assert time.monotonic() - started < 0.25
    sizes = {one.partition_index: len(one.records or b"") for one in answer.responses[0].partitions}
    assert sizes[0] > 1000
    assert sizes[1] == 0


@pytest.mark.parametrize("version", range(4, 13))
def test_every_version_by_name_brings_the_same_records(
    wire: Wire, filled: str, version: int
) -> None:
    data = fetch_bytes(wire, filled, 3, version=version)
    assert [one.value for one in records(data)] == [b"a", b"b", b"c"] * 2


@pytest.mark.parametrize("version", range(13, 19))
def test_every_version_by_topic_id_brings_the_same_records(
    wire: Wire, name: Name, version: int
) -> None:
    topic = name("fetch")
    identity = create_topic(wire, topic)
    produce(wire, topic, batch([b"a"]))
    data = fetch_bytes(wire, topic, version=version, topic_id=identity)
    assert [one.value for one in records(data)] == [b"a"]


def test_an_unknown_topic_id_is_told(wire: Wire) -> None:
    partition = fetch(wire, "", version=13, topic_id=uuid.uuid4(), max_wait=0)
    assert partition.error_code.name == "unknown_topic_id"


def test_an_unknown_topic_name_is_told(wire: Wire, name: Name) -> None:
    partition = fetch(wire, name("missing"), version=12, max_wait=0)
    assert partition.error_code.name == "unknown_topic_or_partition"


def test_an_unknown_partition_is_told(wire: Wire, filled: str) -> None:
    assert fetch(wire, filled, partition=5).error_code.name == "unknown_topic_or_partition"


def leader_epoch(wire: Wire, topic: str) -> int:
    answer = wire.call("metadata", 12, {"topics": [{"name": topic}]})
    return int(answer.topics[0].partitions[0].leader_epoch)


def test_the_leader_epoch_is_checked(wire: Wire, filled: str) -> None:
    epoch = leader_epoch(wire, filled)
    assert epoch >= 0
    assert fetch(wire, filled, leader_epoch=epoch).error_code.value == 0
    newer = fetch(wire, filled, leader_epoch=epoch + 1, max_wait=0)
    assert newer.error_code.name == "unknown_leader_epoch"


def test_batches_carry_the_leader_epoch(wire: Wire, filled: str) -> None:
    data = fetch_bytes(wire, filled)
    assert int.from_bytes(data[12:16], "big", signed=True) == leader_epoch(wire, filled)


def end_of_epoch(wire: Wire, topic: str, epoch: int, *, current: int = -1, version: int = 4) -> Any:
    asked = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
    values = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [asked]}]}
    answer = wire.call("offset_for_leader_epoch", version, values)
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_the_end_of_an_epoch_can_be_asked_for(wire: Wire, filled: str, version: int) -> None:
    epoch = leader_epoch(wire, filled)
    found = end_of_epoch(wire, filled, epoch, version=version)
    assert (found.error_code.value, found.leader_epoch, found.end_offset) == (0, epoch, 9)


def test_the_end_of_an_epoch_that_never_was_is_unknown(wire: Wire, filled: str) -> None:
    found = end_of_epoch(wire, filled, leader_epoch(wire, filled) + 5)
    assert (found.leader_epoch, found.end_offset) == (-1, -1)
    wrong = end_of_epoch(wire, filled, 0, current=leader_epoch(wire, filled) + 5)
    assert wrong.error_code.name == "unknown_leader_epoch"


def test_crc_and_bytes_after_it_are_those_that_were_sent(wire: Wire, name: Name) -> None:
    topic = name("fetch")
    create_topic(wire, topic)
    sent = batch([b"one", b"two"], codec="zstd")
    produce(wire, topic, batch([b"x"]))
    produce(wire, topic, sent)
    data = fetch_bytes(wire, topic, 1)
    assert data[16:] == sent[16:], "only base offset and leader epoch are the broker's"
    assert data[:8] == (1).to_bytes(8, "big")
