"""`penstock_broker` in tests of code that uses others' clients: the way their users would."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pika
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from faststream.confluent import KafkaBroker as ConfluentBroker
from faststream.kafka import KafkaBroker
from faststream.rabbit import RabbitBroker

from penstock.testing import BrokerForTests
from support.waiting import eventually

PATIENCE = 20.0

# kafka-python and Celery leave sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_confluent_kafka(penstock_broker: BrokerForTests) -> None:
    producer = Producer({"bootstrap.servers": penstock_broker.kafka})
    producer.produce("orders", b"hello", key=b"k")
    assert producer.flush(PATIENCE) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": penstock_broker.kafka,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    message = consumer.poll(PATIENCE)
    assert message is not None
    assert message.value() == b"hello"
    consumer.close()


def test_aiokafka(penstock_broker: BrokerForTests) -> None:
    async def scenario() -> None:
        async with AIOKafkaProducer(bootstrap_servers=penstock_broker.kafka) as producer:
            await producer.send_and_wait("orders", b"hello")
        async with AIOKafkaConsumer(
            "orders",
            bootstrap_servers=penstock_broker.kafka,
            group_id="g",
            auto_offset_reset="earliest",
        ) as consumer:
            message = await asyncio.wait_for(consumer.getone(), PATIENCE)
            assert message.value == b"hello"

    asyncio.run(scenario())


def test_kafka_python(penstock_broker: BrokerForTests) -> None:
    from kafka import KafkaConsumer, KafkaProducer  # importing it warns

    producer = KafkaProducer(bootstrap_servers=penstock_broker.kafka)
    producer.send("orders", b"hello").get(timeout=PATIENCE)
    producer.close()
    consumer = KafkaConsumer(
        "orders",
        bootstrap_servers=penstock_broker.kafka,
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(PATIENCE * 1000),
    )
    assert next(consumer).value == b"hello"
    consumer.close()


def test_pika(penstock_broker: BrokerForTests) -> None:
    with pika.BlockingConnection(pika.URLParameters(penstock_broker.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("work", durable=True)
        channel.basic_publish("", "work", b"hello", pika.BasicProperties(delivery_mode=2))
        method, _, body = channel.basic_get("work")
        assert body == b"hello"
        channel.basic_ack(method.delivery_tag)
    assert penstock_broker.client.queue("work").stats().ready == 0


def _faststream(broker: Any, subscribe: dict[str, Any], publish: dict[str, Any]) -> list[str]:
    """An application that answers each message on one topic with another on a second."""
    found: list[str] = []

    async def scenario() -> None:
        arrived = asyncio.Event()

        @broker.subscriber("names", **subscribe)
        @broker.publisher("greetings")
        async def greet(name: str) -> str:
            return f"hello {name}"

        @broker.subscriber("greetings", **subscribe)
        async def hear(greeting: str) -> None:
            found.append(greeting)
            arrived.set()

        async with broker:
            await broker.start()
            async with asyncio.timeout(60):
                while not arrived.is_set():
                    await broker.publish("you", "names", **publish)
                    try:
                        await asyncio.wait_for(arrived.wait(), 2)
                    except TimeoutError:
                        continue  # a subscriber that reads from the end may have come later

    asyncio.run(scenario())
    return found


def test_faststream_with_aiokafka(penstock_broker: BrokerForTests) -> None:
    for topic in ("names", "greetings"):
        penstock_broker.client.admin.create_topic(topic)
    broker = KafkaBroker(penstock_broker.kafka)
    found = _faststream(broker, {"group_id": "g", "auto_offset_reset": "earliest"}, {})
    assert set(found) == {"hello you"}


def test_faststream_with_confluent_kafka(penstock_broker: BrokerForTests) -> None:
    for topic in ("names", "greetings"):
        penstock_broker.client.admin.create_topic(topic)
    broker = ConfluentBroker(penstock_broker.kafka)
    found = _faststream(broker, {"group_id": "g", "auto_offset_reset": "earliest"}, {})
    assert set(found) == {"hello you"}


def test_faststream_with_rabbit(penstock_broker: BrokerForTests) -> None:
    found = _faststream(RabbitBroker(penstock_broker.amqp_url), {}, {})
    assert set(found) == {"hello you"}


# Celery gives an app the shared tasks of every module that was ever imported here.
@pytest.mark.filterwarnings("ignore::celery.exceptions.DuplicateTaskNameWarning")
def test_celery(penstock_broker: BrokerForTests) -> None:
    from celery import Celery
    from celery.contrib.testing.worker import start_worker

    app = Celery("shop", broker=penstock_broker.amqp_url, backend=None)
    app.conf.worker_hijack_root_logger = False
    done: list[int] = []
    came = threading.Event()

    @app.task(name="shop.add")  # type: ignore[untyped-decorator]
    def add(one: int, other: int) -> None:
        done.append(one + other)
        came.set()

    with start_worker(app, pool="solo", perform_ping_check=False, shutdown_timeout=PATIENCE):
        add.delay(40, 2)
        assert came.wait(PATIENCE)
    assert done == [42]
    eventually(lambda: penstock_broker.client.queue("celery").stats().ready == 0)
