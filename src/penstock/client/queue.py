"""A queue, for code without an event loop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, Unpack

from penstock.client.arguments import check_seconds, check_whole, several
from penstock.client.delivery import Delivery
from penstock.client.errors import Closed, InvalidArgument, TimedOut
from penstock.client.message import Message, Receipt
from penstock.client.queue_home import QueueConsumer, QueueOptions, QueueStats, Redriven, Taken
from penstock.client.queue_message import QueueMessage
from penstock.client.queue_port import QueuePort, binding_arguments
from penstock.client.serializer import Serializer
from penstock.client.watch import Working
from penstock.client.wishes import PublishWishes

_WAIT_SECONDS = 0.5  # the longest wait in one piece


class Queue:
    """A queue: each message is handled by one consumer, who says what became of it.

    >>> import penstock
    >>> with penstock.open(None) as mq:
    ...     work = mq.queue("work")
    ...     _ = work.publish("do this")
    ...     message = work.get()
    ...     message.ack()
    ...     message.text, work.stats().ready
    ('do this', 0)
    """

    def __init__(self, port: QueuePort, name: str, options: QueueOptions) -> None:
        self._port = port
        self._home, self._queues = port.home, port.queues
        self.name, self._dead_letters = self._home.run(port.open(name, options))

    def __repr__(self) -> str:
        return f"<Queue {self.name}>"

    # --- publishing -------------------------------------------------------------------------------

    def publish(
        self,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        timeout: float | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Receipt:
        """Publish one message and wait until it is safe. `QueueFull` when the queue refuses it.

        >>> queue.publish("a", message_id="m-1").message_id
        'm-1'
        """
        self._home.check_may_wait()
        future = self.send(payload, serializer=serializer, timeout=timeout, **wishes)
        try:
            return future.result(timeout)
        except TimeoutError:
            if future.done():
                raise
            raise TimedOut(f"the message was not acknowledged within {timeout} s") from None

    def send(
        self,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        timeout: float | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Future[Receipt]:
        """Publish without waiting: the future has the receipt when the message is safe.

        >>> queue.send("a", message_id="m-1").result().message_id
        'm-1'
        """
        outgoing, delay_ms = self._port.prepare(self.name, payload, serializer, wishes)
        if delay_ms:
            self._home.run(self._port.ensure_delays(self.name))
        delivery = Delivery()
        if self._port.sender.room.take(outgoing.size, timeout=timeout):
            self._port.post("", self.name, outgoing, delay_ms, delivery)
        else:
            delivery(Receipt(self.name, 0, -1, dropped=True), None)
        return delivery

    def publish_many(
        self,
        messages: Iterable[Any],
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> list[Receipt]:
        """Publish many messages and wait until all are safe.

        >>> len(queue.publish_many(["a", "b", "c"]))
        3
        """
        self._home.check_may_wait()
        futures = [
            self.send(message, serializer=serializer, **wishes) for message in several(messages)
        ]
        return [future.result() for future in futures]

    # --- consuming --------------------------------------------------------------------------------

    def consume(
        self,
        *,
        prefetch: int = 100,
        idle_timeout: float | None = None,
        auto_ack: bool = False,
        exclusive: bool = False,
        priority: int = 0,
    ) -> Consumption:
        """Messages as they come, at most `prefetch` of them unsettled at a time.

        With `auto_ack`, asking for the next one acknowledges the one before. What is not settled
        when it is closed goes back to the queue.

        >>> with queue.consume(prefetch=10, idle_timeout=0.1) as messages:
        ...     for message in messages:
        ...         print(message.text)
        ...         message.ack()
        job
        """
        check_whole(prefetch, "prefetch", 1)
        check_seconds(idle_timeout, "idle_timeout")
        consumer = self._home.run(
            self._queues.consumer(self.name, prefetch, exclusive=exclusive, priority=priority)
        )
        return Consumption(self, consumer, prefetch, idle_timeout, auto_ack)

    def get(self, timeout: float = 0.0) -> QueueMessage | None:
        """The next message; None when there is none within `timeout` seconds.

        >>> message = queue.get()
        >>> message.ack()
        >>> queue.get() is None
        True
        """
        check_seconds(timeout, "timeout")
        deadline = time.monotonic() + timeout
        pause = 0.002
        while True:
            got = self._home.run(self._queues.get(self.name))
            if got is not None:
                return self._message(*got)
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(pause, left))
            pause = min(pause * 2, 0.05)

    def _message(self, taken: Taken, consumer: QueueConsumer) -> QueueMessage:
        settlement = self._port.settlement(consumer, self.name, self._dead_letters, taken)
        message: QueueMessage = QueueMessage._delivered(self.name, taken, settlement)
        return message

    def allow_delays(self) -> None:
        """Prepare for `nack(delay=...)` ahead of time; the first one does it otherwise.

        >>> queue.allow_delays()
        >>> queue.get().nack(delay=5)
        """
        self._home.run(self._port.ensure_delays(self.name))

    # --- looking and tidying ----------------------------------------------------------------------

    def peek(self, count: int = 10) -> list[Message]:
        """Messages that stay where they are.

        >>> [message.text for message in queue.peek()]
        ['job']
        """
        check_whole(count, "count")
        return self._home.run(self._queues.peek(self.name, count))

    def stats(self) -> QueueStats:
        """How many messages are ready and in flight, how many consumers there are.

        >>> stats = queue.stats()
        >>> stats.ready, stats.in_flight, stats.consumers
        (1, 0, 0)
        """
        return self._home.run(self._queues.queue_stats(self.name))

    def purge(self) -> int:
        """Drop every message that is ready; how many there were.

        >>> queue.purge()
        1
        """
        return self._home.run(self._queues.purge_queue(self.name))

    def delete(self) -> int:
        """Delete the queue with its messages; how many there were.

        >>> queue.delete()
        1
        """
        return self._home.run(self._queues.delete_queue(self.name))

    @property
    def dead_letters(self) -> Queue:
        """The queue of its dead letters."""
        if self._dead_letters is None:
            raise InvalidArgument(f"queue {self.name!r} has no dead letters")
        return Queue(self._port, self._dead_letters, QueueOptions())

    def redrive(self, *, to: str | None = None, limit: int | None = None) -> Redriven:
        """Send the dead letters of this queue back to it, or to another one.

        >>> queue.get().reject("not now")
        >>> dead = queue.dead_letters.get(timeout=10)
        >>> dead.nack()
        >>> queue.redrive().moved
        1
        """
        target = self.dead_letters.name
        return self._home.run(self._queues.redrive(target, self.name, to, limit))

    def bind(
        self,
        exchange: str,
        routing_key: str = "",
        *,
        headers: Mapping[str, str | int | bool] | None = None,
        match: str = "all",
    ) -> None:
        """Have messages of an exchange that fit come into this queue.

        >>> _ = mq.exchange("events", "headers")
        >>> queue.bind("events", headers={"type": "order"}, match="any")
        """
        arguments = binding_arguments(headers, match)
        self._home.run(self._queues.bind(self.name, exchange, routing_key, arguments))

    def unbind(
        self,
        exchange: str,
        routing_key: str = "",
        *,
        headers: Mapping[str, str | int | bool] | None = None,
        match: str = "all",
    ) -> None:
        """Have them come no more.

        >>> _ = mq.exchange("events")
        >>> queue.bind("events", "order.*")
        >>> queue.unbind("events", "order.*")
        """
        arguments = binding_arguments(headers, match)
        self._home.run(self._queues.unbind(self.name, exchange, routing_key, arguments))


class Consumption(Iterator[QueueMessage]):
    """A consumer of a queue, in one thread at a time; only `close` may come from another."""

    def __init__(
        self,
        queue: Queue,
        consumer: QueueConsumer,
        prefetch: int,
        idle_timeout: float | None,
        auto_ack: bool,
    ) -> None:
        self._queue = queue
        self._consumer = consumer
        self._prefetch = prefetch
        self._idle_timeout = idle_timeout
        self._auto_ack = auto_ack
        self._ready: deque[QueueMessage] = deque()
        self._current: QueueMessage | None = None
        self._is_closed = False
        self._is_woken = False
        self.watch = queue._port.sender.watch  # None for those who tell of their work themselves
        self._working: Working | None = None

    def __repr__(self) -> str:
        return f"<Consumption of {self._queue.name}>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> QueueMessage:
        """Wait for the next message. Ends when it is closed, or idle for `idle_timeout`."""
        message = None if self._is_closed else self.get(self._idle_timeout)
        if message is None:
            raise StopIteration
        return message

    def get(self, timeout: float | None = None) -> QueueMessage | None:
        """The next message; None when none came within `timeout` seconds, or it is closed.

        >>> with queue.consume() as messages:
        ...     messages.get(timeout=10).text, messages.get(timeout=0.01)
        ('job', None)
        """
        if self._is_closed:
            raise Closed("the consumer is closed")
        self._worked(None)
        self._acknowledge()
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._ready and not self._is_closed and not self._is_woken:
            left = None if deadline is None else deadline - time.monotonic()
            wait = _WAIT_SECONDS if left is None else max(0.0, min(left, _WAIT_SECONDS))
            self._take(wait)
            if left is not None and left <= 0:
                break
        if not self._ready:
            return None
        self._current = self._ready.popleft()
        if self.watch is not None:
            self._working = self.watch.working(self._current)
        return self._current

    def _wake(self) -> None:
        """From any thread: nobody is to wait for more messages."""
        self._is_woken = True
        self._consumer.wake()

    def _worked(self, failure: BaseException | None) -> None:
        working, self._working = self._working, None
        if working is not None:
            working.end(failure)

    def _take(self, wait: float) -> None:
        queue = self._queue
        try:
            taken = queue._home.run(self._consumer.take(wait, self._prefetch))
        except Closed:  # by another thread, with its client, or the queue was deleted
            self._is_closed = True
            return
        self._ready.extend([queue._message(each, self._consumer) for each in taken])

    def _acknowledge(self) -> None:
        current, self._current = self._current, None
        if self._auto_ack and current is not None and not current.is_settled:
            current.ack()

    def close(self) -> None:
        """Take no more. What is not settled goes back to the queue.

        >>> messages = queue.consume()
        >>> next(messages).text
        'job'
        >>> messages.close()
        """
        self._close(finished=True)

    def _close(self, *, finished: bool) -> None:
        if self._is_closed:
            return
        if finished:
            self._acknowledge()
        self._is_closed = True
        self._consumer.wake()
        if not self._queue._home.is_closed:
            self._queue._home.run(self._consumer.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._worked(failure)
        self._close(finished=failure is None)

    def __del__(self) -> None:
        if not getattr(self, "_is_closed", True):
            self._consumer.close_soon()
