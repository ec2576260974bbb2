"""A message of a queue: whoever got it says what became of it.

`Settlement` is what both faces share. A message that is to come again later, or to lie among the
dead letters with the error that killed it, is published anew, changed; the one that was delivered
is acknowledged when the copy is safe, and goes back to the queue when the copy fails. A crash
between the two leaves both: at least once, never less.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Coroutine
from typing import Any, Protocol

from penstock.client.amqp_headers import DELAY_HEADER, read_amqp
from penstock.client.errors import Conflict, PenstockError
from penstock.client.home import Home
from penstock.client.message import Message, Receipt, Seconds, milliseconds
from penstock.client.properties import RETRY_COUNT
from penstock.client.queue_home import DELAY_EXCHANGE, Posted, QueueConsumer, QueueHome, Taken
from penstock.model.death import DEATH, Death, with_death
from penstock.model.field_table import LongString, encode_value
from penstock.model.message_properties import parse
from penstock.model.queue_settings import DeadReason

log = logging.getLogger("penstock")

ERROR = "penstock.error"
ERROR_TYPE = "penstock.error-type"
ERROR_TRACE = "penstock.error-trace"
_MOST_TRACE = 4_000


class Port(Protocol):
    """What a settlement needs of the client it belongs to."""

    @property
    def home(self) -> Home: ...

    @property
    def queues(self) -> QueueHome: ...

    def has_delays(self, queue: str) -> bool:
        """Whether messages of this queue can be held back."""

    async def ensure_delays(self, queue: str) -> None:
        """Let messages of this queue be held back."""


class Settlement:
    """What can become of one delivered message. Each call may come from any thread."""

    __slots__ = ("_consumer", "_dead_letters", "_queue", "_taken", "is_settled", "port")

    def __init__(
        self,
        port: Port,
        consumer: QueueConsumer,
        queue: str,
        dead_letters: str | None,
        taken: Taken,
    ) -> None:
        self.port = port
        self._consumer = consumer
        self._queue = queue
        self._dead_letters = dead_letters
        self._taken = taken
        self.is_settled = False

    def _once(self) -> None:
        if self.is_settled:
            raise Conflict("the message was settled already: ack, nack or reject it once")
        self.is_settled = True

    def ack(self) -> None:
        self._once()
        self._consumer.ack(self._taken.token)

    def requeue(self) -> None:
        self._once()
        self._consumer.requeue(self._taken.token)

    def renew(self) -> None:
        if self.is_settled:
            raise Conflict("the message was settled already: it is not yours any more")
        self._consumer.renew(self._taken.token)

    def allow_delays(self) -> Coroutine[Any, Any, None] | None:
        """What must be done before `retry`, if anything."""
        if self.port.has_delays(self._queue):
            return None
        return self.port.ensure_delays(self._queue)

    def retry(self, delay: Seconds, retry_count: int) -> None:
        """Come again after a while, having been tried once more."""
        delay_ms = milliseconds(delay, "delay")
        self._once()
        parsed = parse(self._taken.properties)
        entries = parsed.header_entries
        entries[RETRY_COUNT] = encode_value(retry_count)
        entries[DELAY_HEADER] = encode_value(delay_ms)
        exchange = DELAY_EXCHANGE if delay_ms else ""
        self._repost(exchange, self._queue, parsed.with_headers(entries))

    def reject(self, error: BaseException | str | None) -> None:
        """To the dead letters; with an error, it is told there."""
        self._once()
        if error is None or self._dead_letters is None:
            self._consumer.reject(self._taken.token)
            return
        taken = self._taken
        now_ms = self.port.home.now_ms()
        death = Death(self._queue, DeadReason.REJECTED, taken.exchange, [taken.routing_key], now_ms)
        parsed = parse(with_death(taken.properties, death))
        entries = parsed.header_entries
        for name, text in _told(error).items():
            entries[name] = encode_value(LongString(text.encode("utf-8", "replace")))
        self._repost("", self._dead_letters, parsed.with_headers(entries))

    def _repost(self, exchange: str, routing_key: str, properties: bytes) -> None:
        token, consumer, queue = self._taken.token, self._consumer, self._queue

        def settle(receipt: Receipt | None, failure: PenstockError | None) -> None:
            if failure is None:
                consumer.ack(token)
            else:
                log.warning("a message of %s stays where it is: %s", queue, failure)
                consumer.requeue(token)

        self.port.queues.post(Posted(exchange, routing_key, properties, self._taken.body, settle))


def _told(error: BaseException | str) -> dict[str, str]:
    if not isinstance(error, BaseException):
        return {ERROR: str(error)}
    trace = "".join(traceback.format_exception(error))
    return {
        ERROR: str(error) or type(error).__name__,
        ERROR_TYPE: type(error).__qualname__,
        ERROR_TRACE: trace[-_MOST_TRACE:],
    }


class DeliveredMessage(Message):
    """What the messages of both faces have."""

    __slots__ = ("_settlement", "delivery_count", "exchange", "queue", "routing_key")

    _settlement: Settlement
    delivery_count: int
    exchange: str
    queue: str
    routing_key: str

    @classmethod
    def _delivered(cls, queue: str, taken: Taken, settlement: Settlement) -> Any:
        headers, key, timestamp_ms = read_amqp(taken.properties)
        self = cls.stored(queue, 0, -1, timestamp_ms, key, taken.body, headers)
        assert isinstance(self, DeliveredMessage)
        self.queue = queue
        self.delivery_count = taken.delivery_count
        self.exchange = taken.exchange
        self.routing_key = taken.routing_key
        self._settlement = settlement
        return self

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.queue} {self.message_id} {len(self.payload)} bytes>"
        )

    @property
    def retry_count(self) -> int:
        """How often it has been tried before, whether it came back or was sent again."""
        return self.properties.retry_count + self.delivery_count

    @property
    def is_settled(self) -> bool:
        return self._settlement.is_settled

    @property
    def error(self) -> str | None:
        """Among the dead letters: what was wrong with it."""
        return self.headers.get(ERROR)

    @property
    def deaths(self) -> list[dict[str, Any]]:
        """Where it has died before, the latest first: queue, reason, count, time, ..."""
        history = self.headers.get(DEATH)
        found: list[dict[str, Any]] = [] if history is None else json.loads(history)
        return found


class QueueMessage(DeliveredMessage):
    """A message of a queue. It is yours until you settle it, or give it up."""

    __slots__ = ()

    def ack(self) -> None:
        """It was handled: it leaves the queue.

        >>> queue.get().ack()
        """
        self._settlement.ack()

    def nack(self, *, requeue: bool = True, delay: Seconds | None = None) -> None:
        """It was not handled. It takes its old place again, or comes again after `delay` seconds,
        or, without `requeue`, goes to the dead letters.

        >>> queue.get().nack()
        >>> queue.get().nack(delay=5)
        """
        if not requeue:
            self.reject()
        elif delay is None:
            self._settlement.requeue()
        else:
            if (first := self._settlement.allow_delays()) is not None:
                self._settlement.port.home.run(first)
            self._settlement.retry(delay, self.retry_count + 1)

    def reject(self, error: BaseException | str | None = None) -> None:
        """It cannot be handled: to the dead letters, where the error is told.

        >>> queue.get().reject("no such customer")
        >>> queue.dead_letters.get(timeout=10).error
        'no such customer'
        """
        self._settlement.reject(error)

    def extend(self) -> None:
        """It takes longer: the queue's visibility time-out begins anew.

        >>> message = queue.get()
        >>> message.extend()
        >>> message.ack()
        """
        self._settlement.renew()


class AsyncQueueMessage(DeliveredMessage):
    """A message of a queue, for code with an event loop."""

    __slots__ = ()

    async def ack(self) -> None:
        """It was handled: it leaves the queue."""
        self._settlement.ack()

    async def nack(self, *, requeue: bool = True, delay: Seconds | None = None) -> None:
        """It was not handled; as `QueueMessage.nack`."""
        if not requeue:
            await self.reject()
        elif delay is None:
            self._settlement.requeue()
        else:
            if (first := self._settlement.allow_delays()) is not None:
                await self._settlement.port.home.arun(first)
            self._settlement.retry(delay, self.retry_count + 1)

    async def reject(self, error: BaseException | str | None = None) -> None:
        """It cannot be handled: to the dead letters, where the error is told."""
        self._settlement.reject(error)

    async def extend(self) -> None:
        """It takes longer: the queue's visibility time-out begins anew."""
        self._settlement.renew()
