"""Workers: a function is called for each message of a queue, in a few threads.

A message whose handler returns is acknowledged. One whose handler raises comes again after a while,
each time later, and lies among the dead letters with the error when it was tried often enough.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from penstock.client.arguments import check_whole
from penstock.client.errors import InvalidArgument, PenstockError
from penstock.client.queue import Queue
from penstock.client.queue_message import QueueMessage

log = logging.getLogger("penstock")

Handler = Callable[[QueueMessage], Any]


@dataclass(frozen=True, slots=True)
class Retry:
    """How often to try, and how long to wait in between: exponentially, with some chance in it."""

    max_retries: int = 5
    backoff: float = 1.0
    factor: float = 2.0
    most: float = 300.0

    def __post_init__(self) -> None:
        if self.max_retries < 0 or self.backoff < 0 or self.factor < 1 or self.most < 0:
            raise InvalidArgument(f"retries cannot be {self!r}")

    def pause(self, retry_count: int) -> float:
        """Seconds until the next try, after `retry_count` of them.

        >>> Retry(backoff=1.0).pause(3) in range(6, 9) or 6.0 <= Retry(backoff=1.0).pause(3) <= 8.0
        True
        """
        longest = min(self.most, self.backoff * self.factor**retry_count)
        return longest * random.uniform(0.75, 1.0)


class Worker:
    """Calls a handler for each message, until it is stopped. Call it to call the handler."""

    def __init__(
        self, queue: Queue, handler: Handler, concurrency: int, retry: Retry, prefetch: int | None
    ) -> None:
        check_whole(concurrency, "concurrency", 1)
        self.queue = queue
        self.handler = handler
        self.handled = 0
        self.failed = 0
        self._retry = retry
        self._concurrency = concurrency
        self._stopping = threading.Event()
        self._ending = threading.Lock()
        self._is_over = False
        self._handling: set[int] = set()  # threads
        self._room = threading.Semaphore(concurrency)
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix=f"worker-{queue.name}")
        self._messages = queue.consume(prefetch=prefetch or concurrency)
        self._watch, self._messages.watch = self._messages.watch, None
        self._thread = threading.Thread(target=self._run, name=f"worker-{queue.name}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<Worker of {self.queue.name}: {self.handled} handled, {self.failed} failed>"

    def __call__(self, message: QueueMessage) -> Any:
        return self.handler(message)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._room.acquire()
            message = None
            try:
                message = None if self._stopping.is_set() else self._messages.get(0.5)
            except PenstockError as failure:
                if self._messages._is_closed:
                    self._room.release()
                    return
                log.warning("the worker of %s waits: %s", self.queue.name, failure)
                time.sleep(0.5)
            if message is None:
                self._room.release()
                if self._messages._is_closed:
                    return
            else:
                self._pool.submit(self._handle, message)

    def _handle(self, message: QueueMessage) -> None:
        told = nullcontext() if self._watch is None else self._watch.processing(message)
        self._handling.add(threading.get_ident())
        try:
            with told:
                self.handler(message)
        except BaseException as error:  # sys.exit() in a thread ends nothing: it failed, too
            self.failed += 1
            self._give_up(message, error)
        else:
            self.handled += 1
            if not message.is_settled:
                message.ack()
        finally:
            self._handling.discard(threading.get_ident())
            self._room.release()

    def _give_up(self, message: QueueMessage, error: BaseException) -> None:
        if message.is_settled:
            log.exception("a handler of %s failed after settling", self.queue.name)
        elif message.retry_count >= self._retry.max_retries:
            log.error("%r failed for the last time: %r", message, error)
            message.reject(error)
        else:
            log.warning("%r failed: %r; it comes again", message, error)
            message.nack(delay=self._retry.pause(message.retry_count))

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def _is_handling(self) -> bool:
        """Whether this very thread is in the middle of a handler, which cannot wait for itself."""
        return threading.get_ident() in self._handling

    def _take_no_more(self) -> None:
        self._stopping.set()
        self._messages._wake()

    def stop(self, timeout: float | None = 30.0) -> None:
        """Take no more messages and wait for the handlers that run; what is left goes back.

        A second call does nothing.

        >>> worker = mq.worker("work")(lambda message: None)
        >>> worker.stop()
        >>> worker.is_running
        False
        """
        with self._ending:
            if self._is_over:
                return
            self._take_no_more()
            deadline = None if timeout is None else time.monotonic() + timeout
            if threading.current_thread() is not self._thread:
                self._thread.join(timeout)
            # Each permit that is back is a handler that is done, but for the one who calls this.
            for _ in range(self._concurrency - self._is_handling()):
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                self._room.acquire(timeout=left)
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._messages.close()
            self._is_over = True
