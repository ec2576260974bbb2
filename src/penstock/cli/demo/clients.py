"""Three Kafka clients that never heard of Penstock, each with the same two verbs.

`send` waits for every acknowledgement (acks=all); `read` reads all partitions from the beginning.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from typing import Protocol

from confluent_kafka import Consumer, Producer, TopicPartition


class Client(Protocol):
    """A client library."""

    name: str

    def send(self, bootstrap: str, topic: str, values: list[bytes]) -> None: ...

    def read(self, bootstrap: str, topic: str, count: int) -> list[bytes]: ...


class ConfluentKafka:
    """librdkafka, the C library."""

    name = "confluent-kafka"

    def send(self, bootstrap: str, topic: str, values: list[bytes]) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
        for value in values:
            producer.produce(topic, value)
        assert producer.flush(30) == 0

    def read(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "log_level": 0})
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        values: list[bytes] = []
        while len(values) < count and (messages := consumer.consume(count, timeout=2)):
            values += [bytes(message.value() or b"") for message in messages]
        consumer.close()
        return values


class AioKafka:
    """asyncio, Python."""

    name = "aiokafka"

    def send(self, bootstrap: str, topic: str, values: list[bytes]) -> None:
        from aiokafka import AIOKafkaProducer

        async def run() -> None:
            async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
                futures = [await producer.send(topic, value) for value in values]
                await asyncio.gather(*futures)

        asyncio.run(run())

    def read(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        from aiokafka import AIOKafkaConsumer

        async def run() -> list[bytes]:
            values: list[bytes] = []
            options = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}
            async with AIOKafkaConsumer(topic, **options) as consumer:
                while len(values) < count:
                    found = await consumer.getmany(timeout_ms=2000)
                    if not found:
                        break
                    values += [record.value for records in found.values() for record in records]
            return values

        return asyncio.run(run())


class KafkaPython:
    """Pure Python."""

    name = "kafka-python"

    def send(self, bootstrap: str, topic: str, values: list[bytes]) -> None:
        from kafka import KafkaProducer

        producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all")
        futures = [producer.send(topic, value) for value in values]
        for future in futures:
            future.get(timeout=30)
        producer.close()

    def read(self, bootstrap: str, topic: str, count: int) -> list[bytes]:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            consumer_timeout_ms=2000,
        )
        values: list[bytes] = []
        for record in consumer:
            values.append(record.value)
            if len(values) == count:
                break
        consumer.close()
        return values


def installed_clients() -> list[Client]:
    """Those of them that are here; kafka-python comes with the `dev` extra only."""
    for noisy in ("kafka", "aiokafka"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    clients: list[Client] = [ConfluentKafka(), AioKafka()]
    if importlib.util.find_spec("kafka") is not None:
        clients.append(KafkaPython())
    return clients
