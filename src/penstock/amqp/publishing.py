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
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.model.queue_record import shown
from penstock.services.session import Message
from penstock.wire.amqp import content
from penstock.wire.amqp.codes import NO_ROUTE

if TYPE_CHECKING:
    from penstock.amqp.channel import Channel
    from penstock.amqp.connection import Connection

_NO_ROUTE = (NO_ROUTE, "NO_ROUTE")


class _Run(NamedTuple):
    """Messages of a batch that follow each other on one channel."""

    channel: Channel
    start: int  # index of the first in the batch
    first_number: int  # of the first on the channel, when it confirms; else 0


class _Batch:
    """What was published together, until it is confirmed."""

    __slots__ = ("body_bytes", "is_done", "mandatory", "messages", "refused", "runs", "waiters")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.runs: list[_Run] = []
        self.mandatory: set[int] = set()  # indexes of messages that must have a queue
        self.body_bytes = 0
        self.refused: Sequence[int] = ()
        self.is_done = False
        self.waiters: list[asyncio.Future[None]] = []

    def ends(self) -> Iterable[tuple[_Run, int]]:
        """Each run with the index after its last message."""
        starts = [run.start for run in self.runs[1:]]
        return zip(self.runs, [*starts, len(self.messages)], strict=True)


class Publishing:
    """The publishing side of one connection."""

    __slots__ = ("_batch", "_connection", "_outstanding", "outstanding_bytes")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._batch = _Batch()
        self._outstanding: deque[_Batch] = deque()
        self.outstanding_bytes = 0

    async def settled(self) -> None:
        """Wait until everything published so far is in its queues."""
        self.flush()
        if self._outstanding:
            waiter = asyncio.get_running_loop().create_future()
            self._outstanding[-1].waiters.append(waiter)
            await waiter

    def begin_run(self, channel: Channel) -> None:
        """Messages of a channel follow."""
        batch = self._batch
        self._number(batch)
        number = channel.published + 1 if channel.confirms else 0
        batch.runs.append(_Run(channel, len(batch.messages), number))

    def add(self, messages: list[Message], mandatory: bool) -> None:
        """Messages of the run."""
        collected = self._batch.messages
        if mandatory:
            start = len(collected)
            self._batch.mandatory.update(range(start, start + len(messages)))
        collected += messages

    def _number(self, batch: _Batch) -> None:
        """The messages of the last run have their numbers on its channel now."""
        if batch.runs:
            run = batch.runs[-1]
            if run.first_number:
                run.channel.published = run.first_number + len(batch.messages) - run.start - 1

    def flush(self) -> None:
        """Hand over what has been collected."""
        batch = self._batch
        if not batch.messages:
            batch.runs.clear()
            return
        self._number(batch)
        self._batch = _Batch()
        connection = self._connection
        assert connection.session is not None
        publication = connection.session.publish(batch.messages)
        connection.stats.published += len(batch.messages)
        connection.flow.note_publish()
        for index in publication.unrouted:
            if index in batch.mandatory:
                self._return(batch, index)
        batch.body_bytes = sum([len(message.body) for message in batch.messages])
        self._outstanding.append(batch)
        self.outstanding_bytes += batch.body_bytes
        connection.server.bytes_taken(batch.body_bytes)
        if publication.future is None:
            self._done(batch, publication.refused)
        else:
            publication.future.add_done_callback(lambda future: self._finished(batch, future))

    def _return(self, batch: _Batch, index: int) -> None:
        channel = next(run.channel for run, end in batch.ends() if index < end)
        if not channel.is_closed:
            connection = self._connection
            connection.wire.out += content.returned(
                channel.number, connection.wire.frame_max, _NO_ROUTE, shown(batch.messages[index])
            )
            connection.stats.returned += 1

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
        for run, end in batch.ends():
            if run.first_number:
                last[run.channel] = run.first_number + end - run.start - 1
        out = self._connection.wire.out
        for channel, number in last.items():
            if not channel.is_closed and number > channel.confirmed:
                out.append(content.confirm(channel.number, number, number > channel.confirmed + 1))
                channel.confirmed = number

    def _confirm_one_by_one(self, batch: _Batch) -> None:
        """A message was refused: the others are acknowledged singly, so that none passes it."""
        refused = frozenset(batch.refused)
        out = self._connection.wire.out
        for run, end in batch.ends():
            channel = run.channel
            if not run.first_number or channel.is_closed:
                continue
            for index in range(run.start, end):
                number = run.first_number + index - run.start
                if index in refused:
                    out.append(content.refuse(channel.number, number))
                else:
                    out.append(content.confirm(channel.number, number, False))
                channel.confirmed = number
