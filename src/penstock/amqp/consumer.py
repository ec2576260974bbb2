"""One consumer of a channel: takes what its queue has for it, as fast as the client keeps up.

A single task per consumer waits for messages, for room in the channel's prefetch and for the socket
to drain, then takes a batch and writes it at once. Taking is synchronous, so a consumer that is
stopped never holds a message that nobody knows of.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.errors import SubscriptionEnded
from penstock.wire.amqp.content import DeliveryEncoder

if TYPE_CHECKING:
    from penstock.amqp.channel import Channel
    from penstock.amqp.unsettled import Holder
    from penstock.services.session import AnySubscription

BATCH_MESSAGES = 512
BATCH_BYTES = 512 * 1024
_NO_ARGUMENTS: Mapping[str, object] = {}


class Consumer:
    """A subscription and the task that empties it. It is the `Source` of its deliveries."""

    __slots__ = (
        "_channel", "_encoder", "_is_asking", "_task", "arguments", "exclusive", "is_stopped",
        "subscription", "tag",
    )  # fmt: skip

    def __init__(
        self,
        channel: Channel,
        tag: str,
        subscription: AnySubscription,
        *,
        exclusive: bool = False,
        arguments: Mapping[str, object] = _NO_ARGUMENTS,
    ) -> None:
        self._channel = channel
        self._encoder = DeliveryEncoder(channel.number, tag, channel.connection.wire.frame_max)
        self._task: asyncio.Task[None] | None = None
        self.tag = tag
        self.subscription = subscription
        self.exclusive = exclusive
        self.arguments = arguments
        self.is_stopped = False
        self._is_asking = False

    def __repr__(self) -> str:
        return f"<Consumer {self.tag!r} of {self.subscription.queue_name!r}>"

    @property
    def holder(self) -> AnySubscription:
        return self.subscription

    def settled(self, count: int) -> None:
        self._channel.give_room(count)

    def ask_anew(self) -> None:
        """How many it may ask for has changed."""
        if self._is_asking:
            self.subscription.ask_for(self._channel.most_at_once)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """No delivery leaves after this; unsettled ones stay the channel's."""
        if self.is_stopped:
            return
        self.is_stopped = True
        self.subscription.cancel()
        self._channel.session.ended(self.subscription)
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        channel = self._channel
        with contextlib.suppress(asyncio.CancelledError):
            try:
                while not self.is_stopped:
                    flow = channel.connection.flow
                    if not flow.is_writable or channel.free_room <= 0:
                        self.subscription.ask_for(0)  # others need not wait for this one
                    await flow.drained()
                    await channel.room()
                    # What `ready` found is kept for us until `try_take`, so nothing waits between.
                    self._is_asking = True
                    await self.subscription.ready(channel.most_at_once)
                    self._is_asking = False
                    self._deliver()
                    if flow.is_writable and not channel.room_limit and not self.is_stopped:
                        # At once, or its turn would pass while it comes round to ask.
                        self.subscription.ask_for(channel.most_at_once)
                    await asyncio.sleep(0)  # others have their turn, however much is ready
            except SubscriptionEnded:
                if not self.is_stopped:
                    channel.consumer_ended(self)
            except Exception as failure:
                channel.connection.fail_unexpectedly(failure)

    def _deliver(self) -> None:
        channel, subscription = self._channel, self.subscription
        limit = 0 if self.is_stopped else max(0, min(BATCH_MESSAGES, channel.free_room))
        deliveries = subscription.try_take(limit, BATCH_BYTES)
        if not deliveries:
            return
        count = len(deliveries)
        if subscription.no_ack:
            tag = channel.unsettled.skip(count)
        else:
            tag = channel.unsettled.add(self, [delivery.offset for delivery in deliveries])
            channel.take_room(count)
        connection = channel.connection
        self._encoder.encode(connection.wire.out, deliveries, tag)
        connection.stats.delivered += count
        connection.flush()


class Fetched:
    """The `Source` of a message that basic.get took: it counts against no prefetch."""

    __slots__ = ("holder",)

    def __init__(self, holder: Holder) -> None:
        self.holder = holder

    def settled(self, count: int) -> None:
        pass
