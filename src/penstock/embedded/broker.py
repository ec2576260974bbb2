"""A broker of partitions, producers who take turns among them, consumers with offsets of their own.

broker = Broker(partition_count=2)
Producer(broker).send("hello")                      # the partition it went to
Consumer(broker, partition_index=0).poll()          # a message, or None
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from penstock.client.errors import AlreadyExists, InvalidArgument
from penstock.client.message import Message
from penstock.client.opening import open
from penstock.embedded.underneath import Underneath

Content = str | bytes

_BYTES = {"content-type": "application/octet-stream"}
_AHEAD = 500  # messages that a consumer takes out of the log at once


class Broker(Underneath):
    """Keeps messages in partitions. In memory; with a `path`, on disk.

    >>> broker = Broker(partition_count=2)
    >>> producer = Producer(broker)
    >>> [producer.send(f"m{n}") for n in range(4)]
    [0, 1, 0, 1]
    >>> Consumer(broker, partition_index=1).poll()
    'm1'
    >>> broker.close()
    """

    def __init__(
        self,
        partition_count: int = 2,
        *,
        path: str | Path | None = None,
        topic: str = "messages",
    ) -> None:
        if partition_count < 1:
            raise InvalidArgument(f"partition_count is 1 or more, not {partition_count}")
        super().__init__(open(path), owned=True)
        self.topic = topic
        try:
            self.client.admin.create_topic(topic, partitions=partition_count)
        except AlreadyExists:
            partition_count = len(self.client.admin.topic(topic).partitions)
        self.partitions = [Partition(self, index) for index in range(partition_count)]
        self._turns = itertools.cycle(self.partitions)
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Broker {self.topic} with {len(self.partitions)} partitions>"

    def send(self, message: Content) -> int:
        """Append a message to the partition whose turn it is; returns its index."""
        with self._lock:
            partition = next(self._turns)
        partition.append(message)
        return partition.index

    def partition(self, index: int) -> Partition:
        """The partition of that index.

        >>> with Broker() as broker:
        ...     broker.partition(1)
        <Partition 1 of messages>
        """
        if not 0 <= index < len(self.partitions):
            raise InvalidArgument(
                f"there is no partition {index}: they are 0 to {len(self.partitions) - 1}"
            )
        return self.partitions[index]


class Partition:
    """An append-only log of messages, each with an offset one higher than the one before."""

    def __init__(self, broker: Broker, index: int) -> None:
        self._broker = broker
        self.index = index

    def __repr__(self) -> str:
        return f"<Partition {self.index} of {self._broker.topic}>"

    def append(self, message: Content) -> int:
        """Add a message; returns its offset. It is as safe as the broker's home when this returns.

        >>> with Broker() as broker:
        ...     broker.partitions[0].append("a"), broker.partitions[0].append("b")
        (0, 1)
        """
        if not isinstance(message, str | bytes):
            raise InvalidArgument(f"a message is text or bytes, not {type(message).__name__}")
        headers = _BYTES if isinstance(message, bytes) else None
        broker = self._broker
        receipt = broker.client.publish(
            broker.topic, message, partition=self.index, headers=headers
        )
        return receipt.offset

    def read(self, offset: int = 0, limit: int | None = None) -> Iterator[Content]:
        """The messages from an offset on.

        >>> with Broker(partition_count=1) as broker:
        ...     _ = broker.send("a"), broker.send("b"), broker.send("c")
        ...     list(broker.partitions[0].read(offset=1))
        ['b', 'c']
        """
        return map(_content, self._stored(offset, limit))

    def _stored(self, offset: int, limit: int | None) -> Iterator[Message]:
        broker = self._broker
        return broker.client.read(broker.topic, self.index, offset, limit=limit)

    def __len__(self) -> int:
        """How many offsets are taken."""
        topic = self._broker.client.admin.topic(self._broker.topic)
        return topic.partitions[self.index].end_offset


class Producer:
    """Sends messages; the broker chooses the partition."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def send(self, message: Content) -> int:
        """Send a message; returns the partition it is in."""
        return self.broker.send(message)


class Consumer:
    """Reads one partition and keeps its own offset, so that consumers never disturb each other.

    Threads may share one: each message goes to one of them.

    >>> with Broker(partition_count=1) as broker:
    ...     _ = Producer(broker).send("a")
    ...     consumer = Consumer(broker, partition_index=0)
    ...     consumer.poll(), consumer.poll(), consumer.offset
    ('a', None, 1)
    """

    def __init__(self, broker: Broker, partition_index: int = 0, *, offset: int = 0) -> None:
        self.broker = broker
        self.partition = broker.partition(partition_index)
        self.offset = offset
        self._ahead: deque[Message] = deque()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Consumer of {self.partition!r} at {self.offset}>"

    def poll(self) -> Content | None:
        """The next message, or None when there is none yet."""
        with self._lock:
            if not self._ahead:
                self._ahead.extend(self.partition._stored(self.offset, _AHEAD))
            if not self._ahead:
                return None
            message = self._ahead.popleft()
            self.offset = message.offset + 1
            return _content(message)

    def seek(self, offset: int) -> None:
        """Go on with another offset: 0 reads everything again.

        >>> with Broker(partition_count=1) as broker:
        ...     consumer, _ = Consumer(broker), broker.send("a")
        ...     first = consumer.poll()
        ...     consumer.seek(0)
        ...     first == consumer.poll()
        True
        """
        if offset < 0:
            raise InvalidArgument(f"an offset is 0 or more, not {offset}")
        with self._lock:
            self._ahead.clear()
            self.offset = offset


def _content(message: Message) -> Content:
    return message.payload if message.headers.get("content-type") else message.text
