"""A queue in this process: publish, subscribe, start, stop.

mq = SimpleQueue(max_size=100)
mq.subscribe(process_order)
mq.start()
mq.publish(Message(id="msg1", topic="orders", data={"order_id": 123}, priority=1))
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from penstock.client.errors import InvalidArgument, PenstockError, QueueFull
from penstock.client.opening import open
from penstock.client.queue import Queue
from penstock.client.queue_message import QueueMessage
from penstock.client.worker import Retry
from penstock.embedded.message import Message
from penstock.embedded.underneath import Underneath

log = logging.getLogger("penstock")

Callback = Callable[[Message], object]

_MAX_PRIORITY = 255


class SimpleQueue(Underneath):
    """A queue with priorities, retries and dead letters. In memory; with a `path`, on disk.

    A message goes to every subscriber, the highest priority first (0 to 255). If one of them
    raises, it comes again to all after `backoff` seconds, then twice that, and so on; when it was
    tried `max_retries` times it lies among the `dead_letters`, with the error. Meanwhile the others
    go on.

    >>> import threading
    >>> done = threading.Event()
    >>> with SimpleQueue(max_size=100) as queue:
    ...     queue.subscribe(lambda message: done.set())
    ...     queue.start()
    ...     queue.publish(Message(id="msg1", topic="orders", data={"order_id": 123}))
    ...     done.wait(10)
    True
    """

    def __init__(
        self,
        max_size: int = 1000,
        *,
        path: str | Path | None = None,
        name: str = "queue",
        backoff: float = 1.0,
    ) -> None:
        if max_size < 1:
            raise InvalidArgument(f"max_size is 1 or more, not {max_size}")
        super().__init__(open(path), owned=True)
        self._queue: Queue = self.client.queue(
            name, max_length=max_size, overflow="reject", max_priority=_MAX_PRIORITY
        )
        self._queue.allow_delays()
        self._retry = Retry(backoff=backoff)
        self._subscribers: list[Callback] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<SimpleQueue {self._queue.name}{' running' if self.running else ''}>"

    def publish(self, message: Message) -> None:
        """Put a message into the queue. `QueueFull` when `max_size` messages wait already."""
        if not isinstance(message, Message):
            raise InvalidArgument(f"give a Message(id=..., topic=..., data=...), not {message!r}")
        if not 0 <= message.priority <= _MAX_PRIORITY:
            raise InvalidArgument(f"a priority is 0 to {_MAX_PRIORITY}, not {message.priority}")
        try:
            self._queue.publish(
                message.payload(),
                message_id=message.id,
                headers=message.headers(),
                priority=message.priority,
                timestamp=message.timestamp,
            )
        except QueueFull:
            raise QueueFull(f"the queue is full: it cannot take message {message.id}") from None

    def subscribe(self, callback: Callback) -> None:
        """Have a function called for each message."""
        if not callable(callback):
            raise InvalidArgument(f"a subscriber is a function, and {callback!r} is none")
        with self._lock:
            self._subscribers.append(callback)

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def size(self) -> int:
        """How many messages wait."""
        return self._queue.stats().ready

    @property
    def dead_letters(self) -> list[Message]:
        """Messages that failed each time, the oldest first; `error` says why."""
        letters = self._queue.dead_letters
        return [Message.read(stored) for stored in letters.peek(letters.stats().ready or 1)]

    def redrive(self) -> int:
        """Let the dead letters be tried again, each once; how many there were.

        >>> with SimpleQueue() as queue:
        ...     queue.redrive()
        0
        """
        return self._queue.redrive().moved

    def start(self) -> None:
        """Process messages, in a thread."""
        if self.running:
            return
        self._stopping.clear()
        self._thread = threading.Thread(target=self._process, name="simple-queue", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the message at hand and process no more; `start` goes on.

        >>> with SimpleQueue() as queue:
        ...     queue.start()
        ...     queue.stop()
        ...     queue.running
        False
        """
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def close(self) -> None:
        """Stop and end. What was not processed is gone, unless the queue has a path."""
        self.stop()
        super().close()

    def _process(self) -> None:
        try:
            # One at a time: a message that comes meanwhile with a higher priority is next.
            with self._queue.consume(prefetch=1) as messages:
                while not self._stopping.is_set():
                    delivered = messages.get(0.2)
                    if delivered is not None:
                        self._deliver(delivered)
        except PenstockError as failure:
            log.error("%r stops: %s", self, failure)

    def _deliver(self, delivered: QueueMessage) -> None:
        message = Message.read(delivered)
        with self._lock:
            subscribers = list(self._subscribers)
        failure: Exception | None = None
        for callback in subscribers:
            try:
                callback(message)
            except Exception as error:
                log.warning("message %s failed: %r", message.id, error)
                failure = error
        if failure is None:
            delivered.ack()
        elif message.retry_count + 1 < message.max_retries:
            delivered.nack(delay=self._retry.pause(message.retry_count))
        else:
            log.error("message %s failed %s times", message.id, message.retry_count + 1)
            delivered.reject(failure)
