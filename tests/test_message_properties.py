"""docs/message-properties.md says the truth, for Kafka clients, AMQP clients and the library."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from confluent_kafka import Consumer, Producer

import penstock
from penstock import LocalClient

PAGE = Path(__file__).resolve().parents[1] / "docs" / "message-properties.md"

WISHES = {
    "key": "user-1",
    "message_id": "m-1",
    "correlation_id": "c-1",
    "reply_to": "answers",
    "priority": 5,
    "ttl": 3600,
    "headers": {"source": "web", "ä": "ö"},
}
RECORD_HEADERS = {
    "source": b"web",
    "ä": "ö".encode(),
    "message-id": b"m-1",
    "correlation-id": b"c-1",
    "reply-to": b"answers",
    "priority": b"5",
    "expiration": b"3600000",
}


@pytest.fixture
def mq() -> Iterator[LocalClient]:
    with penstock.open(
        None, kafka="127.0.0.1:0", amqp="127.0.0.1:0", group_initial_rebalance_delay_ms=0
    ) as client:
        yield client


@pytest.fixture
def channel(mq: LocalClient) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    assert mq.amqp is not None
    host, port = mq.amqp.split(":")
    with pika.BlockingConnection(pika.ConnectionParameters(host, int(port))) as connection:
        yield connection.channel()


def _check(message: penstock.Message) -> None:
    assert (message.payload, message.key) == (b"hello", b"user-1")
    assert message.message_id == "m-1"
    assert message.correlation_id == "c-1"
    assert message.reply_to == "answers"
    assert message.priority == 5
    assert message.ttl == 3600
    assert {name: message.headers[name] for name in ("source", "ä")} == {"source": "web", "ä": "ö"}


def test_a_kafka_client_reads_what_the_library_published(mq: LocalClient) -> None:
    due = time.time() + 3600
    receipt = mq.publish("orders", "hello", **WISHES, deliver_at=due)  # type: ignore[arg-type]
    _check(next(iter(mq.read("orders", receipt.partition))))
    consumer = Consumer(
        {"bootstrap.servers": mq.kafka, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    record = consumer.poll(60)
    consumer.close()
    assert record is not None
    assert (record.value(), record.key()) == (b"hello", b"user-1")
    headers = dict(record.headers())
    assert abs(int(headers.pop("penstock.due")) - due * 1000) <= 1
    assert headers == RECORD_HEADERS


def test_the_library_reads_what_a_kafka_client_published(mq: LocalClient) -> None:
    mq.queue("work", max_priority=9)
    producer = Producer({"bootstrap.servers": mq.kafka})
    headers = [*RECORD_HEADERS.items(), ("penstock.retry-count", b"2")]
    for topic in ("orders", "work"):
        producer.produce(topic, b"hello", b"user-1", headers=headers)
    assert producer.flush(60) == 0
    with mq.subscribe("orders", idle_timeout=30) as messages:
        message = next(messages)
    _check(message)
    assert message.retry_count == 2
    taken = mq.queue("work").get(timeout=30)
    assert taken is not None
    _check(taken)
    assert taken.retry_count == 2


def test_an_amqp_client_reads_what_the_library_published(mq: LocalClient, channel) -> None:  # type: ignore[no-untyped-def]
    mq.queue("work", max_priority=9).publish("hello", **WISHES)
    _, properties, body = channel.basic_get("work", auto_ack=True)
    assert body == b"hello"
    assert properties.message_id == "m-1"
    assert properties.correlation_id == "c-1"
    assert properties.reply_to == "answers"
    assert properties.priority == 5
    assert properties.expiration == "3600000"
    assert properties.headers == {"source": "web", "ä": "ö", "kafka.key": "user-1"}


def test_the_library_reads_what_an_amqp_client_published(mq: LocalClient, channel) -> None:  # type: ignore[no-untyped-def]
    mq.queue("work", max_priority=9)
    channel.basic_publish(
        "",
        "work",
        b"hello",
        pika.BasicProperties(
            message_id="m-1",
            correlation_id="c-1",
            reply_to="answers",
            priority=5,
            expiration="3600000",
            timestamp=1_700_000_000,
            headers={"source": "web", "ä": "ö", "kafka.key": "user-1"},
        ),
    )
    taken = mq.queue("work").get(timeout=30)
    assert taken is not None
    _check(taken)
    assert taken.timestamp is not None
    assert taken.timestamp.timestamp() == 1_700_000_000
    stream = next(iter(mq.read("work")))  # the same message, read as a stream
    assert stream.message_id == "m-1"
    assert (stream.offset, stream.priority) == (0, 5)


def test_the_page_names_every_field_of_a_message() -> None:
    page = PAGE.read_text(encoding="utf-8")
    fields = [name for name, kind in vars(penstock.Message).items() if isinstance(kind, property)]
    fields += ["key", "topic", "partition", "offset", "raw_headers"]
    told = {"properties", "text"}  # other ways to say the same
    assert [name for name in fields if name not in told and f"`{name}`" not in page] == []
