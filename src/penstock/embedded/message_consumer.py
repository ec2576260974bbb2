"""A consumer for code with an event loop: subscribe, poll, commit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.client.errors import InvalidArgument
from penstock.client.message import Message
from penstock.client.subscription import Subscription
from penstock.embedded.underneath import DEFAULT_SERVERS, Underneath, Where, client_of
from penstock.model.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class ConsumerConfig:
    """Where a group begins that is new, and how many messages one poll gives at most."""

    auto_offset_reset: str = "earliest"
    max_poll_records: int = 500


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A message as `poll` gives it; the timestamp is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: Mapping[str, str]
    timestamp: int
    message: Message = field(repr=False, compare=False)


class MessageConsumer(Underneath):
    """A member of a consumer group. It is used by one task at a time.

    >>> import asyncio, penstock
    >>> async def main():
    ...     with penstock.open(None) as mq:
    ...         mq.publish("orders", "hello")
    ...         with MessageConsumer("billing", mq) as consumer:
    ...             await consumer.subscribe(["orders"])
    ...             records = await consumer.poll(timeout_ms=10_000)
    ...             await consumer.commit()
    ...             return [record.value for record in records]
    >>> asyncio.run(main())
    [b'hello']
    """

    def __init__(
        self,
        group_id: str,
        bootstrap_servers: Where = DEFAULT_SERVERS,
        config: ConsumerConfig | None = None,
    ) -> None:
        client, owned = client_of(bootstrap_servers)
        super().__init__(client, owned=owned)
        self.group_id = group_id
        self.config = config or ConsumerConfig()
        self.subscribed_topics: set[str] = set()
        self.offsets: dict[tuple[str, int], int] = {}
        self._subscription: Subscription | None = None

    def __repr__(self) -> str:
        return f"<MessageConsumer of {self.group_id}: {sorted(self.subscribed_topics)}>"

    @property
    def assignment(self) -> dict[str, list[int]]:
        """The partitions this consumer reads now, by topic."""
        held: dict[str, list[int]] = {}
        for topic, partition in self._subscription.assignment if self._subscription else []:
            held.setdefault(topic, []).append(partition)
        return held

    async def subscribe(self, topics: Sequence[str]) -> None:
        """Join the group for these topics, and those of earlier calls."""
        if isinstance(topics, str):
            raise InvalidArgument(f"give a list of topics: [{topics!r}]")
        wanted = self.subscribed_topics | set(topics)
        if wanted != self.subscribed_topics:
            await asyncio.to_thread(self._join, wanted)

    def _join(self, wanted: set[str]) -> None:
        if self._subscription is not None:
            self._subscription.close()
        self._subscription = self.client.subscribe(
            sorted(wanted),
            group=self.group_id,
            start=self.config.auto_offset_reset,
            auto_commit=False,
        )
        self.subscribed_topics = wanted
        self.offsets.clear()

    def joined(self) -> Subscription:
        """The subscription underneath.

        >>> import asyncio, penstock
        >>> with penstock.open(None) as mq, MessageConsumer("billing", mq) as consumer:
        ...     asyncio.run(consumer.subscribe(["orders"]))
        ...     consumer.joined().group
        'billing'
        """
        if self._subscription is None:
            raise InvalidArgument("subscribe to a topic first")
        return self._subscription

    async def poll(self, timeout_ms: int = 1000) -> list[ConsumerRecord]:
        """What has come; if nothing has, wait for it, but no longer than `timeout_ms`."""
        messages = await asyncio.to_thread(
            self.joined().batch, self.config.max_poll_records, timeout_ms / 1000
        )
        for message in messages:
            self.offsets[message.topic, message.partition] = message.offset + 1
        return [_record(message) for message in messages]

    async def commit(self, offsets: Mapping[tuple[str, int], int] | None = None) -> None:
        """Remember for the group how far it is: these offsets, or all that `poll` gave."""
        progress = {
            TopicPartition(*place): offset for place, offset in (offsets or self.offsets).items()
        }
        await asyncio.to_thread(self.joined().commit, progress)

    def close(self) -> None:
        """Leave the group."""
        if self._subscription is not None:
            self._subscription.close()
        super().close()


def _record(message: Message) -> ConsumerRecord:
    return ConsumerRecord(
        message.topic,
        message.partition,
        message.offset,
        message.key,
        message.payload,
        message.headers,
        message.timestamp_ms,
        message,
    )
