"""One connection, many requests: answers in order, none for acks=0, and no waiting for others."""

from __future__ import annotations

import time
from collections.abc import Callable

from support.batches import batch, records
from support.fetching import fetch_bytes, fetch_request
from support.waiting import eventually
from support.wire import Wire, create_topic, encode_request

Connect = Callable[[], Wire]
Name = Callable[[str], str]


def produce_request(topic: str, data: bytes, *, acks: int = -1) -> dict[str, object]:
    partition = {"index": 0, "records": data}
    topics = [{"name": topic, "partition_data": [partition]}]
    return {"transactional_id": None, "acks": acks, "timeout": 10_000, "topic_data": topics}


def create_topic_named(wire: Wire, topic: str) -> str:
    create_topic(wire, topic)
    return topic


def test_a_hundred_requests_sent_at_once_are_answered_in_order(wire: Wire, name: Name) -> None:
    topic = create_topic_named(wire, name("pipeline"))
    for number in range(100):
        match number % 4:
            case 0:
                wire.send("produce", 9, produce_request(topic, batch([b"%d" % number])))
            case 1:
                wire.send("metadata", 9, {"topics": [{"name": topic}]})
            case 2:
                wire.send("api_versions", 0)
            case _:
                wire.send("fetch", 11, fetch_request(topic, max_wait=0))
    for number in range(100):
        answer = wire.receive()  # asserts that the correlation id is the expected one
        if number % 4 == 0:
            partition = answer.responses[0].partition_responses[0]
            assert partition.error_code.value == 0
            assert partition.base_offset == number // 4


def test_a_quick_request_behind_a_waiting_fetch_waits_its_turn(wire: Wire, name: Name) -> None:
    topic = create_topic_named(wire, name("pipeline"))
    started = time.monotonic()
    wire.send("fetch", 11, fetch_request(topic, max_wait=700))
    wire.send("api_versions", 0)
    assert wire.receive().responses is not None
    assert time.monotonic() - started >= 0.6
    wire.receive()


def test_a_waiting_fetch_does_not_hold_up_other_connections(connect: Connect, name: Name) -> None:
    waiting, other = connect(), connect()
    topic = create_topic_named(waiting, name("pipeline"))
    waiting.send("fetch", 11, fetch_request(topic, max_wait=5000))
    started = time.monotonic()
    other.call("metadata", 9, {"topics": [{"name": topic}]})
    assert time.monotonic() - started < 2
    other.call("produce", 9, produce_request(topic, batch([b"wakes it"])))
    answer = waiting.receive()
    assert time.monotonic() - started < 4
    data = answer.responses[0].partitions[0].records
    assert [one.value for one in records(bytes(data))] == [b"wakes it"]


def test_a_produce_without_acknowledgement_has_no_answer(wire: Wire, name: Name) -> None:
    topic = create_topic_named(wire, name("pipeline"))
    for value in (b"one", b"two"):
        wire.send("produce", 9, produce_request(topic, batch([value]), acks=0), answer=False)
    answer = wire.call("metadata", 9, {"topics": [{"name": topic}]})
    assert answer.topics[0].name == topic

    def values() -> list[bytes]:
        return [one.value for one in records(fetch_bytes(wire, topic))]

    eventually(lambda: values() == [b"one", b"two"])


def test_a_failed_produce_without_acknowledgement_closes_the_connection(
    connect: Connect, name: Name
) -> None:
    """The only way to tell a client that asked for no answer (as Kafka does)."""
    wire = connect()
    request = produce_request(name("missing"), batch([b"lost"]), acks=0)
    wire.send("produce", 9, request, answer=False)
    assert wire.is_closed()


def test_requests_may_arrive_in_pieces(wire: Wire) -> None:
    frame = encode_request("metadata", 9, {"topics": []}, correlation_id=1)
    for at in range(0, len(frame), 3):
        wire.send_bytes(frame[at : at + 3])
        time.sleep(0.005)
    assert int.from_bytes(wire.receive_frame()[:4], "big") == 1


def test_what_was_sent_before_a_client_went_away_is_appended(
    connect: Connect, wire: Wire, name: Name
) -> None:
    topic = create_topic_named(wire, name("pipeline"))
    leaving = connect()
    for number in range(200):
        request = produce_request(topic, batch([b"%d" % number]), acks=0)
        leaving.send("produce", 9, request, answer=False)
    leaving.close()

    def values() -> list[bytes]:
        return [one.value for one in records(fetch_bytes(wire, topic))]

    eventually(lambda: len(values()) == 200)
    assert values() == [b"%d" % number for number in range(200)]
