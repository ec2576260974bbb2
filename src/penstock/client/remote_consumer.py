"""A consumer of one queue over the network: an AMQP channel of its own.

A channel that was lost is opened again as soon as the server answers; what was not settled in the
old one is delivered again, to anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from pamqp import commands

from penstock.client.amqp_channel import AmqpChannel, Content
from penstock.client.amqp_connection import AmqpConnection
from penstock.client.burst import Burst
from penstock.client.errors import Closed, NotFound, NotSupported, PenstockError, Unavailable
from penstock.client.queue_home import Taken

log = logging.getLogger("penstock")

T = TypeVar("T")
_tags = itertools.count(1)
_AGAIN_SECONDS = 0.2


class Owner(Protocol):
    """Whose connection it is."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Where the connection lives."""

    def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something there, and wait for it here."""

    async def connection(self) -> AmqpConnection:
        """The connection, opened again if need be."""

    async def finish(self) -> None:
        """Return when everything that was posted has been settled."""

    def forget(self, consumer: RemoteConsumer) -> None:
        """This one is over."""


class RemoteConsumer:
    """A consumer with a channel of its own. A lost channel is opened again by `take`."""

    def __init__(
        self, queues: Owner, name: str, prefetch: int, *, exclusive: bool, priority: int
    ) -> None:
        self._queues = queues
        self._name = name
        self._prefetch = prefetch
        self._exclusive = exclusive
        self._priority = priority
        self._channel: AmqpChannel | None = None
        self._is_closed = False
        self._held: set[int] = set()
        self._generation = 0  # tokens are (generation, delivery tag): tags begin anew by channel
        self._settlements: Burst[tuple[str, int]] = Burst(queues.loop, self._settle)

    # --- on the connection's loop -----------------------------------------------------------------

    async def open_quietly(self) -> AmqpChannel:
        """A channel without a consumer."""
        self._channel = await (await self._queues.connection()).channel()
        self._generation += 1
        self._held.clear()
        return self._channel

    async def open(self) -> None:
        """Begin to consume."""
        channel = await self.open_quietly()
        await channel.call(commands.Basic.Qos, 0, self._prefetch, False)
        arguments = {"x-priority": self._priority} if self._priority else {}
        await channel.call(
            commands.Basic.Consume,
            0,
            self._name,
            f"penstock-{next(_tags)}",
            False,
            False,
            self._exclusive,
            False,
            arguments,
        )

    async def get(self) -> Taken | None:
        assert self._channel is not None
        answer = await self._channel.call(commands.Basic.Get, 0, self._name, False)
        return self._taken(answer) if isinstance(answer, Content) else None

    def _taken(self, content: Content) -> Taken:
        method = content.method
        token = self._generation << 48 | int(method.delivery_tag)
        self._held.add(token)
        return Taken(
            token,
            _delivery_count(content.properties, bool(method.redelivered)),
            str(method.exchange),
            str(method.routing_key),
            content.properties,
            content.body,
        )

    async def _take(self, timeout: float, most: int) -> list[Taken]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            if self._is_closed:
                raise Closed("the consumer is closed")
            channel = self._channel
            if channel is None or channel.failure is not None:
                await self._reopen(channel, deadline)
                if self._channel is None or self._channel.failure is not None:
                    return []
                continue
            channel.arrived.clear()
            if channel.deliveries:
                count = min(most, len(channel.deliveries))
                return [self._taken(channel.deliveries.popleft()) for _ in range(count)]
            if channel.is_cancelled:
                self._is_closed = True
                raise Closed("the queue was deleted")
            left = deadline - loop.time()
            if left <= 0:
                return []
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(channel.arrived.wait(), left)

    async def _reopen(self, lost: AmqpChannel | None, deadline: float) -> None:
        if lost is not None and isinstance(lost.failure, NotFound):
            self._is_closed = True
            raise Closed("the queue was deleted") from lost.failure
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self.open()
                return
            except NotFound:
                self._is_closed = True
                raise Closed("the queue was deleted") from None
            except (Unavailable, NotSupported) as failure:
                log.debug("consuming %s: %s", self._name, failure)
            if loop.time() + _AGAIN_SECONDS > deadline:
                return
            await asyncio.sleep(_AGAIN_SECONDS)

    def _settle(self, burst: Sequence[tuple[str, int]]) -> None:
        channel = self._channel
        if channel is None or channel.failure is not None:
            return  # the server gives them to somebody again
        for verb, token in burst:
            if token not in self._held:
                continue
            tag = token & ((1 << 48) - 1)
            with contextlib.suppress(PenstockError):
                if verb == "renew":
                    channel.renew(tag)
                    continue
                self._held.discard(token)
                if verb == "ack":
                    channel.say(commands.Basic.Ack, tag, False)
                else:
                    channel.say(commands.Basic.Reject, tag, verb == "requeue")
        if not self._prefetch and not self._held:  # it was opened for a single message
            self.close_soon()

    async def aclose(self) -> None:
        self._is_closed = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._queues.finish(), 10)
        await asyncio.sleep(0)
        if self._channel is not None:
            self._channel.arrived.set()
            with contextlib.suppress(PenstockError, TimeoutError):
                await asyncio.wait_for(self._channel.close(), 5)
        self._queues.forget(self)

    # --- from any thread --------------------------------------------------------------------------

    async def take(self, timeout: float, max_messages: int) -> Sequence[Taken]:
        return self._queues.on_loop(self._take(timeout, max_messages))

    def ack(self, token: int) -> None:
        self._settlements.put(("ack", token))

    def requeue(self, token: int) -> None:
        self._settlements.put(("requeue", token))

    def reject(self, token: int) -> None:
        self._settlements.put(("reject", token))

    def renew(self, token: int) -> None:
        channel = self._channel
        if channel is not None and not channel.connection.can("basic.renew"):
            raise NotSupported(
                "this server cannot renew a visibility time-out (Penstock can); give the queue a "
                "longer one"
            )
        self._settlements.put(("renew", token))

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):
            self._queues.loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._channel is not None:
            self._channel.arrived.set()

    async def close(self) -> None:
        self._queues.on_loop(self.aclose())

    def close_soon(self) -> None:
        with contextlib.suppress(RuntimeError):
            asyncio.run_coroutine_threadsafe(self.aclose(), self._queues.loop)


def _delivery_count(properties: bytes, redelivered: bool) -> int:
    """How often it came back: as the queue says, or at least once when it only says that."""
    from penstock.model.message_properties import parse

    count = (
        parse(properties).headers.get("x-delivery-count") if b"x-delivery" in properties else None
    )
    return count if isinstance(count, int) else int(redelivered)
