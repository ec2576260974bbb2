"""One data, two doors: what AMQP writes Kafka reads, and the other way; streams by offset."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pika
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from support.amqp_pika import Got, consume, drain, get, is_empty, put, settle_for, until
from support.naming import unique

pytestmark = pytest.mark.own_broker
Connect = Callable[..., pika.BlockingConnection]


def read_topic(bootstrap: str, topic: str, count: int) -> list[Any]:
    """The first records of partition 0, read without a group."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": unique("reader")})
    consumer.assign([TopicPartition(topic, 0, 0)])
    got: list[Any] = []
    deadline = time.monotonic() + 15
    while len(got) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None:
            assert message.error() is None, message.error()
            got.append(message)
    consumer.close()
    assert len(got) >= count
    return got


def produce(bootstrap: str, topic: str, *records: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for record in records:
        producer.produce(topic, partition=0, **record)
    assert producer.flush(15) == 0


def test_a_kafka_consumer_reads_a_queue_without_taking(
    channel: BlockingChannel, queue: str, bootstrap: str
) -> None:
    channel.confirm_delivery()
    put(channel, queue, b"1", b"2", b"3", headers={"a": 1}, delivery_mode=2)
    assert get(channel, queue).body == b"1"  # taken, and still in the log
    records = read_topic(bootstrap, queue, 3)
    assert [record.value() for record in records] == [b"1", b"2", b"3"]
    headers = dict(records[0].headers())
    assert headers["amqp.exchange"] == b""
    assert headers["amqp.routing-key"] == queue.encode()
    assert headers["amqp.properties"].startswith(b"\x30\x00")
    assert [got.body for got in drain(channel, queue, 2)] == [b"2", b"3"]


def test_a_kafka_producer_writes_into_a_queue(
    channel: BlockingChannel, queue: str, bootstrap: str
) -> None:
    more = {"key": b"k", "headers": [("trace", b"abc")], "timestamp": 1_700_000_000_000}
    produce(bootstrap, queue, {"value": b"plain"}, {"value": b"rich", **more})
    plain, rich = drain(channel, queue, 2)
    assert plain.body == b"plain"
    assert rich.body == b"rich"
    assert rich.properties.headers["trace"] in ("abc", b"abc")
    assert rich.properties.timestamp == 1_700_000_000
    assert rich.method.routing_key == queue


def test_a_waiting_consumer_gets_what_kafka_writes_at_once(
    channel: BlockingChannel, queue: str, bootstrap: str
) -> None:
    got = consume(channel, queue, 0)
    produce(bootstrap, queue, {"value": b"now"})
    until(channel.connection, lambda: len(got) == 1, within=5)
    assert got[0].body == b"now"


def test_both_doors_fill_one_queue_in_order(
    channel: BlockingChannel, queue: str, bootstrap: str
) -> None:
    channel.confirm_delivery()
    for number in range(10):
        body = b"%d" % number
        put(channel, queue, body) if number % 2 else produce(bootstrap, queue, {"value": body})
    assert [got.body for got in drain(channel, queue, 10)] == [b"%d" % n for n in range(10)]


def test_an_amqp_client_consumes_a_kafka_topic_as_a_queue(
    connection: pika.BlockingConnection, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic("events")
    produce(bootstrap, topic, *[{"value": b"%d" % number} for number in range(5)])
    channel = connection.channel()
    channel.queue_declare(topic, durable=True)
    assert [got.body for got in drain(channel, topic, 5)] == [b"%d" % n for n in range(5)]
    assert is_empty(channel, topic)


def test_a_transaction_of_kafka_is_seen_when_it_commits(
    channel: BlockingChannel, queue: str, bootstrap: str
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unique("tx")})
    producer.init_transactions(15)
    producer.begin_transaction()
    producer.produce(queue, b"aborted", partition=0)
    producer.flush(15)
    assert is_empty(channel, queue)
    producer.abort_transaction(15)
    producer.begin_transaction()
    producer.produce(queue, b"committed", partition=0)
    producer.commit_transaction(15)
    assert get(channel, queue).body == b"committed"
    assert is_empty(channel, queue)


# --- streams --------------------------------------------------------------------------------------


@pytest.fixture
def stream(channel: BlockingChannel) -> str:
    """A stream with the messages 0 to 9."""
    name = unique("stream")
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    put(channel, name, *[b"%d" % number for number in range(10)])
    return name


def read(connection: pika.BlockingConnection, stream: str, count: int, offset: Any) -> list[Got]:
    channel = connection.channel()
    channel.basic_qos(prefetch_count=100)
    arguments = {} if offset is None else {"x-stream-offset": offset}
    got = consume(channel, stream, count, arguments=arguments)
    settle_for(connection, 0.2)
    channel.close()
    return got


@pytest.mark.parametrize(
    ("offset", "first"), [("first", 0), (0, 0), (4, 4), (9, 9), ("last", None), ("next", None)]
)
def test_a_stream_is_read_from_an_offset(
    connection: pika.BlockingConnection, stream: str, offset: Any, first: int | None
) -> None:
    if first is not None:
        got = read(connection, stream, 10 - first, offset)
        assert [one.body for one in got] == [b"%d" % n for n in range(first, 10)]
        assert [one.properties.headers["x-stream-offset"] for one in got] == list(range(first, 10))
    elif offset == "last":
        got = read(connection, stream, 1, offset)
        assert got[-1].body == b"9"
    else:
        assert read(connection, stream, 0, offset) == []


def test_a_stream_is_read_from_a_time(connection: pika.BlockingConnection, stream: str) -> None:
    from datetime import UTC, datetime

    time.sleep(1.1)
    now = datetime.now(UTC).replace(microsecond=0)
    time.sleep(0.2)
    put(connection.channel(), stream, b"new")
    got = read(connection, stream, 1, now.replace(tzinfo=None))
    assert [one.body for one in got] == [b"new"]


def test_a_stream_is_read_by_many_and_stays(connect: Connect, stream: str) -> None:
    for _ in range(3):
        got = read(connect(), stream, 10, "first")
        assert [one.body for one in got] == [b"%d" % n for n in range(10)]
        assert not any(one.method.redelivered for one in got)


def test_a_stream_gives_no_more_than_the_prefetch(
    connection: pika.BlockingConnection, stream: str
) -> None:
    channel = connection.channel()
    channel.basic_qos(prefetch_count=3)
    got = consume(channel, stream, 3, arguments={"x-stream-offset": "first"})
    settle_for(connection, 0.2)
    assert len(got) == 3
    channel.basic_ack(got[1].method.delivery_tag, multiple=True)
    until(connection, lambda: len(got) == 5)


@pytest.mark.parametrize("arguments", [{"x-stream-offset": "zork"}, {"x-stream-offset": -1}])
def test_a_wrong_stream_offset_is_refused(
    connection: pika.BlockingConnection, stream: str, arguments: dict[str, Any]
) -> None:
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.basic_consume(stream, lambda *_: None, arguments=arguments)
    assert refused.value.reply_code == 406


def test_a_stream_is_a_topic(stream: str, bootstrap: str) -> None:
    assert [r.value() for r in read_topic(bootstrap, stream, 10)] == [b"%d" % n for n in range(10)]
    produce(bootstrap, stream, {"value": b"from kafka"})


def test_a_stream_cannot_be_asked_for_one_message(channel: BlockingChannel, stream: str) -> None:
    with pytest.raises(pika.exceptions.AMQPError):
        channel.basic_get(stream)
