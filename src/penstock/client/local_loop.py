"""An event loop on a thread of its own, and how others wait for what it does."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from penstock.client.errors import Closed, TimedOut

T = TypeVar("T")


class LoopThread:
    """Started at once; `stop` ends it. The thread is a daemon: it never keeps a process alive."""

    def __init__(self, name: str) -> None:
        self.loop = _new_loop()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            asyncio.set_event_loop(None)
            self.loop.close()

    def check(self) -> None:
        """Refuse callers that would wait for ever."""
        if os.getpid() != self._pid:
            raise Closed(
                "this was opened before the process forked and does not exist in the child; open "
                "it after the fork, or let the child connect to the parent's Kafka door"
            )
        if not self._thread.is_alive():
            raise Closed("it is closed")
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call inside a delivery callback would wait for ever")

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Do `work` on the loop and wait for it in this thread."""
        try:
            self.check()
        except BaseException:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result(timeout)
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
        try:
            self.check()
        except BaseException:
            work.close()
            raise
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def soon(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call something on the loop, from any thread."""
        self.loop.call_soon_threadsafe(call, *arguments)

    def stop(self) -> None:
        """End the thread and wait for it."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # a platform without it: slower, not worse
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
