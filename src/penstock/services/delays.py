"""Messages that are delayed for long: kept apart until they are due, and pinning no queue's log.

A message due within minutes waits in the log of its queue. One that is due later goes to the topic
of the hour in which it is due, with the names of the queues it was routed to. That topic is a queue
too, whose messages become ready when they are due; from its hour on it is emptied: each message is
appended to its queues, and settled here when it is safe there. An hour that is over and empty is
deleted. So a delay of a year costs its bytes on the disk until then, and nothing in memory.

A crash between the two appends a message twice; `penstock.source` tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.catalogue.messaging import QueueRow
from penstock.errors import BrokerError, SubscriptionEnded, TopicExists
from penstock.machines.queue_outcome import DeadLetters
from penstock.model.queue_arguments import rules_of
from penstock.model.queue_record import DUE, SOURCE, TARGETS, Message, StoredMessage
from penstock.model.records import Headers
from penstock.runtime.timer import Timer
from penstock.services.live_queue import Enqueued, LiveQueue
from penstock.services.queue import Queue, QueueHost
from penstock.services.queue_loading import load_queue
from penstock.services.subscription import Subscription
from penstock.services.vhost import VirtualHost

_log = logging.getLogger("penstock")

LONG_MS = 10 * 60_000
BUCKET_MS = 3_600_000
TOPIC_PREFIX = "__delayed-"
_RETRY_SECONDS = 1.0
_AT_ONCE = 256
_NOWHERE = "~delays"  # stands where the virtual host of a queue would


class Delayed(NamedTuple):
    """A message that is not to be delivered before its time."""

    number: int  # in its publication
    message: Message
    queues: Sequence[str]
    due_ms: int


def _headers(vhost: VirtualHost, one: Delayed) -> Headers:
    targets = json.dumps([vhost.name, *one.queues]).encode()
    return [(DUE, b"%d" % one.due_ms), (TARGETS, targets)]


class Delays:
    """Holds messages until their hour comes."""

    def __init__(self, host: QueueHost, find: Callable[[str], VirtualHost | None]) -> None:
        self.clock = host.clock
        self.topics = host.topics
        self.partitions = host.partitions
        self.store = host.store
        self.flusher = host.flusher
        self._find = find
        self._buckets: dict[int, Queue] = {}
        self._releasing: dict[int, asyncio.Task[None]] = {}
        self._timer = Timer(self.clock, self._begin)
        self._closed = False

    def __repr__(self) -> str:
        return f"<Delays {len(self._buckets)} hours>"

    # --- holding ----------------------------------------------------------------------------------

    def are_long(self, due_ms: int) -> bool:
        """Whether a message due then is better kept here."""
        return due_ms - self.clock.now_ms() > LONG_MS

    def hold(
        self, vhost: VirtualHost, delayed: Sequence[Delayed]
    ) -> list[tuple[Enqueued, list[int]]]:
        """Keep messages until they are due; for each hour, what became of which (by index)."""
        hours: dict[int, list[Delayed]] = {}
        for one in delayed:
            hours.setdefault(one.due_ms // BUCKET_MS, []).append(one)
        kept = []
        for hour, group in hours.items():
            dues = [one.due_ms for one in group]
            headers = [_headers(vhost, one) for one in group]
            enqueued = self._bucket(hour).enqueue([one.message for one in group], dues, headers)
            kept.append((enqueued, [one.number for one in group]))
        return kept

    def _bucket(self, hour: int) -> Queue:
        queue = self._buckets.get(hour)
        if queue is None:
            name = f"{TOPIC_PREFIX}{hour}"
            row = QueueRow(_NOWHERE, name, name, True, False, False, False, {})
            queue = self._buckets[hour] = Queue(self, row, rules_of({}, {}), None)
            self._set_timer()
        return queue

    # --- releasing --------------------------------------------------------------------------------

    def start(self) -> None:
        """Take over what an earlier run left, and begin with what is due."""
        for name in list(self.topics.names()):
            if name.startswith(TOPIC_PREFIX):
                self._bucket(int(name.removeprefix(TOPIC_PREFIX)))
        self._set_timer()

    def _set_timer(self) -> None:
        waiting = [hour for hour in self._buckets if hour not in self._releasing]
        self._timer.set(min(waiting) * BUCKET_MS if waiting and not self._closed else None)

    def _begin(self) -> None:
        hour = self.clock.now_ms() // BUCKET_MS
        for one in sorted(self._buckets):
            if one <= hour and one not in self._releasing:
                loop = asyncio.get_running_loop()
                self._releasing[one] = loop.create_task(self._release(one))
        self._set_timer()

    async def _release(self, hour: int) -> None:
        queue = self._buckets[hour]
        try:
            while not self._closed and not await self._empty(hour, queue):
                await asyncio.sleep(_RETRY_SECONDS)
        except SubscriptionEnded:
            pass
        finally:
            self._releasing.pop(hour, None)

    async def _empty(self, hour: int, queue: Queue) -> bool:
        """Release messages as they become due; True when the hour is over and empty."""
        try:
            live = await queue.wake()
            subscription = live.subscribe(
                "delays", no_ack=False, exclusive=False, prefetch=_AT_ONCE, priority=0
            )
            try:
                while live.machine.unsettled or self.clock.now_ms() < (hour + 1) * BUCKET_MS:
                    await self._wait(live, subscription, hour)
                    await self._release_some(live, subscription)
            finally:
                subscription.cancel()
            await self._delete(hour, queue)
            return True
        except BrokerError as failure:
            if isinstance(failure, SubscriptionEnded):
                raise
            _log.warning("delayed messages of hour %d: %s", hour, failure)
            return False

    async def _wait(self, live: LiveQueue, subscription: Subscription, hour: int) -> None:
        over_ms = (hour + 1) * BUCKET_MS - self.clock.now_ms()
        if live.machine.unsettled or over_ms <= 0:
            await subscription.ready()
            return
        try:
            await asyncio.wait_for(subscription.ready(), over_ms / 1000)
        except TimeoutError:
            return

    async def _release_some(self, live: LiveQueue, subscription: Subscription) -> None:
        offsets = [one.offset for one in subscription.try_take(_AT_ONCE, 1 << 20)]
        try:
            await self._send(live, offsets)
        except BaseException:  # some may be where they belong: `penstock.source` tells
            subscription.requeue(offsets)
            raise
        if offsets:
            subscription.ack(offsets)

    async def _send(self, live: LiveQueue, offsets: Sequence[int]) -> None:
        """Return when these messages are safe in their queues, or refused by them."""
        groups: dict[Queue, tuple[list[Message], list[Headers | None]]] = {}
        for offset in offsets:
            entry = await live.log.entry_or_wait(offset)
            if not isinstance(entry, StoredMessage):
                continue
            source = (SOURCE, live.log.source(offset))
            message = Message(entry.exchange, entry.routing_key, entry.properties, entry.body)
            for queue in self._targets(entry.targets):
                messages, extras = groups.setdefault(queue, ([], []))
                messages.append(message)
                extras.append([source])
        for queue in groups:
            await (await queue.wake()).admission.recall_sources(self.clock.now_ms())
        waiters = []
        for queue, (messages, extras) in groups.items():
            enqueued = queue.enqueue(messages, None, extras)
            if enqueued.failure is not None:
                raise enqueued.failure
            if enqueued.future is not None:
                waiters.append(enqueued.future)
        if waiters:
            await asyncio.gather(*waiters)

    def _targets(self, data: bytes | None) -> list[Queue]:
        """The queues that still exist of those a message was routed to."""
        if data is None:
            return []
        vhost_name, *names = json.loads(data)
        vhost = self._find(vhost_name)
        if vhost is None:
            return []
        return [vhost.queues[name] for name in names if name in vhost.queues]

    async def _delete(self, hour: int, queue: Queue) -> None:
        del self._buckets[hour]
        queue.close(deleted=True)
        topic = self.topics.find(queue.topic)
        if topic is not None:
            await self.topics.delete(queue.topic)
            self.store.delete_journals(topic.id)

    async def close(self) -> None:
        self._closed = True
        self._timer.cancel()
        tasks = list(self._releasing.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for queue in self._buckets.values():
            queue.close(deleted=False)

    # --- what queues need of their host -----------------------------------------------------------

    async def load(self, queue: Queue) -> LiveQueue:
        if self.topics.find(queue.topic) is None:
            with contextlib.suppress(TopicExists):
                await self.topics.create(queue.topic, partitions=1, config={"retention.ms": "-1"})
        return await load_queue(queue)

    def bury(self, queue: Queue, letters: DeadLetters) -> None:
        raise AssertionError("delayed messages have no dead letters")

    def bury_refused(self, queue: Queue, messages: Sequence[Message]) -> None:
        raise AssertionError("an hour has room for every message")

    def delete_unused(self, queue: Queue) -> None:
        raise AssertionError("an hour deletes itself")
