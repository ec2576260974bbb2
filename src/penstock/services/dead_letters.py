"""Dead letters: copied to where they go, safe there, and only then gone from where they were.

Each queue's dead messages are worked off one group after the other, in the background. A message
that cannot be delivered now, because the target refuses it or the disk is full, is tried again; one
that has no target, or would go in circles, is dropped. A crash between the copy and the burial
makes a second copy with the same `penstock.source`, which the target queue recognises.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from penstock.errors import BrokerError
from penstock.machines.queue_outcome import DeadLetters
from penstock.model import message_properties
from penstock.model.death import Death, is_going_in_circles, with_death
from penstock.model.offset_ranges import Range
from penstock.model.queue_record import SOURCE, Message, telling
from penstock.model.queue_settings import DeadReason
from penstock.model.records import Headers
from penstock.runtime.clock import Clock
from penstock.services.live_queue import LiveQueue
from penstock.services.queue import Queue
from penstock.services.queue_pages import Entry
from penstock.services.vhost import VirtualHost

_log = logging.getLogger("penstock")

_AT_ONCE = 256
_Letter = tuple[Message, bytes | None]  # with where it comes from
_RETRY_SECONDS = 1.0


class DeadLetterOffice:
    """Works off the dead messages of all queues."""

    def __init__(self, clock: Clock, find: Callable[[str], VirtualHost | None]) -> None:
        self._clock = clock
        self._find = find
        self._waiting: dict[Queue, deque[DeadLetters]] = {}
        self._tasks: dict[Queue, asyncio.Task[None]] = {}
        self._refused: dict[Queue, list[_Letter]] = {}
        self._others: set[asyncio.Task[None]] = set()
        self.buried = 0

    def __repr__(self) -> str:
        return f"<DeadLetterOffice {len(self._tasks)} queues at work>"

    def bury(self, queue: Queue, letters: DeadLetters) -> None:
        """Have these messages of the queue copied, and then settled in it."""
        self._waiting.setdefault(queue, deque()).append(letters)
        if queue not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._work(queue))
            self._tasks[queue] = task
            task.add_done_callback(lambda done: self._ended(queue, done))

    def bury_refused(self, queue: Queue, messages: Sequence[Message]) -> None:
        """Messages that the queue had no room for: they were never in it."""
        dead: list[_Letter] = [
            (self._dead(queue, one, DeadReason.MAXLEN), None) for one in messages
        ]
        if queue in self._refused:  # the task that works them off, in order, finds these as well
            self._refused[queue] += dead
            return
        self._refused[queue] = dead
        task = asyncio.get_running_loop().create_task(self._work_off_refused(queue))
        self._others.add(task)
        task.add_done_callback(self._others.discard)

    async def _work_off_refused(self, queue: Queue) -> None:
        try:
            while dead := self._refused.get(queue):
                self._refused[queue] = []
                await self._deliver(queue, dead)
        finally:
            self._refused.pop(queue, None)

    async def close(self) -> None:
        tasks = [*self._tasks.values(), *self._others]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, queue: Queue, task: asyncio.Task[None]) -> None:
        self._tasks.pop(queue, None)
        if not task.cancelled() and task.exception() is not None:
            _log.error("dead letters of %s", queue.where, exc_info=task.exception())
        if self._waiting.get(queue) and not task.cancelled():
            self.bury(queue, self._waiting[queue].pop())

    async def _work(self, queue: Queue) -> None:
        waiting = self._waiting[queue]
        while waiting:
            letters = _gather(waiting)
            live = queue.live
            if live is None:  # the queue is gone, and its messages with it
                break
            dead = await self._read(queue, live, letters.ranges, letters.reason)
            await self._deliver(queue, dead)
            if not live.is_closed:
                live.bury(letters.ranges)
                self.buried += len(dead)
        del self._waiting[queue]

    async def _read(
        self, queue: Queue, live: LiveQueue, ranges: Sequence[Range], reason: DeadReason
    ) -> list[_Letter]:
        """The dead letters, each with where it comes from."""
        dead: list[_Letter] = []
        for low, high in ranges:
            for offset in range(low, high):
                entry = await live.log.entry_or_wait(live.machine.state.place_of(offset))
                if entry is not None:
                    dead.append((self._dead(queue, entry, reason), live.log.source(offset)))
        return dead

    def _dead(self, queue: Queue, entry: Entry, reason: DeadReason) -> Message:
        rules = queue.rules
        key = rules.dead_letter_routing_key
        keys = [entry.routing_key, *telling(entry.properties).copies]
        death = Death(queue.name, reason, entry.exchange, keys, self._clock.now_ms())
        # A key of the queue's own stands for all keys of the message, so the others go.
        without = () if key is None else ("CC",)
        return Message(
            rules.dead_letter_exchange or "",
            entry.routing_key if key is None else key,
            with_death(entry.properties, death, without=without),
            entry.body,
        )

    async def _deliver(self, queue: Queue, dead: list[_Letter]) -> None:
        """Return when every letter is safe at its targets, or has none."""
        while dead:
            vhost = self._find(queue.vhost)
            if vhost is None:
                return
            dead = await self._try_to_deliver(vhost, queue, dead)
            if dead:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _try_to_deliver(
        self, vhost: VirtualHost, queue: Queue, dead: list[_Letter]
    ) -> list[_Letter]:
        """One attempt; the letters that some target did not take."""
        groups: dict[str, list[int]] = {}
        for index, (message, _) in enumerate(dead):
            for name in self._targets(vhost, queue, message):
                groups.setdefault(name, []).append(index)
        refused: set[int] = set()
        waiters = []
        for name, indexes in groups.items():
            target = vhost.queues.get(name)
            if target is None:
                continue
            try:
                live = await target.wake()
                await live.admission.recall_sources(self._clock.now_ms())
            except BrokerError:
                refused.update(indexes)
                continue
            extras: list[Headers | None] = [_source(dead[at][1]) for at in indexes]
            enqueued = target.enqueue([dead[at][0] for at in indexes], None, extras)
            refused.update(indexes[at] for at in enqueued.refused)
            if enqueued.future is not None:
                waiters.append((enqueued.future, indexes))
        for future, indexes in waiters:
            try:
                refused.update(indexes[at] for at in await future or ())
            except BrokerError:
                refused.update(indexes)
        return [dead[at] for at in sorted(refused)]

    def _targets(self, vhost: VirtualHost, queue: Queue, message: Message) -> list[str]:
        content = message_properties.parse(message.properties)
        keys = [message.routing_key, *telling(message.properties).copies]
        found = vhost.exchanges.route_all(message.exchange, keys, _Content(content))
        return [name for name in found.queues if not is_going_in_circles(message.properties, name)]


class _Content:
    __slots__ = ("_properties",)

    def __init__(self, properties: message_properties.MessageProperties) -> None:
        self._properties = properties

    def headers(self) -> dict[str, object]:
        return self._properties.headers

    def property(self, name: str) -> object | None:
        value: object = getattr(self._properties, name, None)
        return value


def _source(source: bytes | None) -> Headers | None:
    return None if source is None else [(SOURCE, source)]


def _gather(waiting: deque[DeadLetters]) -> DeadLetters:
    """Take what waits for one reason, as many messages as are worked off at once.

    They may have died one by one; together they cost one sync.
    """
    reason = waiting[0].reason
    taken: list[Range] = []
    room = _AT_ONCE
    while room and waiting and waiting[0].reason == reason:
        rest: list[Range] = []
        for low, high in waiting.popleft().ranges:
            stop = min(high, low + room)
            if low < stop:
                taken.append((low, stop))
                room -= stop - low
            if stop < high:
                rest.append((stop, high))
        if rest:
            waiting.appendleft(DeadLetters(rest, reason))
    return DeadLetters(taken, reason)
