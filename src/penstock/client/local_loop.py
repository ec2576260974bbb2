"""An event loop on a thread of its own, and how others wait for what it does."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from penstock.client.errors import Closed, TimedOut

T = TypeVar("T")

_ROUNDS, _CANCEL_SECONDS = 3, 5.0  # for what is still under way at the end


class LoopThread:
    """Started at once; `stop` ends it. The thread is a daemon: it never keeps a process alive.

    Whoever waits for something when it stops is told, with `Closed`; nobody waits for ever.
    """

    def __init__(self, name: str) -> None:
        self.loop = _new_loop()
        self._gate = threading.Lock()  # nothing is handed to the loop after it was told to stop
        self._is_stopping = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            self.loop.run_until_complete(_wind_up())
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()

    @property
    def is_of_parent(self) -> bool:
        """Whether the process has forked since: then the thread exists in the parent only."""
        return os.getpid() != self._pid

    def check(self) -> None:
        """Refuse callers that would wait for ever."""
        if self.is_of_parent:
            raise Closed(
                "this was opened before the process forked and does not exist in the child; open "
                "it after the fork, or let the child connect to the parent's Kafka door"
            )
        if self._is_stopping:
            raise Closed("it is closed")
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call inside a delivery callback would wait for ever")

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Do `work` on the loop and wait for it in this thread."""
        future = self._hand_over(work)
        try:
            return future.result(timeout)
        except CancelledError:
            self._explain()
            raise
        except TimeoutError:
            if future.done():  # the work's own
                raise
            future.cancel()
            raise TimedOut(f"not done within {timeout} s") from None
        except BaseException:  # Ctrl-C, most likely: whoever waited does not any more
            future.cancel()
            raise

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` on the loop and wait for it on the caller's."""
        future = self._hand_over(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if future.cancelled() and not _is_cancelling():
                self._explain()
            raise

    def _hand_over(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        try:
            with self._gate:
                self.check()
                return asyncio.run_coroutine_threadsafe(work, self.loop)
        except BaseException:
            work.close()
            raise

    def _explain(self) -> None:
        """Something was cancelled: if that was because of the end, say so."""
        if self._is_stopping:
            raise Closed("it was closed meanwhile") from None

    def soon(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call something on the loop, from any thread."""
        with self._gate:
            if self._is_stopping:
                raise Closed("it is closed")
            self.loop.call_soon_threadsafe(call, *arguments)

    def stop(self) -> None:
        """End the thread and wait for it."""
        with self._gate:
            if not self._is_stopping:
                self._is_stopping = True
                self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join()


async def _wind_up() -> None:
    """Cancel what is still under way, and let those who wait for it hear."""
    for _ in range(_ROUNDS):  # a task that is cancelled may begin another
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_CANCEL_SECONDS)
        await asyncio.sleep(0)  # what is done tells so in the next turn of the loop


def _is_cancelling() -> bool:
    """Whether it is the caller that is being cancelled, and not what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # a platform without it: slower, not worse
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
