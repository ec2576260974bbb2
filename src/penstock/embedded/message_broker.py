"""Topics with groups: publish to a topic, and each group that subscribed sees every message.

broker = MessageBroker()
broker.create_topic("orders", num_partitions=3)
broker.subscribe("orders", "analytics", lambda message: ...)
broker.publish("orders", {"order_id": 7}, partition_key="user_1")
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.client.errors import AlreadyExists, InvalidArgument, PenstockError
from penstock.client.message import Message as LogMessage
from penstock.client.message import Receipt
from penstock.client.opening import open
from penstock.client.partitioner import partition_of_key
from penstock.client.subscription import Subscription
from penstock.client.worker import Retry
from penstock.embedded.dead_letters import error_headers
from penstock.embedded.message import Message
from penstock.embedded.underneath import Underneath

log = logging.getLogger("penstock")

Callback = Callable[[Message], object]


class MessageBroker(Underneath):
    """A broker with topics and consumer groups. In memory; with a `path`, on disk.

    Each group remembers how far it is. Who subscribes with a group that exists already shares the
    partitions with the others of it. Messages with the same partition key stay in order. A callback
    that raises is called again after `backoff` seconds, then twice that; after `max_retries` tries
    the message goes to the topic `<topic>.dlq`, with the error, and the group goes on.

    >>> import threading
    >>> seen, done = [], threading.Event()
    >>> with MessageBroker() as broker:
    ...     broker.create_topic("orders", num_partitions=1)
    ...     broker.subscribe("orders", "mails", lambda m: (seen.append(m.data), done.set()))
    ...     _ = broker.publish("orders", {"order_id": 7}, partition_key="user_1")
    ...     _ = done.wait(10)
    >>> seen
    [{'order_id': 7}]
    """

    def __init__(
        self,
        *,
        path: str | Path | None = None,
        max_retries: int = 3,
        backoff: float = 1.0,
    ) -> None:
        super().__init__(open(path, group_initial_rebalance_delay_ms=0), owned=True)
        self._max_retries = max_retries
        self._retry = Retry(max_retries=max_retries, backoff=backoff)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._partitions: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<MessageBroker with {len(self._threads)} subscribers>"

    @property
    def topics(self) -> list[str]:
        """The names of the topics."""
        return self.client.admin.topics()

    def create_topic(self, topic_name: str, num_partitions: int = 3) -> None:
        """Create a topic; if there is one of that name, it stays as it is."""
        try:
            self.client.admin.create_topic(topic_name, partitions=num_partitions)
        except AlreadyExists:
            num_partitions = self.client.admin.topic(topic_name).partition_count
        self._partitions[topic_name] = num_partitions

    def publish(self, topic_name: str, data: Any, partition_key: str | None = None) -> Receipt:
        """Publish data to a topic, which is created if need be; returns when it is safe."""
        if topic_name not in self._partitions:
            self.create_topic(topic_name)
        message = Message(id=str(uuid.uuid4()), topic=topic_name, data=data)
        placed = (partition_key or message.id).encode()
        return self.client.publish(
            topic_name,
            message.payload(),
            key=partition_key or None,
            partition=partition_of_key(placed, self._partitions[topic_name]),
            message_id=message.id,
            headers=message.headers(),
            timestamp=message.timestamp,
        )

    def subscribe(self, topic_name: str, consumer_group: str, callback: Callback) -> None:
        """Have a function called, in a thread, for each message that comes to the group.

        A group that is new begins with the first message there is.
        """
        if topic_name not in self.topics:
            raise InvalidArgument(f"there is no topic {topic_name!r}: create it first")
        subscription = self.client.subscribe(topic_name, group=consumer_group, auto_commit=False)
        thread = threading.Thread(
            target=self._consume,
            args=(subscription, callback),
            name=f"{consumer_group}-{topic_name}",
            daemon=True,
        )
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Let the callbacks that run finish, and end."""
        self._stopping.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        super().close()

    def _consume(self, subscription: Subscription, callback: Callback) -> None:
        try:
            with subscription:
                while not self._stopping.is_set():
                    stored = subscription.get(0.2)
                    if stored is not None and self._deliver(subscription, stored, callback):
                        subscription.commit(stored)
        except PenstockError as failure:
            log.error("%r stops: %s", subscription, failure)

    def _deliver(self, subscription: Subscription, stored: LogMessage, callback: Callback) -> bool:
        """Whether the message is done with; it is not when we stop in the middle of it."""
        message = Message.read(stored)
        while True:
            try:
                callback(message)
                return True
            except Exception as error:
                log.warning("message %s failed in %s: %r", message.id, subscription.group, error)
                failure = error
            message.retry_count += 1
            if message.retry_count >= self._max_retries:
                self._bury(stored, subscription.group or "", message, failure)
                return True
            if self._stopping.wait(self._retry.pause(message.retry_count - 1)):
                return False

    def _bury(self, stored: LogMessage, group: str, message: Message, failure: Exception) -> None:
        self.client.publish(
            f"{stored.topic}.dlq",
            stored.payload,
            key=stored.key,
            headers={**stored.headers, **error_headers(stored, failure, group=group)},
            # Another group may bury the same message.
            message_id=f"{message.id}/{group}",
        )
