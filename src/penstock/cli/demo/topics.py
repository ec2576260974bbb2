"""Topics of the demonstration: made empty, read whole."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def fresh_topic(bootstrap: str, name: str, partitions: int) -> None:
    """The topic, empty: one of an earlier demonstration is deleted first."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    if name in admin.list_topics(timeout=10).topics:
        admin.delete_topics([name])[name].result(timeout=10)
    admin.create_topics([NewTopic(name, partitions)])[name].result(timeout=10)


def read_all(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Any]:
    """Every message that is in the topic now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    messages: list[Any] = []
    unfinished = set(partitions)
    while unfinished:
        for message in consumer.consume(10_000, timeout=0.2):
            if message.error() is None:
                messages.append(message)
            else:
                unfinished.discard(message.partition())
    consumer.close()
    return messages
