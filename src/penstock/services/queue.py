"""A declared queue: its properties, and its working part once somebody uses it.

A hundred thousand declared queues must cost little, so this object is small and does nothing by
itself. What a queue does is in `LiveQueue`, which is loaded from the log and the journal at the
first publish, consume or look inside. Messages published while it loads wait here, in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.catalogue.messaging import QueueRow
from penstock.errors import BrokerError, NotFound
from penstock.log.flusher import Flusher
from penstock.log.store import LogStore
from penstock.machines.queue_outcome import DeadLetters
from penstock.model.queue_arguments import QueueRules
from penstock.model.queue_record import Message
from penstock.model.records import Headers
from penstock.runtime.clock import Clock
from penstock.runtime.timer import Timer
from penstock.services.live_queue import Enqueued, LiveQueue
from penstock.services.partitions import Partitions
from penstock.services.topics import Topics


class QueueHost(Protocol):
    """What queues need of the broker around them."""

    clock: Clock
    topics: Topics
    partitions: Partitions
    store: LogStore
    flusher: Flusher

    def bury(self, queue: Queue, letters: DeadLetters) -> None:
        """Have messages that are dying copied to where the queue's dead letters go."""

    def bury_refused(self, queue: Queue, messages: Sequence[Message]) -> None:
        """The same for messages that the queue had no room for."""

    def delete_unused(self, queue: Queue) -> None:
        """The queue has no more use: nobody consumes from it, as it was declared to go then."""

    def load(self, queue: Queue) -> Awaitable[LiveQueue]:
        """Read the queue's state from its log and journal."""


class QueueCounts(NamedTuple):
    """The messages of a queue."""

    messages: int
    ready: int
    unacknowledged: int
    scheduled: int


_Waiting = tuple[
    Sequence[Message],
    Sequence[int | None] | None,
    Sequence[Headers | None] | None,
    "asyncio.Future[Sequence[int]]",
]


class Queue:
    """One queue of one virtual host."""

    __slots__ = (
        "_expiry",
        "_loading",
        "_slept_with",
        "_waiting",
        "acknowledged",
        "adopted",
        "arguments",
        "auto_delete",
        "delivered",
        "durable",
        "exclusive",
        "host",
        "is_deleted",
        "live",
        "name",
        "owner",
        "policy",
        "published",
        "readers",
        "rules",
        "topic",
        "vhost",
    )

    def __init__(self, host: QueueHost, row: QueueRow, rules: QueueRules, owner: object) -> None:
        self.host = host
        self.vhost, self.name, self.topic = row.vhost, row.name, row.topic
        self.durable, self.exclusive, self.auto_delete, self.adopted = row[3:7]
        self.arguments = row.arguments
        self.rules = rules
        self.policy: str | None = None
        self.owner = owner  # the session of an exclusive queue
        self.live: LiveQueue | None = None
        self.is_deleted = False
        self.published = 0
        self.delivered = 0
        self.acknowledged = 0
        self.readers = 0  # of a stream
        self._loading: asyncio.Task[LiveQueue] | None = None
        self._waiting: list[_Waiting] | None = None
        self._slept_with: tuple[int, int | None] = (0, -1)  # messages; where its log ended
        self._expiry: Timer | None = None

    def __repr__(self) -> str:
        return f"<Queue {self.name!r} in {self.vhost!r} {self.live or 'asleep'}>"

    @property
    def row(self) -> QueueRow:
        return QueueRow(
            self.vhost,
            self.name,
            self.topic,
            self.durable,
            self.exclusive,
            self.auto_delete,
            self.adopted,
            self.arguments,
        )

    @property
    def where(self) -> str:
        """How errors speak of it."""
        return f"queue '{self.name}' in vhost '{self.vhost}'"

    @property
    def consumer_count(self) -> int:
        return len(self.live.consumers) if self.live is not None else self.readers

    @property
    def counts(self) -> QueueCounts | None:
        """How many messages it has; None when nobody has looked since something came."""
        if self.live is not None:
            machine = self.live.machine
            return QueueCounts(machine.unsettled, machine.ready, machine.delivered, machine.held)
        count, end = self._slept_with
        if end != self.host.partitions.end_offset(self.topic, 0):
            return None
        return QueueCounts(count, count, 0, 0)

    # --- waking -----------------------------------------------------------------------------------

    async def wake(self) -> LiveQueue:
        """The working part, loaded if need be; NotFound when the queue was deleted meanwhile."""
        if self.live is not None:
            return self.live
        # Shielded: one client that goes away must not end the loading that others wait for.
        live = await asyncio.shield(self._load())
        if self.is_deleted:
            raise NotFound(f"no {self.where}")
        return live

    def _load(self) -> asyncio.Task[LiveQueue]:
        if self._loading is None:
            self._loading = asyncio.get_running_loop().create_task(self._loaded())
        return self._loading

    async def _loaded(self) -> LiveQueue:
        try:
            live = await self.host.load(self)
        except BaseException as failure:
            self._loading = None
            self._fail_waiting(failure)
            raise
        self._loading = None
        if self.is_deleted:
            live.close(deleted=True)
        else:
            self.live = live
        self._publish_waiting(live)
        return live

    def _publish_waiting(self, live: LiveQueue) -> None:
        waiting, self._waiting = self._waiting or [], None
        for messages, dues, extras, future in waiting:
            if live.is_closed:
                future.set_result(())
                continue
            enqueued = live.publish(messages, dues, extras)
            if enqueued.future is None:
                future.set_result(enqueued.refused)
            else:
                enqueued.future.add_done_callback(_pass_on(future, enqueued.refused))

    def _fail_waiting(self, failure: BaseException) -> None:
        waiting, self._waiting = self._waiting or [], None
        for messages, _, _, future in waiting:
            if isinstance(failure, BrokerError):
                future.set_result(range(len(messages)))
            else:
                future.set_exception(failure)

    # --- publishing -------------------------------------------------------------------------------

    def enqueue(
        self,
        messages: Sequence[Message],
        dues: Sequence[int | None] | None = None,
        extras: Sequence[Headers | None] | None = None,
    ) -> Enqueued:
        """Put messages into the queue, in the order of the calls."""
        if self.live is not None:
            return self.live.publish(messages, dues, extras)
        if self.is_deleted:
            return Enqueued(None)
        future: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
        if self._waiting is None:
            self._waiting = []
        self._waiting.append((messages, dues, extras, future))
        self._load().add_done_callback(_look_at)
        return Enqueued(future)

    # --- being used -------------------------------------------------------------------------------

    def used(self) -> None:
        """Somebody declared it, consumes from it or took from it: `x-expires` begins anew."""
        expires_ms = self.rules.expires_ms
        if expires_ms is None or self.is_deleted or self.consumer_count:
            if self._expiry is not None:
                self._expiry.cancel()
            return
        if self._expiry is None:
            self._expiry = Timer(self.host.clock, self._expires)
        self._expiry.set(self.host.clock.now_ms() + expires_ms)

    def _expires(self) -> None:
        if not self.consumer_count and not self.is_deleted:
            self.host.delete_unused(self)

    def last_consumer_left(self) -> None:
        if self.auto_delete and not self.is_deleted:
            self.host.delete_unused(self)
        else:
            self.used()

    def reconfigure(self, rules: QueueRules, policy: str | None) -> None:
        """A policy came, went or changed."""
        self.policy = policy
        if rules is not self.rules:
            self.rules = rules
            if self.live is not None:
                self.live.reconfigure(rules)
            self.used()

    def maybe_sleep(self, since_ms: int) -> None:
        """Give back the memory of the working part if nobody has used it since."""
        if self.live is not None and self.live.is_idle(since_ms):
            end = self.host.partitions.end_offset(self.topic, 0)
            self._slept_with = self.live.machine.ready, end
            self.live.close(deleted=False)
            self.live = None

    def close(self, *, deleted: bool) -> None:
        """The queue or the broker ends."""
        self.is_deleted = self.is_deleted or deleted
        if self._expiry is not None:
            self._expiry.cancel()
        if self.live is not None:
            self.live.close(deleted=deleted)
            self.live = None


def _pass_on(
    future: asyncio.Future[Sequence[int]], refused: Sequence[int]
) -> Callable[[asyncio.Future[Any]], None]:
    def done(safe: asyncio.Future[Any]) -> None:
        if future.done():
            return
        failure = safe.exception()
        if failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(refused)

    return done


def _look_at(task: asyncio.Task[LiveQueue]) -> None:
    """Those who published were told already."""
    if not task.cancelled():
        task.exception()
