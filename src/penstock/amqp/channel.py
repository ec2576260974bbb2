"""A channel of the door: its mode, its consumers, what it published and what it must settle.

What the client says on a channel happens in order. A method that has to wait (a declaration is
written to the catalogue, a transaction to disk) holds up the channel's later methods in `waiting`,
and only those: other channels of the connection go on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from pamqp import commands

from penstock.amqp import admission
from penstock.amqp.consumer import Consumer
from penstock.amqp.transaction import Transaction
from penstock.amqp.unsettled import Taken, Unsettled
from penstock.services.session import Message
from penstock.services.subscription import WANTED
from penstock.wire.amqp.channel import ChannelState
from penstock.wire.amqp.codes import NOT_FOUND, PRECONDITION_FAILED, AmqpError
from penstock.wire.amqp.events import Acknowledged, Event, Published, Rejected
from penstock.wire.amqp.methods import Method

if TYPE_CHECKING:
    from penstock.amqp.connection import Connection
    from penstock.services.session import Session

_ACK_IDS = (60, 80)


class Channel:
    """One open channel. Closed ones stay only as the `owner` of late events, which they ignore."""

    __slots__ = (
        "_room_waiters", "_used_room", "confirmed", "confirms", "connection", "consumers",
        "is_closed", "last_queue", "number", "prefetch", "published", "room_limit", "state", "task",
        "transaction", "unsettled", "waiting",
    )  # fmt: skip

    def __init__(self, connection: Connection, state: ChannelState) -> None:
        self.connection = connection
        self.state = state
        self.number = state.number
        self.is_closed = False
        self.last_queue = ""  # what an empty queue name stands for
        self.consumers: dict[str, Consumer] = {}
        self.unsettled = Unsettled()
        self.prefetch = 0  # of each consumer; 0 is no limit
        self.room_limit = 0  # of all consumers together; 0 is no limit
        self._used_room = 0
        self._room_waiters: list[asyncio.Future[None]] = []
        self.confirms = False
        self.published = 0  # the number of the last message, when confirming
        self.confirmed = 0
        self.transaction: Transaction | None = None
        self.task: asyncio.Task[None] | None = None  # the method that is being waited for
        self.waiting: deque[Event] = deque()

    def __repr__(self) -> str:
        return f"<Channel {self.number} consumers={len(self.consumers)}>"

    @property
    def session(self) -> Session:
        """The service's side of the connection; channels exist only when there is one."""
        assert self.connection.session is not None
        return self.connection.session

    def answer(self, kind: type[Method], *arguments: object) -> None:
        self.connection.wire.send(self.state, kind, *arguments)

    # --- publishing -------------------------------------------------------------------------------

    def publish(self, event: Published) -> None:
        """Check messages and put them with the others of this read."""
        if self.transaction is None:
            self.connection.publishing.begin_run(self)
        for target, properties, bodies in event.groups:
            admitted = admission.admit(self, target, properties)
            exchange, key = target.exchange, target.routing_key
            messages = [Message(exchange, key, admitted, body) for body in bodies]
            if self.transaction is not None:
                self.transaction.publish(messages, target)
            else:
                self.connection.publishing.add(messages, target.mandatory)

    def reply_consumer(self) -> Consumer | None:
        """The consumer of `amq.rabbitmq.reply-to`, when this channel has one."""
        for consumer in self.consumers.values():
            if consumer.subscription.reply_to:
                return consumer
        return None

    # --- settling ---------------------------------------------------------------------------------

    def acknowledge(self, event: Acknowledged) -> None:
        _, tag, multiple = event
        taken = self._take(tag, multiple, _ACK_IDS)
        if self.transaction is not None:
            self.transaction.settle("ack", taken)
            return
        self.settle("ack", taken)
        self.unsettled.forget_settled()

    def reject(self, event: Rejected) -> None:
        _, tag, multiple, requeue, method = event
        taken = self._take(tag, multiple, method)
        verb = "requeue" if requeue else "reject"
        if self.transaction is not None:
            self.transaction.settle(verb, taken)
            return
        self.settle(verb, taken)
        self.unsettled.forget_settled()

    def _take(self, tag: int, multiple: bool, method: tuple[int, int]) -> Taken:
        taken = self.unsettled.take(tag, multiple)
        if taken is None:
            raise AmqpError(PRECONDITION_FAILED, f"unknown delivery tag {tag}", method)
        return taken

    def settle(self, verb: str, taken: Taken) -> None:
        """Tell the queues; `verb` is ack, requeue or reject."""
        for source, offsets in taken.by_source():
            getattr(source.holder, verb)(offsets)
            source.settled(len(offsets))
        self.connection.stats.settled(verb, len(taken.offsets))

    def recover(self) -> None:
        """Everything unsettled goes back to its queue."""
        self.settle("requeue", self.unsettled.take_all())
        self.unsettled.forget_settled()

    # --- prefetch of the whole channel ------------------------------------------------------------

    @property
    def free_room(self) -> int:
        return self.room_limit - self._used_room if self.room_limit else 1 << 30

    @property
    def most_at_once(self) -> int:
        """How many messages a consumer asks for. Where consumers share their room, one by one: who
        reserved more than it has room for would make the others' deliveries overtake them."""
        return 1 if self.room_limit and len(self.consumers) > 1 else WANTED

    def _share_room(self) -> None:
        if self.room_limit:
            for consumer in self.consumers.values():
                consumer.ask_anew()

    def take_room(self, count: int) -> None:
        self._used_room += count

    def give_room(self, count: int) -> None:
        self._used_room -= count
        self._wake()

    def limit_room(self, limit: int) -> None:
        """basic.qos(global=True)."""
        self.room_limit = limit
        self._share_room()
        self._wake()

    def limit_consumers(self, prefetch: int) -> None:
        """basic.qos(global=False), for the consumers to come and for those that are there.

        RabbitMQ limits only new ones. Celery moves the limit of its running consumer this way at
        any broker that does not call itself RabbitMQ, and for others it changes little.
        """
        self.prefetch = prefetch
        for consumer in self.consumers.values():
            consumer.subscription.prefetch = prefetch

    async def room(self) -> None:
        """Wait until a delivery fits the channel's prefetch."""
        while self.free_room <= 0:
            waiter = asyncio.get_running_loop().create_future()
            self._room_waiters.append(waiter)
            await waiter

    def _wake(self) -> None:
        if self._room_waiters and self.free_room > 0:
            waiters, self._room_waiters = self._room_waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    # --- queues and consumers ---------------------------------------------------------------------

    def queue_name(self, name: str, method: tuple[int, int]) -> str:
        """The name, or the last declared queue when it is empty."""
        if name:
            return name
        if not self.last_queue:
            raise AmqpError(NOT_FOUND, "no previously declared queue", method)
        return self.last_queue

    def add_consumer(self, consumer: Consumer) -> None:
        self.consumers[consumer.tag] = consumer
        self._share_room()
        consumer.start()

    def remove_consumer(self, tag: str) -> None:
        consumer = self.consumers.pop(tag, None)
        if consumer is not None:
            consumer.stop()

    def consumer_ended(self, consumer: Consumer) -> None:
        """Its queue was deleted: tell the client, if it wants to be told."""
        self.consumers.pop(consumer.tag, None)
        consumer.is_stopped = True
        self.session.ended(consumer.subscription)
        if self.is_closed:
            return
        if self.connection.wire.handshake.client_capabilities.get("consumer_cancel_notify"):
            self.connection.wire.send(self.state, commands.Basic.Cancel, consumer.tag, True)
            self.connection.flush()

    # --- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop everything; what is unsettled goes back to its queues in its original order."""
        if self.is_closed:
            return
        self.is_closed = True
        self.waiting.clear()
        if self.task is not None:
            self.task.cancel()
        for consumer in self.consumers.values():
            consumer.stop()
        self.consumers.clear()
        if self.transaction is not None:
            self.transaction.roll_back()
        self.settle("requeue", self.unsettled.take_all())
        for waiter in self._room_waiters:
            waiter.cancel()
