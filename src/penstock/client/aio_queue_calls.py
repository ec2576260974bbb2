"""The part of the asynchronous client that is about queues."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import signal
import threading
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from penstock.client.aio_queue import AsyncExchange, AsyncPublisher, AsyncQueue
from penstock.client.aio_worker import AsyncHandler, AsyncWorker
from penstock.client.arguments import check_handler, check_text
from penstock.client.errors import InvalidArgument, NotFound, RequestFailed, TimedOut
from penstock.client.home import Home
from penstock.client.message import Seconds
from penstock.client.queue_home import QueueOptions
from penstock.client.queue_message import ERROR, ERROR_TYPE, AsyncQueueMessage
from penstock.client.queue_port import QueuePort
from penstock.client.sender import Sender
from penstock.client.serializer import Serializer
from penstock.client.wishes import PublishWishes
from penstock.client.worker import Retry

if TYPE_CHECKING:
    from penstock.client.aio import Mailbox

_EXPIRES_SECONDS = 3600.0
_LOOK_SECONDS = 0.5  # how soon `run` sees that the client was closed


class QueueWishes(TypedDict, total=False):
    """The options of `Client.queue`."""

    durable: bool
    exclusive: bool
    auto_delete: bool
    max_priority: int | None
    ttl: Seconds | None
    expires: Seconds | None
    max_length: int | None
    max_length_bytes: int | None
    overflow: str | None
    dead_letter: bool | str | None
    max_deliveries: int | None
    visibility_timeout: Seconds | None
    deduplication_window: Seconds | None
    single_active: bool
    retention: Seconds | None
    arguments: Mapping[str, object] | None


class AsyncQueueCalls:
    """What an asynchronous client can do with queues."""

    _home: Home
    _sender: Sender
    _mail: Mailbox

    def _open_queues(self) -> None:
        self._made_publisher: AsyncPublisher | None = None
        self._workers: list[AsyncWorker] = []
        self._waiting: dict[str, asyncio.Future[AsyncQueueMessage]] = {}
        self._asked: dict[str, AsyncQueue] = {}
        self._answers: asyncio.Future[AsyncQueue] | None = None
        self._listening: asyncio.Task[None] | None = None

    async def _take_room(self, size: int) -> bool:
        """See `AsyncClient`."""
        raise AssertionError("a client takes room itself")

    @property
    def _publisher(self) -> AsyncPublisher:
        if self._made_publisher is None:
            port = QueuePort(self._home, self._home.queues, self._sender)
            self._made_publisher = AsyncPublisher(port, self._take_room, self._mail.put)
        return self._made_publisher

    async def _open(self, name: str, options: QueueOptions) -> AsyncQueue:
        publisher = self._made_publisher
        if publisher is None:  # the first look at queues may start a thread
            publisher = await asyncio.to_thread(lambda: self._publisher)
        return await AsyncQueue(publisher, name, options).open()

    async def queue(self, name: str, **options: Unpack[QueueWishes]) -> AsyncQueue:
        """A queue, created if it is not there; the options are those of `Client.queue`."""
        return await self._open(name, QueueOptions(**options))

    async def queues(self) -> list[str]:
        """The names of all queues."""
        return await self._home.arun(self._publisher.port.queues.queue_names())

    async def exchange(
        self, name: str, kind: str = "topic", *, durable: bool = True, auto_delete: bool = False
    ) -> AsyncExchange:
        """An exchange of a kind: direct, topic, fanout or headers; created if it is not there."""
        made = AsyncExchange(self._publisher, name, kind)
        return await made.open(durable=durable, auto_delete=auto_delete)

    async def exchanges(self) -> list[str]:
        """The names of all exchanges but the server's own."""
        return await self._home.arun(self._publisher.port.queues.exchange_names())

    # --- workers ----------------------------------------------------------------------------------

    def worker(
        self,
        queue: str | AsyncQueue,
        *,
        concurrency: int = 1,
        max_retries: int = 5,
        backoff: float = 1.0,
        max_backoff: float = 300.0,
        prefetch: int | None = None,
    ) -> Callable[[AsyncHandler], AsyncWorker]:
        """Call a coroutine function for each message of a queue, as `Client.worker`."""
        retry = Retry(max_retries=max_retries, backoff=backoff, most=max_backoff)
        if not isinstance(queue, AsyncQueue):
            check_text(queue, "a queue")

        def decorate(handler: AsyncHandler) -> AsyncWorker:
            check_handler(handler, may_await=True)
            made = AsyncWorker(
                queue.open if isinstance(queue, AsyncQueue) else partial(self.queue, queue),
                handler,
                concurrency,
                retry,
                prefetch,
            )
            self._workers.append(made)
            return made

        return decorate

    # --- request and reply ------------------------------------------------------------------------

    async def run(self, *, signals: bool = True) -> None:
        """Wait until SIGINT or SIGTERM, then stop every worker gracefully and close."""
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        caught = [signal.SIGINT, signal.SIGTERM] if signals else []
        if caught and threading.current_thread() is not threading.main_thread():
            raise InvalidArgument("signals come to the main thread: run its loop there")
        before = {number: signal.getsignal(number) for number in caught}
        for number in caught:
            loop.add_signal_handler(number, stop.set)
        try:
            while not stop.is_set() and not self._home.is_closed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), _LOOK_SECONDS)
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)
            await self.close()

    async def request(
        self,
        queue: str,
        payload: Any,
        *,
        timeout: float = 10.0,
        serializer: Serializer | str | None = None,
        headers: dict[str, Any] | None = None,
    ) -> AsyncQueueMessage:
        """Ask whoever answers at a queue, and wait for the answer."""
        reply_to = (await self._answer_queue()).name
        correlation_id = uuid.uuid4().hex
        future: asyncio.Future[AsyncQueueMessage] = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = future
        try:
            wishes: PublishWishes = {
                "correlation_id": correlation_id,
                "reply_to": reply_to,
                "ttl": timeout,
                "headers": headers,
            }
            try:
                at = self._asked.get(queue) or await self._ask_at(queue)
                await at.publish(payload, serializer=serializer, **wishes)
            except NotFound:  # it was deleted since the last question
                at = await self._ask_at(queue)
                await at.publish(payload, serializer=serializer, **wishes)
            async with asyncio.timeout(timeout):
                answer = await future
        except TimeoutError:
            raise TimedOut(f"nobody at {queue!r} answered within {timeout} s") from None
        finally:
            self._waiting.pop(correlation_id, None)
        if answer.error is not None:
            kind = answer.headers.get(ERROR_TYPE, "error")
            raise RequestFailed(f"{kind} at {queue!r}: {answer.error}")
        return answer

    async def _ask_at(self, name: str) -> AsyncQueue:
        """The queue to ask at, opened once."""
        found = self._asked[name] = await self.queue(name)
        return found

    async def _answer_queue(self) -> AsyncQueue:
        # The queue goes with its consumer, and that may have lost its connection.
        if self._answers is None or (self._listening is not None and self._listening.done()):
            self._listening = None
            options = QueueOptions(durable=False, auto_delete=True, expires=_EXPIRES_SECONDS)
            name = f"reply.{uuid.uuid4().hex}"
            self._answers = asyncio.ensure_future(self._open(name, options))
            queue = await self._answers
            started = asyncio.Event()
            loop = asyncio.get_running_loop()
            self._listening = loop.create_task(self._listen(queue, started))
            await started.wait()
        return await self._answers

    async def _listen(self, queue: AsyncQueue, started: asyncio.Event) -> None:
        async with queue.consume(prefetch=1000) as messages:
            started.set()
            async for message in messages:
                future = self._waiting.pop(message.correlation_id or "", None)
                await message.ack()
                if future is not None and not future.done():
                    future.set_result(message)

    def reply(
        self, queue: str, *, concurrency: int = 1, serializer: Serializer | str | None = None
    ) -> Callable[[AsyncHandler], AsyncWorker]:
        """Answer requests with what a coroutine function returns."""
        check_text(queue, "a queue")

        def decorate(handler: AsyncHandler) -> AsyncWorker:
            check_handler(handler, may_await=True)

            async def answering(message: AsyncQueueMessage) -> None:
                try:
                    result: Any = handler(message)
                    if inspect.isawaitable(result):
                        result = await result
                    await self._answer(message, result, {}, serializer)
                except Exception as error:  # also of a result that cannot be sent
                    headers = {ERROR: str(error), ERROR_TYPE: type(error).__qualname__}
                    await self._answer(message, b"", headers, None)

            made = AsyncWorker(
                partial(self.queue, queue), answering, concurrency, Retry(max_retries=0)
            )
            self._workers.append(made)
            return made

        return decorate

    async def _answer(
        self,
        message: AsyncQueueMessage,
        result: Any,
        headers: dict[str, Any],
        serializer: Serializer | str | None,
    ) -> None:
        publisher = self._publisher
        if message.reply_to is None:
            return
        outgoing, _ = publisher.port.prepare(
            message.reply_to,
            result,
            serializer,
            {"correlation_id": message.correlation_id, "headers": headers},
        )
        with contextlib.suppress(NotFound):  # whoever asked is gone
            await (await publisher.post("", message.reply_to, outgoing, 0))

    # --- the end ----------------------------------------------------------------------------------

    async def _close_queues(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:  # none goes on while another is waited for
            worker._take_no_more()
        for worker in workers:
            await worker.stop()
        if self._listening is not None:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._listening

    async def close(self) -> None:
        """See `AsyncClient.close`."""
        raise AssertionError("a client closes itself")
