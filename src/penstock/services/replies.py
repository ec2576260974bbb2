"""Direct replies: answers to a request go straight to the consumer that waits for them.

A client that consumes from `amq.rabbitmq.reply-to` gets a name that nobody can guess; what is
published to the default exchange with that name as the routing key is handed to it, without a queue
and without a log. A consumer that does not keep up loses the oldest replies beyond a bound.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Sequence

from penstock.errors import SubscriptionEnded
from penstock.model.queue_record import Message
from penstock.services.subscription import Delivery

REPLY_TO = "amq.rabbitmq.reply-to"
REPLY_PREFIX = "amq.rabbitmq.reply-to."
_MOST_WAITING = 10_000


class ReplySubscription:
    """The consumer of direct replies; it acknowledges nothing."""

    __slots__ = (
        "_ended",
        "_replies",
        "_waiter",
        "_waiting",
        "no_ack",
        "queue_name",
        "reply_to",
        "tag",
    )

    def __init__(self, replies: Replies, tag: str, reply_to: str) -> None:
        self._replies = replies
        self.tag = tag
        self.reply_to = reply_to
        self.queue_name = REPLY_TO
        self.no_ack = True
        self._waiting: deque[Message] = deque(maxlen=_MOST_WAITING)
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False

    @property
    def prefetch(self) -> int:
        return 0

    @prefetch.setter
    def prefetch(self, prefetch: int) -> None:
        """Replies are never held back."""

    def deliver(self, message: Message) -> None:
        self._waiting.append(message)
        self._notify()

    async def ready(self, most: int = 0) -> None:
        while not self._waiting:
            if self._ended:
                raise SubscriptionEnded("the reply consumer was cancelled")
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None

    def ask_for(self, most: int) -> None:
        """It takes only what it has room for, and nobody else waits for it."""

    def try_take(self, limit: int, max_bytes: int) -> list[Delivery]:
        taken: list[Delivery] = []
        while self._waiting and len(taken) < limit and (max_bytes > 0 or not taken):
            message = self._waiting.popleft()
            max_bytes -= len(message.body)
            taken.append(
                Delivery(
                    0, 0, message.exchange, message.routing_key, message.properties, message.body
                )
            )
        return taken

    def cancel(self) -> None:
        self._ended = True
        self._replies.forget(self)
        self._notify()

    def ack(self, offsets: Sequence[int]) -> None:
        """Nothing to settle."""

    requeue = reject = renew = ack

    def _notify(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Replies:
    """All consumers of direct replies, by the name they were given."""

    def __init__(self) -> None:
        self._by_name: dict[str, ReplySubscription] = {}

    def subscribe(self, tag: str) -> ReplySubscription:
        name = REPLY_PREFIX + secrets.token_urlsafe(24)
        subscription = self._by_name[name] = ReplySubscription(self, tag, name)
        return subscription

    def deliver(self, name: str, message: Message) -> bool:
        """False when nobody has that name (any more)."""
        subscription = self._by_name.get(name)
        if subscription is None:
            return False
        subscription.deliver(message)
        return True

    def knows(self, name: str) -> bool:
        return name in self._by_name

    def forget(self, subscription: ReplySubscription) -> None:
        self._by_name.pop(subscription.reply_to, None)
