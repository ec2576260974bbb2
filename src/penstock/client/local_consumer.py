"""A consumer of one queue in this process: a subscription, settled from any thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from penstock.client.burst import Burst
from penstock.client.errors import Closed, of_broker_error
from penstock.client.queue_home import Taken
from penstock.errors import BrokerError, SubscriptionEnded
from penstock.services.fetching import Fetched
from penstock.services.subscription import Delivery, Subscription

_TAKE_BYTES = 4 * 1024 * 1024
_FINISH_SECONDS = 10.0


def taken(delivery: Delivery) -> Taken:
    return Taken(
        delivery.offset,
        delivery.delivery_count,
        delivery.exchange,
        delivery.routing_key,
        delivery.properties,
        bytes(delivery.body),
    )


def _seen(waiting: asyncio.Task[None]) -> None:
    """What it ended with is no news to the loop, even if nobody waits for it any more."""
    if not waiting.cancelled():
        waiting.exception()


class LocalConsumer:
    """A consumer of one queue."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        subscription: Subscription,
        forget: Callable[[LocalConsumer], None],
        finish: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self.subscription = subscription
        self._finish = finish
        self._loop = loop
        self._forget = forget
        self._held: set[int] = set()
        self._is_closed = False
        self._waiting: asyncio.Task[None] | None = None
        self._settlements: Burst[tuple[str, int]] = Burst(loop, self._settle)

    async def take(self, timeout: float, max_messages: int) -> Sequence[Taken]:
        if self._is_closed:
            raise Closed("the consumer is closed")
        deadline = self._loop.time() + timeout
        while True:
            left = deadline - self._loop.time()
            try:
                self._waiting = self._loop.create_task(self.subscription.ready())
                self._waiting.add_done_callback(_seen)
                try:
                    done, _ = await asyncio.wait({self._waiting}, timeout=max(0.0, left))
                except asyncio.CancelledError:  # whoever asked does not wait any more: Ctrl-C
                    self._waiting.cancel()
                    raise
                if not done:
                    self._waiting.cancel()
                    with contextlib.suppress(asyncio.CancelledError, SubscriptionEnded):
                        await self._waiting
                elif self._waiting.cancelled():
                    return ()
                else:
                    self._waiting.result()
            except SubscriptionEnded:
                self._is_closed = True
                raise Closed("the queue was deleted, or the consumer closed") from None
            except BrokerError as failure:
                raise of_broker_error(failure) from failure
            given = self.subscription.try_take(max_messages, _TAKE_BYTES)
            if given or left <= 0:
                self._held.update(delivery.offset for delivery in given)
                return [taken(delivery) for delivery in given]

    # --- settling, from any thread ----------------------------------------------------------------

    def ack(self, token: int) -> None:
        self._settlements.put(("ack", token))

    def requeue(self, token: int) -> None:
        self._settlements.put(("requeue", token))

    def reject(self, token: int) -> None:
        self._settlements.put(("reject", token))

    def renew(self, token: int) -> None:
        self._settlements.put(("renew", token))

    def _settle(self, burst: Sequence[tuple[str, int]]) -> None:
        groups: dict[str, list[int]] = {}
        for verb, token in burst:
            if token in self._held:
                groups.setdefault(verb, []).append(token)
                if verb != "renew":
                    self._held.discard(token)
        for verb, tokens in groups.items():
            getattr(self.subscription, verb)(sorted(tokens))

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop_waiting)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()

    def close_soon(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed, and all else with it
            asyncio.run_coroutine_threadsafe(self.close(), self._loop)

    async def close(self) -> None:
        if self._is_closed and not self._held:
            self._forget(self)
            return
        self._is_closed = True
        # Copies that are on their way decide what becomes of their originals; and settlements that
        # were put a moment ago come first.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._finish(), _FINISH_SECONDS)
        await asyncio.sleep(0)
        self.subscription.cancel()
        held, self._held = sorted(self._held), set()
        if held:
            self.subscription.requeue(held)
        self._forget(self)


class LocalHolder:
    """Holds the one message that `get` took."""

    def __init__(self, loop: asyncio.AbstractEventLoop, holder: Fetched) -> None:
        self._loop = loop
        self._holder = holder

    async def take(self, timeout: float, max_messages: int) -> Sequence[Taken]:
        return ()

    def ack(self, token: int) -> None:
        self._loop.call_soon_threadsafe(self._holder.ack, [token])

    def requeue(self, token: int) -> None:
        self._loop.call_soon_threadsafe(self._holder.requeue, [token])

    def reject(self, token: int) -> None:
        self._loop.call_soon_threadsafe(self._holder.reject, [token])

    def renew(self, token: int) -> None:
        self._loop.call_soon_threadsafe(self._holder.renew, [token])

    def wake(self) -> None:
        """Nobody waits here."""

    async def close(self) -> None:
        """There is nothing to leave."""

    def close_soon(self) -> None:
        """There is nothing to leave."""
