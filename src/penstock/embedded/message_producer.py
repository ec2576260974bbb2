"""Producers for code with an event loop: one that sends, one that keeps order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from penstock.client.message import Message, Receipt
from penstock.client.partitioner import partition_of_key
from penstock.embedded.underneath import DEFAULT_SERVERS, Underneath, Where, client_of


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """What is said of every message that a producer sends. The time to live is in seconds."""

    default_priority: int = 0
    default_ttl: float | None = None


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a message went, and when, in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class MessageProducer(Underneath):
    """Sends messages to a broker elsewhere, or to one that is open in this process.

    >>> import asyncio, penstock
    >>> async def main():
    ...     with penstock.open(None) as mq:
    ...         producer = MessageProducer(mq)
    ...         return await producer.send("orders", b"hello", key="user-1")
    >>> asyncio.run(main()).offset
    0
    """

    def __init__(
        self, bootstrap_servers: Where = DEFAULT_SERVERS, config: ProducerConfig | None = None
    ) -> None:
        client, owned = client_of(bootstrap_servers)
        super().__init__(client, owned=owned)
        self.config = config or ProducerConfig()

    def __repr__(self) -> str:
        return f"<MessageProducer on {self.client!r}>"

    async def send(
        self,
        topic: str,
        value: bytes,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RecordMetadata:
        """Send a message and wait until it is safe. To pipeline, gather several."""
        sent = await asyncio.to_thread(
            self.client.send,
            topic,
            value,
            key=key,
            headers=headers,
            priority=self.config.default_priority,
            ttl=self.config.default_ttl,
        )
        return metadata(await asyncio.wrap_future(sent))


class KeyPartitioner(Protocol):
    """Says in which partition of a topic a key is."""

    def partition(self, topic: str, key: str) -> int: ...


class PartitionedProducer(Underneath):
    """Sends messages that must stay in order.

    Without a partitioner a key is where every Kafka client puts it.

    >>> import asyncio, penstock
    >>> with penstock.open(None) as mq:
    ...     producer = PartitionedProducer(servers=mq)
    ...     sent = asyncio.run(producer.send_ordered("orders", "user-1", [b"a", b"b", b"c"]))
    >>> [metadata.offset for metadata in sent]
    [0, 1, 2]
    """

    def __init__(
        self, partitioner: KeyPartitioner | None = None, *, servers: Where = DEFAULT_SERVERS
    ) -> None:
        client, owned = client_of(servers)
        super().__init__(client, owned=owned)
        self.partitioner = partitioner

    def __repr__(self) -> str:
        return f"<PartitionedProducer on {self.client!r}>"

    async def send_ordered(
        self, topic: str, key: str, messages: Sequence[Message | bytes | str]
    ) -> list[RecordMetadata]:
        """Send messages one behind the other into one partition; returns when all are safe."""
        receipts = await asyncio.to_thread(self._send, topic, key, messages)
        return [metadata(receipt) for receipt in receipts]

    def _send(
        self, topic: str, key: str, messages: Sequence[Message | bytes | str]
    ) -> Sequence[Receipt]:
        if self.partitioner is None:
            return self.client.send_ordered(topic, key, messages)
        partition = self.partitioner.partition(topic, key)
        return self.client.publish_many(topic, messages, key=key, partition=partition)


class HashPartitioner:
    """Kafka's own rule, for topics of a known number of partitions.

    >>> HashPartitioner(4).partition("orders", "user-1")
    0
    """

    def __init__(self, partition_count: int) -> None:
        self._count = partition_count

    def partition(self, topic: str, key: str) -> int:
        return partition_of_key(key.encode(), self._count)


def metadata(receipt: Receipt) -> RecordMetadata:
    """A receipt in the words of the documents."""
    return RecordMetadata(receipt.topic, receipt.partition, receipt.offset, receipt.timestamp_ms)
