"""An exchange, for code without an event loop: it routes messages to the queues bound to it."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Unpack

from penstock.client.arguments import check_text
from penstock.client.delivery import Delivery
from penstock.client.errors import InvalidArgument
from penstock.client.message import Receipt
from penstock.client.queue_port import QueuePort
from penstock.client.serializer import Serializer
from penstock.client.wishes import PublishWishes

KINDS = ("direct", "topic", "fanout", "headers")


def check_kind(kind: str) -> str:
    """Refuse a kind that is none; the server's further kinds begin with x-."""
    if kind not in KINDS and not kind.startswith("x-"):
        raise InvalidArgument(f"an exchange is one of {', '.join(KINDS)}, not {kind!r}")
    return kind


class Exchange:
    """Publish here; which queues get it, the bindings say (`Queue.bind`).

    >>> import penstock
    >>> with penstock.open(None) as mq:
    ...     events = mq.exchange("events", "topic")
    ...     mails = mq.queue("mails")
    ...     mails.bind("events", "order.*")
    ...     _ = events.publish("order.created", "hello")
    ...     mails.get(timeout=5).text
    'hello'
    """

    def __init__(
        self,
        port: QueuePort,
        name: str,
        kind: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
    ) -> None:
        check_text(name, "an exchange")
        self.name = name
        self.kind = check_kind(kind)
        self._port = port
        self._home = port.home
        self._home.run(
            port.queues.declare_exchange(
                name, kind, durable=durable, auto_delete=auto_delete, arguments={}
            )
        )

    def __repr__(self) -> str:
        return f"<Exchange {self.name} {self.kind}>"

    def publish(
        self,
        routing_key: str,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        timeout: float | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Receipt:
        """Publish one message and wait until it is safe in every queue that gets it.

        `NotFound` when no queue does.

        >>> events = mq.exchange("events")
        >>> queue.bind("events", "order.#")
        >>> _ = events.publish("order.paid.eu", "7")
        """
        self._home.check_may_wait()
        return self.send(routing_key, payload, serializer=serializer, **wishes).result(timeout)

    def send(
        self,
        routing_key: str,
        payload: Any,
        *,
        serializer: Serializer | str | None = None,
        **wishes: Unpack[PublishWishes],
    ) -> Future[Receipt]:
        """Publish without waiting.

        >>> events = mq.exchange("events")
        >>> queue.bind("events", "order.#")
        >>> _ = events.send("order.paid", "7").result()
        """
        outgoing, delay_ms = self._port.prepare(routing_key, payload, serializer, wishes)
        if delay_ms:
            raise InvalidArgument("a delay is given to a queue: Queue.publish(delay=...)")
        delivery = Delivery()
        if self._port.sender.room.take(outgoing.size):
            self._port.post(self.name, routing_key, outgoing, 0, delivery)
        else:
            delivery(Receipt(routing_key, 0, -1, dropped=True), None)
        return delivery

    def delete(self) -> None:
        """Delete it with its bindings; the queues stay.

        >>> mq.exchange("events").delete()
        """
        self._home.run(self._port.queues.delete_exchange(self.name))
