"""Request and reply over queues: one asks, one of those who can answers.

Each client has one queue for the answers to its own questions, made with the first one and gone
with the client. A handler that fails answers too, with its error; the one who asked is told.
"""

from __future__ import annotations

import logging
import threading
import uuid
from concurrent.futures import Future
from typing import Any

from penstock.client.errors import NotFound, PenstockError, RequestFailed, TimedOut
from penstock.client.queue import Consumption, Queue
from penstock.client.queue_home import QueueOptions
from penstock.client.queue_message import ERROR, ERROR_TYPE, QueueMessage
from penstock.client.queue_port import QueuePort
from penstock.client.serializer import Serializer
from penstock.client.wishes import PublishWishes

log = logging.getLogger("penstock")

_EXPIRES_SECONDS = 3600.0  # for answers to a client that died


class Requests:
    """The questions of one client that wait for an answer."""

    def __init__(self, port: QueuePort) -> None:
        self._port = port
        self._lock = threading.Lock()
        self._waiting: dict[str, Future[QueueMessage]] = {}
        self._asked: dict[str, Queue] = {}
        self._answers: Queue | None = None
        self._messages: Consumption | None = None
        self._thread: threading.Thread | None = None

    def _address(self) -> str:
        """The queue for answers, made at the first question."""
        with self._lock:
            # The queue goes with its consumer, and that may have lost its connection.
            if self._answers is None or self._thread is None or not self._thread.is_alive():
                name = f"reply.{uuid.uuid4().hex}"
                options = QueueOptions(durable=False, auto_delete=True, expires=_EXPIRES_SECONDS)
                self._answers = Queue(self._port, name, options)
                self._messages = self._answers.consume(prefetch=1000)
                self._thread = threading.Thread(
                    target=self._listen,
                    args=(self._messages,),
                    name="penstock-replies",
                    daemon=True,
                )
                self._thread.start()
            return self._answers.name

    def _listen(self, messages: Consumption) -> None:
        try:
            for message in messages:
                future = self._waiting.pop(message.correlation_id or "", None)
                message.ack()
                if future is not None:  # else whoever asked has given up
                    future.set_result(message)
        except PenstockError as failure:
            log.debug("no more answers: %s", failure)

    def ask(
        self,
        queue: str,
        payload: Any,
        timeout: float,
        serializer: Serializer | str | None,
        headers: dict[str, Any] | None,
    ) -> QueueMessage:
        reply_to = self._address()
        correlation_id = uuid.uuid4().hex
        future: Future[QueueMessage] = Future()
        self._waiting[correlation_id] = future
        try:
            wishes: PublishWishes = {
                "correlation_id": correlation_id,
                "reply_to": reply_to,
                "ttl": timeout,
                "headers": headers,
            }
            try:
                self._queue(queue).publish(payload, serializer=serializer, **wishes)
            except NotFound:  # it was deleted since the last question
                self._asked.pop(queue, None)
                self._queue(queue).publish(payload, serializer=serializer, **wishes)
            answer = future.result(timeout)
        except TimeoutError:
            raise TimedOut(f"nobody at {queue!r} answered within {timeout} s") from None
        finally:
            self._waiting.pop(correlation_id, None)
        if answer.error is not None:
            kind = answer.headers.get(ERROR_TYPE, "error")
            raise RequestFailed(f"{kind} at {queue!r}: {answer.error}")
        return answer

    def _queue(self, name: str) -> Queue:
        """The queue to ask at, opened once."""
        found = self._asked.get(name)
        if found is None:
            found = self._asked[name] = Queue(self._port, name, QueueOptions())
        return found

    def close(self) -> None:
        if self._messages is not None:
            self._messages.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5)


def answer(
    port: QueuePort,
    message: QueueMessage,
    result: Any,
    error: BaseException | None,
    serializer: Serializer | str | None,
) -> None:
    """Send an answer to whoever asked, if they want one and are still there."""
    if message.reply_to is None:
        return
    headers = {} if error is None else {ERROR: str(error), ERROR_TYPE: type(error).__qualname__}
    wishes: PublishWishes = {"correlation_id": message.correlation_id, "headers": headers}
    try:
        outgoing, _ = port.prepare(
            message.reply_to,
            b"" if error is not None else result,
            None if error is not None else serializer,
            wishes,
        )
    except Exception as unfit:  # a result that cannot be sent is an error to whoever asked
        if error is None:
            answer(port, message, None, unfit, None)
            return
        raise
    if not port.sender.room.take(outgoing.size):
        return

    def settle(receipt: Any, failure: PenstockError | None) -> None:
        if failure is not None and not isinstance(failure, NotFound):
            log.warning("an answer was lost: %s", failure)

    port.post("", message.reply_to, outgoing, 0, settle)
