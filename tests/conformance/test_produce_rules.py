"""The small print of Produce (raw requests): versions, idempotence, sequences, epochs, refusals."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from support.batches import batch, records, with_header_field
from support.fetching import fetch_bytes
from support.waiting import eventually
from support.wire import Wire, create_topic, is_led

Name = Callable[[str], str]


@pytest.fixture
def topic(wire: Wire, name: Name) -> str:
    made = name("produce")
    create_topic(wire, made)
    return made


def produce(
    wire: Wire,
    topic: str,
    data: bytes | None,
    *,
    version: int = 9,
    acks: int = -1,
    transactional_id: str | None = None,
    partition: int = 0,
    topic_id: object = None,
) -> Any:
    values = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [
            {
                "name": topic,
                "topic_id": topic_id,
                "partition_data": [{"index": partition, "records": data}],
            }
        ],
    }
    answer = wire.call("produce", version, values)
    (found,) = answer.responses
    (one,) = found.partition_responses
    return one


def error(wire: Wire, topic: str, data: bytes | None, **options: Any) -> str:
    return str(produce(wire, topic, data, **options).error_code.name)


def producer_id(wire: Wire) -> tuple[int, int]:
    answer = wire.call("init_producer_id", 4, {"transactional_id": None, "transaction_timeout": -1})
    assert answer.error_code.value == 0
    return answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_by_name_writes_the_batch(wire: Wire, topic: str, version: int) -> None:
    answer = produce(wire, topic, batch([b"v"]), version=version)
    assert answer.error_code.value == 0
    assert answer.base_offset == 0
    assert [one.value for one in records(fetch_bytes(wire, topic))] == [b"v"]


def test_the_newest_version_writes_by_topic_id(wire: Wire, name: Name) -> None:
    topic = name("produce")
    identity = create_topic(wire, topic)
    answer = produce(wire, "", batch([b"v"]), version=13, topic_id=identity)
    assert answer.error_code.value == 0
    assert error(wire, "", batch([b"v"]), version=13, topic_id=uuid.uuid4()) == "unknown_topic_id"


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_the_levels_of_acknowledgement_are_three(wire: Wire, topic: str, acks: int) -> None:
    if acks:
        assert error(wire, topic, batch([b"v"]), acks=acks) == "none"
    assert error(wire, topic, batch([b"v"]), acks=2) == "invalid_required_acks"


def test_the_first_offset_kept_comes_with_the_answer(wire: Wire, topic: str) -> None:
    answer = produce(wire, topic, batch([b"v"]))
    assert answer.log_start_offset == 0


def test_an_unknown_topic_or_partition_is_told(wire: Wire, topic: str, name: Name) -> None:
    assert error(wire, name("missing"), batch([b"v"])) == "unknown_topic_or_partition"
    assert error(wire, topic, batch([b"v"]), partition=9) == "unknown_topic_or_partition"


def test_a_repeated_batch_is_acknowledged_with_its_first_offset(wire: Wire, topic: str) -> None:
    """What a producer does when the answer was lost; the last five batches are remembered."""
    who = producer_id(wire)
    batches = [batch([b"a", b"b"], producer=who, sequence=2 * n) for n in range(5)]
    offsets = [produce(wire, topic, one).base_offset for one in batches]
    assert offsets == [0, 2, 4, 6, 8]
    for number, one in enumerate(batches):
        again = produce(wire, topic, one)
        assert again.error_code.value == 0
        assert again.base_offset == 2 * number
    assert len(list(records(fetch_bytes(wire, topic)))) == 10


def test_a_gap_in_the_sequence_is_refused(wire: Wire, topic: str) -> None:
    who = producer_id(wire)
    assert error(wire, topic, batch([b"v"], producer=who, sequence=0)) == "none"
    late = batch([b"v"], producer=who, sequence=2)
    assert error(wire, topic, late) == "out_of_order_sequence_number"
    assert error(wire, topic, batch([b"v"], producer=who, sequence=1)) == "none"


def test_a_batch_too_old_to_be_remembered_is_out_of_order(wire: Wire, topic: str) -> None:
    who = producer_id(wire)
    for sequence in range(8):
        assert error(wire, topic, batch([b"v"], producer=who, sequence=sequence)) == "none"
    forgotten = batch([b"v"], producer=who, sequence=0)
    assert error(wire, topic, forgotten) == "out_of_order_sequence_number"
    assert len(list(records(fetch_bytes(wire, topic)))) == 8


def test_a_producer_that_the_partition_does_not_know_may_start_anywhere(
    wire: Wire, topic: str
) -> None:
    who = producer_id(wire)
    assert error(wire, topic, batch([b"v"], producer=who, sequence=17)) == "none"
    assert error(wire, topic, batch([b"v"], producer=who, sequence=18)) == "none"


def test_an_older_epoch_is_refused(wire: Wire, topic: str) -> None:
    identity, epoch = producer_id(wire)
    newer = batch([b"v"], producer=(identity, epoch + 1), sequence=0)
    assert error(wire, topic, newer) == "none"
    older = batch([b"v"], producer=(identity, epoch), sequence=1)
    assert error(wire, topic, older) == "invalid_producer_epoch"


def test_a_new_epoch_starts_again_at_sequence_zero(wire: Wire, topic: str) -> None:
    identity, epoch = producer_id(wire)
    for sequence in range(3):
        produce(wire, topic, batch([b"v"], producer=(identity, epoch), sequence=sequence))
    wrong = batch([b"v"], producer=(identity, epoch + 1), sequence=3)
    assert error(wire, topic, wrong) == "out_of_order_sequence_number"
    right = batch([b"v"], producer=(identity, epoch + 1), sequence=0)
    assert error(wire, topic, right) == "none"


def test_the_sequence_wraps_around(wire: Wire, topic: str) -> None:
    who = producer_id(wire)
    last = 2**31 - 1
    assert error(wire, topic, batch([b"v", b"w"], producer=who, sequence=last - 1)) == "none"
    assert error(wire, topic, batch([b"x"], producer=who, sequence=0)) == "none"


def test_every_producer_id_is_new(wire: Wire) -> None:
    identities = [producer_id(wire)[0] for _ in range(50)]
    assert len(set(identities)) == 50


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_given_in_every_version(wire: Wire, version: int) -> None:
    values = {"transactional_id": None, "transaction_timeout": -1}
    answer = wire.call("init_producer_id", version, values)
    assert answer.error_code.value == 0
    assert answer.producer_id >= 0
    assert answer.producer_epoch == 0


def test_a_wrong_crc_is_refused(wire: Wire, topic: str) -> None:
    damaged = bytearray(batch([b"value"]))
    damaged[-1] ^= 1
    assert error(wire, topic, bytes(damaged)) == "corrupt_message"
    assert fetch_bytes(wire, topic, max_wait=0) == b""


def test_an_old_message_format_is_refused(wire: Wire, topic: str) -> None:
    old = with_header_field(batch([b"value"]), 16, ">b", 1)
    assert error(wire, topic, old) == "invalid_record"
    assert fetch_bytes(wire, topic, max_wait=0) == b""


def test_two_batches_in_one_partition_of_a_request_are_refused(wire: Wire, topic: str) -> None:
    assert error(wire, topic, batch([b"a"]) + batch([b"b"])) == "invalid_record"


def test_a_control_batch_from_a_client_is_refused(wire: Wire, topic: str) -> None:
    control = with_header_field(batch([b"a"]), 21, ">h", 0x20)
    assert error(wire, topic, control) == "invalid_record"


def test_a_base_offset_other_than_zero_is_refused(wire: Wire, topic: str) -> None:
    shifted = with_header_field(batch([b"a"]), 0, ">q", 5)
    assert error(wire, topic, shifted) == "invalid_record"


def test_transactional_records_need_a_transactional_id(wire: Wire, topic: str) -> None:
    who = producer_id(wire)
    data = batch([b"a"], producer=who, sequence=0, transactional=True)
    assert error(wire, topic, data) == "transactional_id_authorization_failed"
    assert error(wire, topic, data, transactional_id="nobodys") == "invalid_producer_id_mapping"
    assert fetch_bytes(wire, topic, max_wait=0) == b""


def test_nobody_writes_to_the_internal_topics(wire: Wire) -> None:
    find = {"key": "anyone", "key_type": 0}
    wire.call("find_coordinator", 3, find)  # makes the topic if it was not there
    eventually(lambda: is_led(wire, "__consumer_offsets", 0))
    data = batch([b"v"], keys=[b"k"])
    assert error(wire, "__consumer_offsets", data) == "invalid_topic_exception"


def test_log_append_time_is_told_in_the_answer(wire: Wire, name: Name) -> None:
    topic = name("produce")
    create_topic(wire, topic, configs={"message.timestamp.type": "LogAppendTime"})
    answer = produce(wire, topic, batch([b"v"], timestamps=[1000]))
    now = time.time()
    assert answer.log_append_time is not None
    assert abs(answer.log_append_time.timestamp() - now) < 5
    (read,) = records(fetch_bytes(wire, topic))
    assert abs(read.timestamp / 1000 - now) < 5
    assert read.timestamp_type == 1


def test_the_offending_records_are_named(wire: Wire, name: Name) -> None:
    """ProduceResponse v8 and later says which record of the batch was wrong (KIP-467)."""
    topic = name("produce")
    create_topic(wire, topic, configs={"cleanup.policy": "compact"})
    data = batch([b"fine", b"without a key", b"fine"], keys=[b"k", None, b"k"])
    answer = produce(wire, topic, data)
    assert answer.error_code.name == "invalid_record"
    assert [one.batch_index for one in answer.record_errors] == [1]
    assert answer.error_message
