"""Queues: declared, deleted, purged, with RabbitMQ's rules of equivalence; and what they live in.

A queue's messages are partition 0 of a topic (model/queue_names.py says which), which Kafka clients
see like any other. Declaring a queue creates the topic; a topic of one partition that is there
already is adopted: its messages are the queue's, and it stays when the queue goes. A topic that is
deleted takes its queue with it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.catalogue.messaging import MessagingCatalogue, QueueRow
from penstock.errors import (
    AccessRefused,
    BrokerError,
    InvalidTopicName,
    NotForStreams,
    PreconditionFailed,
    TopicExists,
)
from penstock.log.flusher import Flusher
from penstock.log.store import LogStore
from penstock.machines.queue_outcome import DeadLetters
from penstock.model.binding import Destination
from penstock.model.queue_arguments import STREAM, QueueRules, check_arguments, rules_of
from penstock.model.queue_names import cut_name, topic_of_queue
from penstock.model.queue_record import Message
from penstock.model.topic import Topic
from penstock.runtime.clock import Clock
from penstock.runtime.turns import Turns
from penstock.services.dead_letters import DeadLetterOffice
from penstock.services.live_queue import LiveQueue
from penstock.services.partitions import Partitions
from penstock.services.policies import QUEUES, Policies
from penstock.services.queue import Queue
from penstock.services.queue_checks import check_kind, check_name, check_owner, check_same
from penstock.services.queue_loading import PURPOSE, load_queue
from penstock.services.queue_space import reclaim
from penstock.services.routing import RESERVED, Routing
from penstock.services.streams import stream_length
from penstock.services.topics import Topics
from penstock.services.vhost import VirtualHost

_log = logging.getLogger("penstock")

_IDLE_MS = 300_000  # after which a queue that nobody uses goes back to sleep
_SEGMENT_BYTES = 64 << 20  # smaller than Kafka's: what is acknowledged goes by segment


class QueueInfo(NamedTuple):
    """What a declaration answers."""

    name: str
    message_count: int
    consumer_count: int


def new_name() -> str:
    """A name for a queue that its client did not name."""
    return f"amq.gen-{secrets.token_urlsafe(16)}"


class Queues:
    """The verbs of queues, and their host (see `QueueHost`)."""

    def __init__(
        self,
        catalogue: MessagingCatalogue,
        routing: Routing,
        policies: Policies,
        topics: Topics,
        partitions: Partitions,
        store: LogStore,
        flusher: Flusher,
        clock: Clock,
        vhosts: Mapping[str, VirtualHost],
    ) -> None:
        self.clock = clock
        self.topics = topics
        self.partitions = partitions
        self.store = store
        self.flusher = flusher
        self._catalogue = catalogue
        self._routing = routing
        self._policies = policies
        self._vhosts = vhosts
        self._by_topic: dict[str, Queue] = {}
        self._turns = Turns()
        self._deleting: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.dead_letters = DeadLetterOffice(clock, vhosts.get)
        topics.on_deleted.append(self._topic_deleted)

    def __repr__(self) -> str:
        return f"<Queues {len(self._by_topic)}>"

    # --- starting and stopping --------------------------------------------------------------------

    async def adopt_rows(self, rows: Sequence[QueueRow]) -> None:
        """Take over what the catalogue holds. What was to last only until the end is dropped.

        So is a queue without a topic: a crash came in the middle of its deletion.
        """
        gone: list[QueueRow] = []
        for row in rows:
            vhost = self._vhosts.get(row.vhost)
            has_topic = self.topics.find(row.topic) is not None
            if vhost is None or not row.durable or row.exclusive or not has_topic:
                gone.append(row)
            else:
                self._remember(vhost, row, None).used()
        for row in gone:
            if not row.adopted and self.topics.find(row.topic) is not None:
                await self._drop_topic(row.topic)
        if gone:
            await self._catalogue.delete(*gone)

    async def close(self) -> None:
        await self.dead_letters.close()
        await asyncio.gather(*self._deleting.values(), return_exceptions=True)
        for queue in list(self._by_topic.values()):
            queue.close(deleted=False)

    async def reclaim(self) -> int:
        """Give back the disk space of what is settled, and the memory of idle queues.

        Returns how many segments went.
        """
        now_ms = self.clock.now_ms()
        dropped = 0
        for queue in self.all():
            if queue.live is not None:
                try:
                    dropped += await reclaim(queue, now_ms)
                except BrokerError as failure:  # others may have space to give all the same
                    _log.warning("the space of %s: %s", queue.where, failure)
                queue.maybe_sleep(now_ms - _IDLE_MS)
        return dropped

    async def needed_from(self, topic: str) -> int | None:
        """The first offset of a queue's topic that is still needed; None when it is no queue's."""
        queue = self._by_topic.get(topic)
        if queue is None or queue.rules.kind == STREAM:
            return None
        return (await queue.wake()).machine.state.needed_from()

    def by_topic(self, topic: str) -> Queue | None:
        return self._by_topic.get(topic)

    def all(self) -> list[Queue]:
        return list(self._by_topic.values())

    # --- verbs ------------------------------------------------------------------------------------

    async def declare(
        self,
        vhost: VirtualHost,
        name: str,
        *,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, object],
        owner: object = None,
        named_by_server: bool = False,
    ) -> QueueInfo:
        """Declare a queue, or find it as declared."""
        if not name:
            name = new_name()
        elif (
            name.startswith(RESERVED)
            and not (passive or named_by_server)
            and name not in vhost.queues
        ):
            raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        check_name(name)
        # One that goes with its connection does not outlive the process, whatever is said.
        lasts = durable and not exclusive

        async def work() -> Queue:
            leaving = self._deleting.get((vhost.name, name))
            if leaving is not None:
                await asyncio.wait([leaving])
            queue = vhost.queue(name) if passive else vhost.queues.get(name)
            if queue is not None:
                check_owner(queue, owner)
                if not passive:
                    check_same(queue, lasts, exclusive, auto_delete, arguments)
                return queue
            where = f"queue '{name}' in vhost '{vhost.name}'"
            check_arguments(arguments, where)
            check_kind(arguments, durable, exclusive, auto_delete, where)
            row = QueueRow(
                vhost.name, name, "", lasts, exclusive, auto_delete, False, dict(arguments)
            )
            return await self._create(vhost, row, owner)

        queue = await self._turns.take(f"{vhost.name}\0{name}", work())
        queue.used()
        return await self.info(queue)

    async def _create(self, vhost: VirtualHost, row: QueueRow, owner: object) -> Queue:
        rules, _ = self._rules(row)
        row = await self._with_topic(row, rules)
        await self._catalogue.put(row)
        return self._remember(vhost, row, owner)

    async def info(self, queue: Queue) -> QueueInfo:
        """How many messages are ready; in a stream, how many there are."""
        if queue.rules.kind == STREAM:
            count = await stream_length(queue)
            return QueueInfo(queue.name, count, queue.consumer_count)
        live = queue.live
        if live is None and not self._never_used(queue):
            live = await queue.wake()
        ready = live.machine.ready if live is not None else 0
        return QueueInfo(queue.name, ready, queue.consumer_count)

    async def delete(
        self,
        vhost: VirtualHost,
        name: str,
        *,
        if_unused: bool = False,
        if_empty: bool = False,
        owner: object = None,
    ) -> int:
        """Delete a queue, with its bindings and messages; how many of those were ready."""

        async def work() -> int:
            queue = vhost.queues.get(name)
            if queue is None:
                return 0
            check_owner(queue, owner)
            if if_unused and queue.consumer_count:
                raise PreconditionFailed(f"{queue.where} in use")
            count = (await self.info(queue)).message_count
            if if_empty and count:
                raise PreconditionFailed(f"{queue.where} not empty")
            await self._delete(vhost, queue)
            return count

        return await self._turns.take(f"{vhost.name}\0{name}", work())

    async def purge(self, vhost: VirtualHost, name: str, owner: object = None) -> int:
        """Settle every ready message; how many."""
        queue = vhost.queue(name)
        check_owner(queue, owner)
        if queue.rules.kind == STREAM:
            raise NotForStreams(f"queue.purge not supported by stream queues {queue.where}")
        live = await queue.wake()
        count = live.purge()
        await live.journal.write_safely()
        return count

    async def _delete(self, vhost: VirtualHost, queue: Queue) -> None:
        self._forget(vhost, queue)
        await self._routing.destination_gone(vhost, Destination(queue.name))
        # The topic before the row: left alone, its messages would be the next queue's of that name.
        if queue.adopted:
            topic = self.topics.find(queue.topic)
            if topic is not None:
                self.store.delete_journals(topic.id, PURPOSE)
        elif self.topics.find(queue.topic) is not None:
            await self._drop_topic(queue.topic)
        await self._catalogue.delete(queue.row)

    def apply_policies(self, vhost: VirtualHost) -> None:
        """Policies have changed: every queue follows."""
        for queue in vhost.queues.values():
            rules, policy = self._rules(queue.row)
            queue.reconfigure(rules, policy)

    # --- topics -----------------------------------------------------------------------------------

    async def _with_topic(self, row: QueueRow, rules: QueueRules) -> QueueRow:
        """The row with the topic that holds the queue's messages, created if need be."""
        name = topic_of_queue(row.vhost, row.name)
        try:
            return await self._create_topic(row._replace(topic=name), rules)
        except InvalidTopicName:  # a topic whose name differs in `.` and `_` only is there
            other = cut_name(row.vhost, row.name)
            return await self._create_topic(row._replace(topic=other), rules)

    async def _create_topic(self, row: QueueRow, rules: QueueRules) -> QueueRow:
        config = {"cleanup.policy": "delete", "segment.bytes": str(_SEGMENT_BYTES)}
        config["retention.ms"] = str(-1 if rules.retention_ms is None else rules.retention_ms)
        if rules.retention_bytes is not None:
            config["retention.bytes"] = str(rules.retention_bytes)
        if not row.durable:
            config["penstock.durability"] = "os"
        try:
            await self.topics.create(row.topic, partitions=1, config=config)
        except TopicExists:
            topic = self.topics.get(row.topic)
            if row.topic in self._by_topic:
                raise InvalidTopicName(f"topic {row.topic} is another queue's") from None
            if topic.partition_count != 1 and rules.kind != STREAM:
                raise PreconditionFailed(
                    f"topic '{topic.name}' has {topic.partition_count} partitions; a queue is one "
                    "partition: read the topic as a stream (x-queue-type), or with a share group"
                ) from None
            return row._replace(adopted=True)
        return row

    async def _drop_topic(self, name: str) -> None:
        topic = self.topics.get(name)
        await self.topics.delete(name)
        self.store.delete_journals(topic.id)

    async def _topic_deleted(self, topic: Topic) -> None:
        """Somebody deleted the topic of a queue: the queue goes, too."""
        queue = self._by_topic.get(topic.name)
        if queue is not None:
            vhost = self._vhosts[queue.vhost]
            self._forget(vhost, queue)
            await self._routing.destination_gone(vhost, Destination(queue.name))
            await self._catalogue.delete(queue.row)
        self.store.delete_journals(topic.id)

    # --- inside -----------------------------------------------------------------------------------

    def _rules(self, row: QueueRow) -> tuple[QueueRules, str | None]:
        policy = self._policies.fitting(row.vhost, row.name, QUEUES)
        definition = policy.definition if policy is not None else {}
        return rules_of(row.arguments, definition), policy.name if policy is not None else None

    def _remember(self, vhost: VirtualHost, row: QueueRow, owner: object) -> Queue:
        rules, policy = self._rules(row)
        queue = Queue(self, row, rules, owner if row.exclusive else None)
        queue.policy = policy
        vhost.queues[row.name] = queue
        self._by_topic[row.topic] = queue
        vhost.exchanges.changed()
        return queue

    def _forget(self, vhost: VirtualHost, queue: Queue) -> None:
        vhost.queues.pop(queue.name, None)
        self._by_topic.pop(queue.topic, None)
        vhost.exchanges.changed()
        queue.close(deleted=True)

    def _never_used(self, queue: Queue) -> bool:
        """Whether the queue has no messages because its topic was never written to."""
        topic = self.topics.find(queue.topic)
        return topic is None or not self.partitions.has_data(topic, 0)

    # --- as the host of queues --------------------------------------------------------------------

    async def load(self, queue: Queue) -> LiveQueue:
        return await load_queue(queue)

    def bury(self, queue: Queue, letters: DeadLetters) -> None:
        self.dead_letters.bury(queue, letters)

    def bury_refused(self, queue: Queue, messages: Sequence[Message]) -> None:
        self.dead_letters.bury_refused(queue, messages)

    def delete_unused(self, queue: Queue) -> None:
        vhost = self._vhosts.get(queue.vhost)
        if vhost is None or vhost.queues.get(queue.name) is not queue:
            return
        # From this moment on it can neither be found nor routed to; whoever declares it again
        # waits until nothing of it is left.
        self._forget(vhost, queue)
        key = (vhost.name, queue.name)
        task = asyncio.get_running_loop().create_task(self._delete(vhost, queue))
        self._deleting[key] = task
        task.add_done_callback(lambda _: self._deleting.pop(key, None))
