"""Workers for code with an event loop: a coroutine function is called for each message."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from penstock.client.aio_queue import AsyncQueue
from penstock.client.arguments import check_whole
from penstock.client.errors import PenstockError
from penstock.client.queue_message import AsyncQueueMessage
from penstock.client.watch import Watch
from penstock.client.worker import Retry

log = logging.getLogger("penstock")

AsyncHandler = Callable[[AsyncQueueMessage], Awaitable[Any]]


class AsyncWorker:
    """Calls a handler for each message, `concurrency` at a time, until it is stopped."""

    def __init__(
        self,
        open_queue: Callable[[], Awaitable[AsyncQueue]],
        handler: AsyncHandler,
        concurrency: int,
        retry: Retry,
        prefetch: int | None = None,
    ) -> None:
        check_whole(concurrency, "concurrency", 1)
        self.handler = handler
        self.handled = 0
        self.failed = 0
        self._open_queue = open_queue
        self._concurrency = concurrency
        self._retry = retry
        self._prefetch = prefetch or concurrency
        self._room = asyncio.Semaphore(concurrency)
        self._running: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._watch: Watch | None = None
        self.task = asyncio.get_running_loop().create_task(self._run())
        self.task.add_done_callback(_tell)

    def __repr__(self) -> str:
        return f"<AsyncWorker {self.handled} handled, {self.failed} failed>"

    async def __call__(self, message: AsyncQueueMessage) -> Any:
        return await self.handler(message)

    async def _run(self) -> None:
        queue = await self._open_queue()
        async with queue.consume(prefetch=self._prefetch) as messages:
            self._watch, messages.watch = messages.watch, None
            while not self._stopping.is_set():
                await self._room.acquire()
                message = None
                try:
                    if not self._stopping.is_set():
                        message = await messages.get(0.2)
                except PenstockError as failure:
                    if messages._is_closed:
                        return
                    log.warning("the worker of %s waits: %s", queue.name, failure)
                    await asyncio.sleep(0.5)
                if message is None:
                    self._room.release()
                    if messages._is_closed:
                        return
                    continue
                task = asyncio.get_running_loop().create_task(self._handle(message))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            if self._running:  # they are waited for, then what is left goes back
                await asyncio.wait(self._running)

    async def _handle(self, message: AsyncQueueMessage) -> None:
        told = contextlib.nullcontext() if self._watch is None else self._watch.processing(message)
        try:
            with told:
                made: Any = self.handler(message)
                if inspect.isawaitable(made):  # a plain function is done already
                    await made
        except Exception as error:
            self.failed += 1
            await self._give_up(message, error)
        else:
            self.handled += 1
            if not message.is_settled:
                await message.ack()
        finally:
            self._room.release()

    async def _give_up(self, message: AsyncQueueMessage, error: Exception) -> None:
        if message.is_settled:
            log.exception("a handler of %s failed after settling", message.queue)
        elif message.retry_count >= self._retry.max_retries:
            log.error("%r failed for the last time: %r", message, error)
            await message.reject(error)
        else:
            log.warning("%r failed: %r; it comes again", message, error)
            await message.nack(delay=self._retry.pause(message.retry_count))

    @property
    def is_running(self) -> bool:
        return not self.task.done()

    def _take_no_more(self) -> None:
        self._stopping.set()

    async def stop(self, timeout: float | None = 30.0) -> None:
        """Take no more messages and wait for the handlers that run; what is left goes back."""
        self._take_no_more()
        done, _ = await asyncio.wait({self.task}, timeout=timeout)
        if not done:
            self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError, PenstockError):
            await self.task


def _tell(task: asyncio.Task[None]) -> None:
    """A worker that ended by itself must not do so in silence."""
    if not task.cancelled() and (failure := task.exception()) is not None:
        log.error("a worker has ended: %r", failure)
