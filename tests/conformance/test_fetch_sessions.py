"""Incremental fetch sessions (KIP-227), by raw requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.batches import batch
from support.fetching import fetch_request
from support.wire import Wire, create_topic

Connect = Callable[[], Wire]
Name = Callable[[str], str]


@pytest.fixture
def topic(wire: Wire, name: Name) -> str:
    made = name("session")
    create_topic(wire, made, partitions=3)
    return made


def produce(wire: Wire, topic: str, partition: int) -> None:
    data = {"index": partition, "records": batch([b"v"])}
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [data]}],
    }
    wire.call("produce", 9, values)


def ask(
    wire: Wire,
    topic: str,
    partitions: dict[int, int],
    session: tuple[int, int],
    *,
    forget: list[int] | None = None,
    version: int = 12,
    max_wait: int = 0,
) -> Any:
    """One Fetch of {partition: offset} in (session id, epoch)."""
    request = fetch_request(topic, max_wait=max_wait)
    request["session_id"], request["session_epoch"] = session
    request["topics"] = []
    if partitions:
        asked = [
            {"partition": number, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            for number, offset in partitions.items()
        ]
        request["topics"] = [{"topic": topic, "partitions": asked}]
    if forget:
        request["forgotten_topics_data"] = [{"topic": topic, "partitions": forget}]
    return wire.call("fetch", version, request)


def told(answer: Any) -> dict[int, int]:
    """Which partitions are in the answer, with how many bytes."""
    return {
        one.partition_index: len(one.records or b"")
        for each in answer.responses
        for one in each.partitions
    }


def open_session(wire: Wire, topic: str) -> int:
    answer = ask(wire, topic, {0: 0, 1: 0, 2: 0}, (0, 0))
    assert answer.error_code.value == 0
    assert set(told(answer)) == {0, 1, 2}, "the first answer is full"
    assert answer.session_id > 0
    return int(answer.session_id)


def test_a_session_remembers_its_partitions_and_tells_only_what_changed(
    wire: Wire, topic: str
) -> None:
    session = open_session(wire, topic)
    assert told(ask(wire, topic, {}, (session, 1))) == {}
    produce(wire, topic, 1)
    answer = ask(wire, topic, {}, (session, 2))
    assert answer.session_id == session
    assert list(told(answer)) == [1]
    assert told(answer)[1] > 0
    assert told(ask(wire, topic, {1: 1}, (session, 3))) == {}, "it moved on, and nothing is new"


def test_records_that_were_not_consumed_come_again(wire: Wire, topic: str) -> None:
    session = open_session(wire, topic)
    produce(wire, topic, 0)
    for epoch in (1, 2, 3):
        assert list(told(ask(wire, topic, {}, (session, epoch)))) == [0]


def test_a_forgotten_partition_is_no_longer_told(wire: Wire, topic: str) -> None:
    session = open_session(wire, topic)
    ask(wire, topic, {}, (session, 1), forget=[1])
    produce(wire, topic, 1)
    produce(wire, topic, 2)
    assert list(told(ask(wire, topic, {}, (session, 2)))) == [2]


def test_a_partition_can_be_added_to_a_session(wire: Wire, topic: str) -> None:
    answer = ask(wire, topic, {0: 0}, (0, 0))
    session = answer.session_id
    produce(wire, topic, 2)
    assert told(ask(wire, topic, {}, (session, 1))) == {}
    assert list(told(ask(wire, topic, {2: 0}, (session, 2)))) == [2]


def test_a_wrong_epoch_is_refused(wire: Wire, topic: str) -> None:
    session = open_session(wire, topic)
    answer = ask(wire, topic, {}, (session, 5))
    assert answer.error_code.name == "invalid_fetch_session_epoch"
    assert told(answer) == {}


def test_an_unknown_session_is_refused(wire: Wire, topic: str) -> None:
    answer = ask(wire, topic, {}, (123_456_789, 1))
    assert answer.error_code.name == "fetch_session_id_not_found"


def test_a_closed_session_is_unknown_and_its_last_answer_is_full(wire: Wire, topic: str) -> None:
    session = open_session(wire, topic)
    answer = ask(wire, topic, {0: 0}, (session, -1))
    assert answer.session_id == 0
    assert set(told(answer)) == {0}
    gone = ask(wire, topic, {}, (session, 1))
    assert gone.error_code.name == "fetch_session_id_not_found"


def test_an_epoch_of_zero_replaces_the_session(wire: Wire, topic: str) -> None:
    session = open_session(wire, topic)
    answer = ask(wire, topic, {0: 0}, (session, 0))
    assert answer.error_code.value == 0
    assert answer.session_id not in {0, session}
    gone = ask(wire, topic, {}, (session, 1))
    assert gone.error_code.name == "fetch_session_id_not_found"


def test_without_a_session_every_partition_is_told_every_time(wire: Wire, topic: str) -> None:
    for _ in range(2):
        answer = ask(wire, topic, {0: 0, 1: 0}, (0, -1))
        assert answer.session_id == 0
        assert set(told(answer)) == {0, 1}


def test_an_incremental_fetch_waits_for_records(connect: Connect, wire: Wire, topic: str) -> None:
    session = open_session(wire, topic)
    request = fetch_request(topic, max_wait=10_000)
    request.update(session_id=session, session_epoch=1, topics=[])
    wire.send("fetch", 12, request)
    produce(connect(), topic, 2)
    assert list(told(wire.receive())) == [2]


def test_a_client_that_opens_a_session_each_time_does_no_harm(wire: Wire, topic: str) -> None:
    """Some clients do (and never close them), so the number of sessions is bounded."""
    session = open_session(wire, topic)
    for _ in range(1500):
        wire.send("fetch", 12, {**fetch_request(topic, max_wait=0), "session_epoch": 0})
        assert wire.receive().error_code.value == 0
    answer = ask(wire, topic, {}, (session, 1))
    assert answer.error_code.name in {"none", "fetch_session_id_not_found"}
