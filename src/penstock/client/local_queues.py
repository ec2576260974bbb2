"""Queues and exchanges of the home in this process: the broker's services are called directly."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Sequence
from typing import Any

from penstock.client.amqp_mapping import message_of
from penstock.client.burst import Burst
from penstock.client.errors import (
    MessageTooLarge,
    NotFound,
    NotSupported,
    QueueFull,
    in_our_words,
    of_broker_error,
)
from penstock.client.local_consumer import LocalConsumer, LocalHolder, taken
from penstock.client.message import Message, Receipt
from penstock.client.queue_home import (
    DELAY_EXCHANGE,
    Arguments,
    Posted,
    QueueConsumer,
    QueueOptions,
    QueueStats,
    Redriven,
    Taken,
)
from penstock.errors import BrokerError
from penstock.model.queue_record import Message as AmqpMessage
from penstock.runtime.clock import Clock
from penstock.services import redrive
from penstock.services.browsing import browse, oldest_age
from penstock.services.messaging import Messaging
from penstock.services.publishing import Publication
from penstock.services.queue import Queue
from penstock.services.session import OwnersSession
from penstock.services.subscription import Subscription

_tags = itertools.count(1)


class LocalQueues:
    """The queues of the default virtual host. Everything but `post` is on the broker's loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        messaging: Messaging,
        clock: Clock,
        max_message_bytes: int,
    ) -> None:
        self._loop = loop
        self._max_message_bytes = max_message_bytes
        self._messaging = messaging
        self._clock = clock
        self._session = OwnersSession.of(messaging)
        self._burst: Burst[Posted] = Burst(loop, self._publish)
        self._tasks: set[asyncio.Task[None]] = set()
        self._consumers: set[LocalConsumer] = set()

    # --- publishing -------------------------------------------------------------------------------

    def post(self, posted: Posted) -> None:
        self._burst.put(posted)

    def _publish(self, burst: Sequence[Posted]) -> None:
        allowed: list[Posted] = []
        for posted in burst:
            try:
                self._session.check_publish(posted.exchange)
            except BrokerError as refusal:
                posted.settle(None, of_broker_error(refusal))
                continue
            if len(posted.body) > self._max_message_bytes:
                posted.settle(None, too_large(posted, self._max_message_bytes))
            else:
                allowed.append(posted)
        if not allowed:
            return
        messages = [AmqpMessage(p.exchange, p.routing_key, p.properties, p.body) for p in allowed]
        try:
            publication = self._session.publish(messages)
        except BrokerError as failure:
            for posted in allowed:
                posted.settle(None, of_broker_error(failure))
            return
        self._spawn(self._settle(publication, allowed))

    async def _settle(self, publication: Publication, posted: Sequence[Posted]) -> None:
        try:
            refused = set(await publication.settled())
        except BrokerError as failure:
            for each in posted:
                each.settle(None, of_broker_error(failure))
            return
        unrouted = set(publication.unrouted)
        for index, each in enumerate(posted):
            if index in unrouted:
                each.settle(None, unroutable(each))
            elif index in refused:
                each.settle(None, QueueFull(f"queue {each.routing_key!r} is full"))
            else:
                each.settle(Receipt(each.routing_key, 0, -1, self._clock.now_ms()), None)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Return when everything that was posted has been settled."""
        while self._burst or self._tasks:
            if self._tasks:
                await asyncio.wait(set(self._tasks))
            else:
                await asyncio.sleep(0)

    # --- queues -----------------------------------------------------------------------------------

    async def declare_queue(self, name: str, options: QueueOptions) -> str:
        with in_our_words():
            target = options.dead_letter_queue(name)
            if target is not None and target not in self._session.vhost.queues:
                await self._session.declare_queue(target, durable=options.durable)
            info = await self._session.declare_queue(
                name,
                durable=options.durable,
                exclusive=options.exclusive,
                auto_delete=options.auto_delete,
                arguments=options.as_arguments(name),
            )
        return info.name

    async def queue_exists(self, name: str) -> bool:
        return name in self._session.vhost.queues

    async def delete_queue(self, name: str) -> int:
        with in_our_words():
            return await self._session.delete_queue(name)

    async def purge_queue(self, name: str) -> int:
        with in_our_words():
            return await self._session.purge_queue(name)

    async def queue_names(self) -> list[str]:
        return sorted(self._session.vhost.queues)

    def _queue(self, name: str) -> Queue:
        with in_our_words():
            return self._session.readable(name)

    async def queue_stats(self, name: str) -> QueueStats:
        queue = self._queue(name)
        with in_our_words():
            live = await queue.wake()
        machine = live.machine
        oldest = await oldest_age(live, self._clock.now_ms())
        return QueueStats(
            name,
            machine.ready,
            queue.consumer_count,
            machine.delivered,
            machine.held,
            oldest,
            live.log.replica.log.size_bytes,
        )

    async def peek(self, name: str, count: int) -> list[Message]:
        queue = self._queue(name)
        found: list[Message] = []
        with in_our_words():
            async for seen in browse(await queue.wake()):
                if len(found) >= count:
                    break
                message = message_of(name, seen.offset, seen.properties, seen.body)
                if seen.timestamp_ms is not None:
                    message.timestamp_ms = seen.timestamp_ms
                found.append(message)
        return found

    async def redrive(
        self, name: str, source: str | None, to: str | None, limit: int | None
    ) -> Redriven:
        wanted = redrive.Filter(queue=source)
        with in_our_words():
            done = await redrive.redrive(
                self._session.vhost, self._queue(name), wanted, limit=limit, to=to
            )
        return Redriven(done.moved, done.homeless, done.refused)

    # --- consuming --------------------------------------------------------------------------------

    async def consumer(
        self, name: str, prefetch: int, *, exclusive: bool, priority: int
    ) -> LocalConsumer:
        with in_our_words():
            found = await self._session.subscribe(
                name,
                tag=f"in-process-{next(_tags)}",
                exclusive=exclusive,
                prefetch=prefetch,
                arguments={"x-priority": priority},
            )
        if not isinstance(found, Subscription):
            raise NotSupported(f"{name!r} is a stream: read it with subscribe()")
        consumer = LocalConsumer(self._loop, found, self._forget, self.finish)
        self._consumers.add(consumer)
        return consumer

    def _forget(self, consumer: LocalConsumer) -> None:
        self._consumers.discard(consumer)
        self._session.ended(consumer.subscription)

    async def get(self, name: str) -> tuple[Taken, QueueConsumer] | None:
        with in_our_words():
            got = await self._session.get(name)
        if got is None:
            return None
        delivery, _, holder = got
        return taken(delivery), LocalHolder(self._loop, holder)

    # --- exchanges --------------------------------------------------------------------------------

    async def declare_exchange(
        self, name: str, kind: str, *, durable: bool, auto_delete: bool, arguments: Arguments
    ) -> None:
        with in_our_words():
            await self._session.declare_exchange(
                name, kind, durable=durable, auto_delete=auto_delete, arguments=arguments
            )

    async def delete_exchange(self, name: str) -> None:
        with in_our_words():
            await self._session.delete_exchange(name)

    async def exchange_names(self) -> list[str]:
        names = [exchange.name for exchange in self._session.vhost.exchanges]
        return sorted(
            name for name in names if not name.startswith(("amq.", DELAY_EXCHANGE)) and name
        )

    async def bind(self, queue: str, exchange: str, routing_key: str, arguments: Arguments) -> None:
        with in_our_words():
            await self._session.bind_queue(queue, exchange, routing_key, arguments)

    async def unbind(
        self, queue: str, exchange: str, routing_key: str, arguments: Arguments
    ) -> None:
        with in_our_words():
            await self._session.unbind_queue(queue, exchange, routing_key, arguments)

    async def close_queues(self) -> None:
        await self.finish()
        for consumer in list(self._consumers):
            await consumer.close()
        await self._session.close()


def too_large(posted: Posted, limit: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"message size {len(posted.body)} is larger than {limit} (amqp.max.message.bytes)"
    )


def unroutable(posted: Posted) -> NotFound:
    """What to say of a message that no queue took."""
    if not posted.exchange:
        return NotFound(f"there is no queue {posted.routing_key!r}")
    return NotFound(f"no queue is bound to exchange {posted.exchange!r} for {posted.routing_key!r}")
