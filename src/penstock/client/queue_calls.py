"""The part of the client that is about queues: queues, exchanges, workers, requests."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from penstock.client.arguments import check_handler, check_text
from penstock.client.errors import InvalidArgument
from penstock.client.exchange import Exchange
from penstock.client.home import Home
from penstock.client.message import Seconds
from penstock.client.queue import Queue
from penstock.client.queue_home import QueueOptions
from penstock.client.queue_message import QueueMessage
from penstock.client.queue_port import QueuePort
from penstock.client.requests import Requests, answer
from penstock.client.sender import Sender
from penstock.client.serializer import Serializer
from penstock.client.worker import Handler, Retry, Worker


class QueueCalls:
    """What a client can do with queues."""

    _home: Home
    _sender: Sender

    def _open_queues(self) -> None:
        self._made_port: QueuePort | None = None
        self._requests: Requests | None = None
        self._workers: list[Worker] = []
        self._queue_lock = threading.Lock()

    @property
    def _port(self) -> QueuePort:
        with self._queue_lock:
            if self._made_port is None:
                self._made_port = QueuePort(self._home, self._home.queues, self._sender)
            return self._made_port

    def queue(
        self,
        name: str,
        *,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        max_priority: int | None = None,
        ttl: Seconds | None = None,
        expires: Seconds | None = None,
        max_length: int | None = None,
        max_length_bytes: int | None = None,
        overflow: str | None = None,
        dead_letter: bool | str | None = None,
        max_deliveries: int | None = None,
        visibility_timeout: Seconds | None = None,
        deduplication_window: Seconds | None = None,
        single_active: bool = False,
        retention: Seconds | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> Queue:
        """A queue, created if it is not there; without options, an existing one as it is.

        `max_priority` gives it priorities; `ttl` and `expires` are seconds for messages and for the
        unused queue; `overflow` is "drop-head", "reject" (publishing raises `QueueFull`) or
        "dead-letter"; `dead_letter` names the queue for what cannot be handled (True: `<name>.dlq`,
        the default; False: it is dropped); a message that was delivered `max_deliveries` times goes
        there; one that is not settled within `visibility_timeout` comes back; one whose id was
        published within `deduplication_window` is not taken again.

        >>> work = mq.queue("urgent", max_priority=9, max_length=1000, overflow="reject")
        >>> work.publish("now", priority=9).topic
        'urgent'
        """
        options = QueueOptions(
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            max_priority=max_priority,
            ttl=ttl,
            expires=expires,
            max_length=max_length,
            max_length_bytes=max_length_bytes,
            overflow=overflow,
            dead_letter=dead_letter,
            max_deliveries=max_deliveries,
            visibility_timeout=visibility_timeout,
            deduplication_window=deduplication_window,
            single_active=single_active,
            retention=retention,
            arguments=arguments,
        )
        return Queue(self._port, name, options)

    def queues(self) -> list[str]:
        """The names of all queues.

        >>> mq.queues()
        ['work', 'work.dlq']
        """
        port = self._port
        return port.home.run(port.queues.queue_names())

    def exchange(
        self, name: str, kind: str = "topic", *, durable: bool = True, auto_delete: bool = False
    ) -> Exchange:
        """An exchange of a kind: direct, topic, fanout or headers; created if it is not there.

        >>> events = mq.exchange("events", "fanout")
        >>> queue.bind("events")
        >>> _ = events.publish("", "to everybody")
        """
        return Exchange(self._port, name, kind, durable=durable, auto_delete=auto_delete)

    def exchanges(self) -> list[str]:
        """The names of all exchanges but the server's own.

        >>> _ = mq.exchange("events")
        >>> mq.exchanges()
        ['events']
        """
        port = self._port
        return port.home.run(port.queues.exchange_names())

    # --- workers ----------------------------------------------------------------------------------

    def worker(
        self,
        queue: str | Queue,
        *,
        concurrency: int = 1,
        max_retries: int = 5,
        backoff: float = 1.0,
        max_backoff: float = 300.0,
        prefetch: int | None = None,
    ) -> Callable[[Handler], Worker]:
        """Call a function for each message of a queue, in `concurrency` threads.

            @mq.worker("work", concurrency=8)
            def handle(message): ...

        It begins at once, and ends with the client, or with `stop()`. A message whose handler
        raises comes again after `backoff` seconds, then twice that, and so on; after `max_retries`
        it lies among the dead letters with the error.

        >>> import queue
        >>> handled = queue.Queue()
        >>> @mq.worker("work", concurrency=2)
        ... def handle(message):
        ...     handled.put(message.text)
        >>> handled.get(timeout=10)
        'job'
        """
        retry = Retry(max_retries=max_retries, backoff=backoff, most=max_backoff)
        if not isinstance(queue, Queue):
            check_text(queue, "a queue")

        def decorate(handler: Handler) -> Worker:
            check_handler(handler, may_await=False)
            found = queue if isinstance(queue, Queue) else self.queue(queue)
            made = Worker(found, handler, concurrency, retry, prefetch)
            self._workers.append(made)
            return made

        return decorate

    def run(self, *, signals: bool = True) -> None:
        """Wait until SIGINT or SIGTERM, then stop every worker gracefully and close.

        >>> import threading
        >>> threading.Timer(0.1, mq.close).start()
        >>> mq.run(signals=False)
        """
        stop = threading.Event()
        before: dict[signal.Signals, Any] = {}
        if signals:
            if threading.current_thread() is not threading.main_thread():
                raise InvalidArgument("signals come to the main thread: call run() there")
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, lambda *_: stop.set())
        try:
            while not stop.wait(0.5) and not self._home.is_closed:
                pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.close()

    # --- request and reply ------------------------------------------------------------------------

    def request(
        self,
        queue: str,
        payload: Any,
        *,
        timeout: float = 10.0,
        serializer: Serializer | str | None = None,
        headers: dict[str, Any] | None = None,
    ) -> QueueMessage:
        """Ask whoever answers at a queue, and wait for the answer.

        `TimedOut` when none comes, `RequestFailed` when the handler raised.

        >>> @mq.reply("rpc.upper")
        ... def upper(message): return message.text.upper()
        >>> mq.request("rpc.upper", "hello", timeout=10).text
        'HELLO'
        """
        port = self._port
        port.home.check_may_wait()
        with self._queue_lock:
            if self._requests is None:
                self._requests = Requests(port)
        return self._requests.ask(queue, payload, timeout, serializer, headers)

    def reply(
        self,
        queue: str,
        *,
        concurrency: int = 1,
        serializer: Serializer | str | None = None,
    ) -> Callable[[Handler], Worker]:
        """Answer requests with what a function returns.

        @mq.reply("rpc.price")
        def price(message): return b"42"

        >>> @mq.reply("rpc.price", serializer="json")
        ... def price(message): return {"price": 42}
        >>> mq.request("rpc.price", "apple").json()
        {'price': 42}
        """
        port = self._port
        check_text(queue, "a queue")

        def decorate(handler: Handler) -> Worker:
            check_handler(handler, may_await=False)

            @wraps(handler)
            def answering(message: QueueMessage) -> None:
                try:
                    result = handler(message)
                except BaseException as error:  # sys.exit() in a thread ends nothing
                    answer(port, message, None, error, serializer)
                else:
                    answer(port, message, result, None, serializer)

            found = self.queue(queue)
            made = Worker(found, answering, concurrency, Retry(max_retries=0), None)
            self._workers.append(made)
            return made

        return decorate

    # --- the end ----------------------------------------------------------------------------------

    def _close_queues(self) -> None:
        workers, self._workers = self._workers, []
        for worker in workers:  # none goes on while another is waited for
            worker._take_no_more()
        for worker in workers:
            with contextlib.suppress(Exception):
                worker.stop()
        if self._requests is not None:
            self._requests.close()

    def close(self) -> None:
        """See `Client.close`."""
        raise AssertionError("a client closes itself")
