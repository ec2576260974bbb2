"""Messages from a connection to its queues, and confirms back.

Everything that one read of the socket published, on whatever channels, goes to the service in one
call and is confirmed together when it is on disk: one record batch per queue, one sync, one ack
with `multiple` per channel.

Confirms leave in the order of the publishes. A publication that is done early waits for those
before it, because an ack with `multiple` speaks for all earlier ones too; and such an ack is never
used to pass a message that was refused.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.services.session import Message
from penstock.wire.amqp import content
from penstock.wire.amqp.codes import NO_ROUTE
from penstock.wire.amqp.content import PublishTarget

if TYPE_CHECKING:
    from penstock.amqp.channel import Channel
    from penstock.amqp.connection import Connection

_NO_ROUTE = (NO_ROUTE, "NO_ROUTE")


class _Batch:
    """What was published together, until it is confirmed."""

    __slots__ = ("body_bytes", "entries", "is_done", "messages", "refused", "waiters")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        # Beside each message: its channel, where it goes, and its number on a confirming channel.
        self.entries: list[tuple[Channel, PublishTarget, int]] = []
        self.body_bytes = 0
        self.refused: Sequence[int] = ()
        self.is_done = False
        self.waiters: list[asyncio.Future[None]] = []


class Publishing:
    """The publishing side of one connection."""

    __slots__ = (
        "_batch", "_connection", "_outstanding", "outstanding_bytes", "plain", "writable_exchange",
    )  # fmt: skip

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._batch = _Batch()
        self._outstanding: deque[_Batch] = deque()
        self.outstanding_bytes = 0
        # What `admission` need not look at again: properties without anything to check, and, until
        # control returns to the event loop, the exchange that was checked last.
        self.plain: set[bytes] = set()
        self.writable_exchange: str | None = None

    async def settled(self) -> None:
        """Wait until everything published so far is in its queues."""
        self.flush()
        if self._outstanding:
            waiter = asyncio.get_running_loop().create_future()
            self._outstanding[-1].waiters.append(waiter)
            await waiter

    def add(self, channel: Channel, target: PublishTarget, properties: bytes, body: bytes) -> None:
        """One message of this read."""
        batch = self._batch
        number = 0
        if channel.confirms:
            number = channel.published = channel.published + 1
        batch.messages.append(Message(target.exchange, target.routing_key, properties, body))
        batch.entries.append((channel, target, number))
        batch.body_bytes += len(body)

    def flush(self) -> None:
        """Hand over what has been collected."""
        self.writable_exchange = None
        batch = self._batch
        if not batch.messages:
            return
        self._batch = _Batch()
        connection = self._connection
        assert connection.session is not None
        publication = connection.session.publish(batch.messages)
        connection.stats.published += len(batch.messages)
        connection.flow.note_publish()
        for index in publication.unrouted:
            self._unrouted(batch, index)
        self._outstanding.append(batch)
        self.outstanding_bytes += batch.body_bytes
        connection.server.bytes_taken(batch.body_bytes)
        if publication.future is None:
            self._done(batch, publication.refused)
        else:
            publication.future.add_done_callback(lambda future: self._finished(batch, future))
        batch.messages = []

    def _unrouted(self, batch: _Batch, index: int) -> None:
        channel, target, _ = batch.entries[index]
        if target.mandatory and not channel.is_closed:
            message = batch.messages[index]
            out = self._connection.wire.out
            out += content.returned(
                channel.number,
                self._connection.wire.frame_max,
                _NO_ROUTE,
                target,
                message.properties,
                message.body,
            )
            self._connection.stats.returned += 1

    def _finished(self, batch: _Batch, future: asyncio.Future[Sequence[int]]) -> None:
        if future.cancelled():
            return
        failure = future.exception()
        if failure is not None:
            self._connection.fail_unexpectedly(failure)
            return
        self._done(batch, future.result())
        self._connection.flush()
        self._connection.flow.adjust()

    def _done(self, batch: _Batch, refused: Sequence[int]) -> None:
        batch.refused = refused
        batch.is_done = True
        while self._outstanding and self._outstanding[0].is_done:
            first = self._outstanding.popleft()
            self.outstanding_bytes -= first.body_bytes
            self._connection.server.bytes_released(first.body_bytes)
            self._confirm(first)
            for waiter in first.waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def _confirm(self, batch: _Batch) -> None:
        if batch.refused:
            self._confirm_one_by_one(batch)
            return
        last: dict[Channel, int] = {}
        for channel, _, number in batch.entries:
            if number:
                last[channel] = number
        out = self._connection.wire.out
        for channel, number in last.items():
            if not channel.is_closed:
                out.append(content.confirm(channel.number, number, number > channel.confirmed + 1))
                channel.confirmed = number

    def _confirm_one_by_one(self, batch: _Batch) -> None:
        """A message was refused: the others are acknowledged singly, so that none passes it."""
        refused = frozenset(batch.refused)
        out = self._connection.wire.out
        for index, (channel, _, number) in enumerate(batch.entries):
            if not number or channel.is_closed:
                continue
            if index in refused:
                out.append(content.refuse(channel.number, number))
            else:
                out.append(content.confirm(channel.number, number, False))
            channel.confirmed = number
