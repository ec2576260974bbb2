"""One consumer of one queue: it waits for its turn, takes what it is given, and settles it.

    await subscription.ready()         messages are reserved for this consumer, and in memory
    subscription.try_take(500, ...)    takes of them; the rest goes back to the queue at once

Between the two the reserved messages are nobody else's, so the one should follow the other without
delay. Taking is synchronous: a consumer that is stopped never holds a message nobody knows of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import SubscriptionEnded
from penstock.machines.queue_consumers import Consumer
from penstock.model.offset_ranges import Range

if TYPE_CHECKING:
    from penstock.services.live_queue import LiveQueue

WANTED = 1024  # how many messages a waiting consumer is given at most


class Delivery:
    """A message on its way to a consumer."""

    __slots__ = (
        "body",
        "delivery_count",
        "exchange",
        "offset",
        "properties",
        "redelivered",
        "routing_key",
    )

    def __init__(
        self,
        offset: int,
        delivery_count: int,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes | bytearray | memoryview,
    ) -> None:
        self.offset = offset
        self.delivery_count = delivery_count  # how often it came back: 0 the first time
        self.redelivered = delivery_count > 0
        self.exchange = exchange
        self.routing_key = routing_key
        self.properties = properties
        self.body = body

    def __repr__(self) -> str:
        return f"Delivery({self.offset}, {self.routing_key!r}, {len(self.body)} bytes)"


class Subscription:
    """A consumer's place at a queue. Made by `LiveQueue.subscribe`."""

    __slots__ = (
        "_ended",
        "_live",
        "_reserved",
        "_waiter",
        "consumer",
        "no_ack",
        "queue_name",
        "reply_to",
        "tag",
    )

    def __init__(self, live: LiveQueue, consumer: Consumer, *, no_ack: bool) -> None:
        self.consumer = consumer
        self.tag = consumer.name
        self.queue_name = live.name
        self.no_ack = no_ack
        self.reply_to = ""
        self._live = live
        self._reserved: list[Range] = []
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False

    def __repr__(self) -> str:
        return f"<Subscription {self.consumer!r} of {self.queue_name!r}>"

    @property
    def prefetch(self) -> int:
        """How many unsettled deliveries it may have; 0 is any number."""
        return self.consumer.prefetch

    @prefetch.setter
    def prefetch(self, prefetch: int) -> None:
        self._live.consumers.limit(self.consumer, 0 if self.no_ack else prefetch)
        self._live.wake()

    @property
    def is_active(self) -> bool:
        """Whether it is not one that stands by for a single active consumer."""
        return self._live.consumers.active in (None, self.consumer)

    # --- taking -----------------------------------------------------------------------------------

    async def ready(self, most: int = WANTED) -> None:
        """Return when messages are reserved for this consumer, `most` at most; SubscriptionEnded
        when never."""
        while True:
            if self._ended:
                raise SubscriptionEnded(f"queue '{self.queue_name}' has no such consumer")
            if self._reserved:
                low, high = self._reserved[0]
                if self._live.reader.is_at_hand(low):
                    return
                if not await self._live.reader.bring(low) and self._reserved[:1] == [(low, high)]:
                    self._reserved[:1] = [(low + 1, high)] if low + 1 < high else []
                    self._live.forget_missing([low], self)
                continue
            self._live.want(self, most)
            if self._reserved:
                continue
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def ask_for(self, most: int) -> None:
        """Have its place among those who wait before `ready` is called; with 0, give it up."""
        if self._ended:
            return
        self._live.want(self, most)
        if not most and self._reserved:
            reserved, self._reserved = self._reserved, []
            self._live.give_back_unseen(self, reserved)

    def try_take(self, limit: int, max_bytes: int) -> list[Delivery]:
        """Up to `limit` of the reserved messages, about `max_bytes` of them; [] if there are none.

        At least one, however large. What is not taken goes back to the queue.
        """
        self._live.want(self, 0)
        reserved, self._reserved = self._reserved, []
        if not reserved:
            return []
        taken, rest = self._live.open(reserved, limit, max_bytes, self)
        if rest:
            self._live.give_back_unseen(self, rest)
        if self.no_ack and taken:
            self._live.ack([delivery.offset for delivery in taken], self)
        return taken

    def assign(self, ranges: Sequence[Range]) -> None:
        """These messages are for this consumer."""
        self._reserved += ranges
        self.notify()

    def notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def lose(self) -> list[Range]:
        """The consumer ends; what was reserved for it and not taken."""
        self._ended = True
        reserved, self._reserved = self._reserved, []
        self.notify()
        return reserved

    def cancel(self) -> None:
        """No more deliveries. What was taken is still to be settled."""
        if not self._ended:
            self._live.unsubscribe(self)

    # --- settling ---------------------------------------------------------------------------------

    def ack(self, offsets: Sequence[int]) -> None:
        """These were handled."""
        self._live.ack(offsets, self)

    def requeue(self, offsets: Sequence[int]) -> None:
        """These were not handled; somebody else may."""
        self._live.requeue(offsets, self)

    def reject(self, offsets: Sequence[int]) -> None:
        """These cannot be handled: to the dead letters, or nowhere."""
        self._live.reject(offsets, self)

    def renew(self, offsets: Sequence[int]) -> None:
        """These take longer: the time after which they come back begins anew."""
        self._live.machine.renew(offsets, self, self._live.queue.host.clock.now_ms())
