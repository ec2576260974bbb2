"""Queues and exchanges, for code with an event loop. The calls are those of `Queue`, awaited."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.client.arguments import check_seconds, check_text, check_whole, several
from penstock.client.errors import Closed, InvalidArgument, PenstockError
from penstock.client.exchange import check_kind
from penstock.client.message import Message, Receipt
from penstock.client.outgoing import Outgoing
from penstock.client.queue_home import QueueConsumer, QueueOptions, QueueStats, Redriven, Taken
from penstock.client.queue_message import AsyncQueueMessage
from penstock.client.queue_port import QueuePort, binding_arguments
from penstock.client.serializer import Serializer
from penstock.client.watch import Working
from penstock.client.wishes import PublishWishes

_WAIT_SECONDS = 0.5

Put = Callable[["asyncio.Future[Receipt]", Receipt | None, PenstockError | None], None]
TakeRoom = Callable[[int], Any]


class AsyncPublisher:
    """What queues and exchanges share: posting, with room taken first."""

    def __init__(self, port: QueuePort, take_room: TakeRoom, put: Put) -> None:
        self.port = port
        self._take_room = take_room
        self._put = put

    async def post(
        self, exchange: str, routing_key: str, outgoing: Outgoing, delay_ms: int
    ) -> asyncio.Future[Receipt]:
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        if not await self._take_room(outgoing.size):
            future.set_result(Receipt(routing_key, 0, -1, dropped=True))
            return future

        def settle(receipt: Receipt | None, failure: PenstockError | None) -> None:
            self._put(future, receipt, failure)

        self.port.post(exchange, routing_key, outgoing, delay_ms, settle)
        return future


class AsyncQueue:
    """A queue: each message is handled by one consumer, who says what became of it."""

    def __init__(self, publisher: AsyncPublisher, name: str, options: QueueOptions) -> None:
        self._publisher = publisher
        self._port = publisher.port
        self._home, self._queues = self._port.home, self._port.queues
        self._options = options
        self.name = name
        self._dead_letters: str | None = None

    def __repr__(self) -> str:
        return f"<AsyncQueue {self.name}>"

    async def open(self) -> AsyncQueue:
        """Declare it; `AsyncClient.queue` has done so."""
        opened = self._port.open(self.name, self._options)
        self.name, self._dead_letters = await self._home.arun(opened)
        return self

    # --- publishing -------------------------------------------------------------------------------

    async def publish(
        self,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Receipt:
        """Publish one message and wait until it is safe."""
        return await (await self.send(payload, serializer=serializer, **wishes))

    async def send(
        self,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> asyncio.Future[Receipt]:
        """Publish without waiting for the receipt."""
        outgoing, delay_ms = self._port.prepare(self.name, payload, serializer, wishes)
        if delay_ms:
            await self._home.arun(self._port.ensure_delays(self.name))
        return await self._publisher.post("", self.name, outgoing, delay_ms)

    async def publish_many(
        self,
        messages: Iterable[Any],
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> list[Receipt]:
        """Publish many messages and wait until all are safe."""
        futures = [
            await self.send(one, serializer=serializer, **wishes) for one in several(messages)
        ]
        return [await future for future in futures]

    # --- consuming --------------------------------------------------------------------------------

    def consume(
        self,
        *,
        prefetch: int = 100,
        idle_timeout: float | None = None,
        auto_ack: bool = False,
        exclusive: bool = False,
        priority: int = 0,
    ) -> AsyncConsumption:
        """Messages as they come, at most `prefetch` of them unsettled at a time."""
        check_whole(prefetch, "prefetch", 1)
        check_seconds(idle_timeout, "idle_timeout")
        return AsyncConsumption(self, prefetch, idle_timeout, auto_ack, exclusive, priority)

    async def get(self, timeout: float = 0.0) -> AsyncQueueMessage | None:
        """The next message; None when there is none within `timeout` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            got = await self._home.arun(self._queues.get(self.name))
            if got is not None:
                return self._message(*got)
            left = deadline - loop.time()
            if left <= 0:
                return None
            await asyncio.sleep(min(0.02, left))

    def _message(self, taken: Taken, consumer: QueueConsumer) -> AsyncQueueMessage:
        settlement = self._port.settlement(consumer, self.name, self._dead_letters, taken)
        message: AsyncQueueMessage = AsyncQueueMessage._delivered(self.name, taken, settlement)
        return message

    async def allow_delays(self) -> None:
        """Prepare for `nack(delay=...)` ahead of time; the first one does it otherwise."""
        await self._home.arun(self._port.ensure_delays(self.name))

    # --- looking and tidying ----------------------------------------------------------------------

    async def peek(self, count: int = 10) -> list[Message]:
        """Messages that stay where they are."""
        check_whole(count, "count")
        return await self._home.arun(self._queues.peek(self.name, count))

    async def stats(self) -> QueueStats:
        """How many messages are ready and in flight, how many consumers there are."""
        return await self._home.arun(self._queues.queue_stats(self.name))

    async def purge(self) -> int:
        """Drop every message that is ready; how many there were."""
        return await self._home.arun(self._queues.purge_queue(self.name))

    async def delete(self) -> int:
        """Delete the queue with its messages; how many there were."""
        return await self._home.arun(self._queues.delete_queue(self.name))

    async def dead_letters(self) -> AsyncQueue:
        """The queue of its dead letters."""
        if self._dead_letters is None:
            raise InvalidArgument(f"queue {self.name!r} has no dead letters")
        return await AsyncQueue(self._publisher, self._dead_letters, QueueOptions()).open()

    async def redrive(self, *, to: str | None = None, limit: int | None = None) -> Redriven:
        """Send the dead letters of this queue back to it, or to another one."""
        target = (await self.dead_letters()).name
        return await self._home.arun(self._queues.redrive(target, self.name, to, limit))

    async def bind(
        self,
        exchange: str,
        routing_key: str = "",
        *,
        headers: Mapping[str, str | int | bool] | None = None,
        match: str = "all",
    ) -> None:
        """Have messages of an exchange that fit come into this queue."""
        arguments = binding_arguments(headers, match)
        await self._home.arun(self._queues.bind(self.name, exchange, routing_key, arguments))

    async def unbind(
        self,
        exchange: str,
        routing_key: str = "",
        *,
        headers: Mapping[str, str | int | bool] | None = None,
        match: str = "all",
    ) -> None:
        """Have them come no more."""
        arguments = binding_arguments(headers, match)
        await self._home.arun(self._queues.unbind(self.name, exchange, routing_key, arguments))


class AsyncConsumption(AsyncIterator[AsyncQueueMessage]):
    """A consumer of a queue, for one task at a time."""

    def __init__(
        self,
        queue: AsyncQueue,
        prefetch: int,
        idle_timeout: float | None,
        auto_ack: bool,
        exclusive: bool,
        priority: int,
    ) -> None:
        self._queue = queue
        self._home = queue._home
        self._prefetch = prefetch
        self._idle_timeout = idle_timeout
        self._auto_ack = auto_ack
        self._exclusive = exclusive
        self._priority = priority
        self._consumer: QueueConsumer | None = None
        self._ready: deque[AsyncQueueMessage] = deque()
        self._current: AsyncQueueMessage | None = None
        self._taking: asyncio.Future[Any] | None = None
        self._is_closed = False
        self.watch = queue._port.sender.watch  # None for those who tell of their work themselves
        self._working: Working | None = None

    def __repr__(self) -> str:
        return f"<AsyncConsumption of {self._queue.name}>"

    async def _open(self) -> QueueConsumer:
        if self._is_closed:
            raise Closed("the consumer is closed")
        if self._consumer is None:
            self._consumer = await self._home.arun(
                self._queue._queues.consumer(
                    self._queue.name,
                    self._prefetch,
                    exclusive=self._exclusive,
                    priority=self._priority,
                )
            )
        return self._consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncQueueMessage:
        message = None if self._is_closed else await self.get(self._idle_timeout)
        if message is None:
            raise StopAsyncIteration
        return message

    async def get(self, timeout: float | None = None) -> AsyncQueueMessage | None:
        """The next message; None when none came within `timeout` seconds, or it is closed."""
        consumer = await self._open()
        self._worked(None)
        await self._acknowledge()
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while not self._ready and not self._is_closed:
            left = None if deadline is None else deadline - loop.time()
            await self._take(
                consumer, _WAIT_SECONDS if left is None else max(0.0, min(left, _WAIT_SECONDS))
            )
            if left is not None and left <= 0:
                break
        if not self._ready:
            return None
        self._current = self._ready.popleft()
        if self.watch is not None:
            self._working = self.watch.working(self._current)
        return self._current

    def _worked(self, failure: BaseException | None) -> None:
        working, self._working = self._working, None
        if working is not None:
            working.end(failure)

    async def _take(self, consumer: QueueConsumer, wait: float) -> None:
        if self._taking is None:  # it goes on when whoever waits is cancelled
            self._taking = asyncio.ensure_future(
                self._home.arun(consumer.take(wait, self._prefetch))
            )
        try:
            taken = await asyncio.shield(self._taking)
        except Closed:
            self._is_closed = True
            return
        finally:
            if self._taking is not None and self._taking.done():
                self._taking = None
        self._ready.extend([self._queue._message(each, consumer) for each in taken])

    async def _acknowledge(self) -> None:
        current, self._current = self._current, None
        if self._auto_ack and current is not None and not current.is_settled:
            await current.ack()

    async def close(self) -> None:
        """Take no more. What is not settled goes back to the queue."""
        await self._close(finished=True)

    async def _close(self, *, finished: bool) -> None:
        if self._is_closed or self._consumer is None:
            self._is_closed = True
            return
        if finished:
            await self._acknowledge()
        self._is_closed = True
        self._consumer.wake()
        if not self._home.is_closed:
            await self._home.arun(self._consumer.close())
        if self._taking is not None:
            await asyncio.gather(self._taking, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._worked(failure)
        await self._close(finished=failure is None)


class AsyncExchange:
    """Publish here; which queues get it, the bindings say (`AsyncQueue.bind`)."""

    def __init__(self, publisher: AsyncPublisher, name: str, kind: str) -> None:
        check_text(name, "an exchange")
        self.name = name
        self.kind = check_kind(kind)
        self._publisher = publisher
        self._port = publisher.port

    def __repr__(self) -> str:
        return f"<AsyncExchange {self.name} {self.kind}>"

    async def open(self, *, durable: bool, auto_delete: bool) -> AsyncExchange:
        """Declare it; `AsyncClient.exchange` has done so."""
        await self._port.home.arun(
            self._port.queues.declare_exchange(
                self.name, self.kind, durable=durable, auto_delete=auto_delete, arguments={}
            )
        )
        return self

    async def publish(
        self,
        routing_key: str,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Receipt:
        """Publish one message and wait until it is safe in every queue that gets it."""
        return await (await self.send(routing_key, payload, serializer=serializer, **wishes))

    async def send(
        self,
        routing_key: str,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> asyncio.Future[Receipt]:
        """Publish without waiting for the receipt."""
        outgoing, delay_ms = self._port.prepare(routing_key, payload, serializer, wishes)
        if delay_ms:
            raise InvalidArgument("a delay is given to a queue: AsyncQueue.publish(delay=...)")
        return await self._publisher.post(self.name, routing_key, outgoing, 0)

    async def delete(self) -> None:
        """Delete it with its bindings; the queues stay."""
        await self._port.home.arun(self._port.queues.delete_exchange(self.name))
