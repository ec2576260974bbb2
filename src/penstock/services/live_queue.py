"""A queue at work: its machine, its log, its journal and its consumers.

Everything happens on the event loop. Publishing appends to the log; when the messages are safe, the
log rings, and the queue takes them in and deals them out to the consumers that wait:

    publish ─► log ─ safe ─► pump: take in, expire, make room, deal out ─► subscription ─► ack
                                │                                              │
                                └────────────── journal ◄──────────────────────┘

A message is safe when `replica.when_safe` says so, and nobody is shown it before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.errors import AccessRefused, StorageError
from penstock.machines.queue import Queue as Machine
from penstock.machines.queue_consumers import Consumer, Consumers
from penstock.machines.queue_outcome import Outcome
from penstock.model.offset_ranges import Range, as_ranges
from penstock.model.queue_arguments import QueueRules
from penstock.model.queue_journal import SETTLING, Acked, JournalRecord, Moved
from penstock.model.queue_record import Message
from penstock.model.queue_settings import Overflow, QueueSettings
from penstock.model.records import Headers
from penstock.runtime.clock import Clock
from penstock.runtime.timer import Timer
from penstock.services.queue_admission import Admission
from penstock.services.queue_journal import QueueJournal
from penstock.services.queue_log import QueueLog
from penstock.services.queue_reader import QueueReader
from penstock.services.subscription import Delivery, Subscription

if TYPE_CHECKING:
    from penstock.services.queue import Queue

_BY_TURNS = 64  # more messages than that are dealt out in equal parts, which costs less
_SEEN_EVERY = 65_536  # messages, after which it is noted how far they were looked at
_NONE: tuple[int, ...] = ()


class Enqueued(NamedTuple):
    """What became of messages given to a queue."""

    future: asyncio.Future[Any] | None  # done when they are safe; None: they are
    refused: Sequence[int] = _NONE  # indexes of those the queue did not take
    failure: StorageError | None = None  # why none could be written


class _Bell(asyncio.Event):
    """Rung by the replica when readers may see more."""

    def __init__(self, live: LiveQueue) -> None:
        super().__init__()
        self._live = live

    def set(self) -> None:
        self._live.wake()


class LiveQueue:
    """One queue that is in use. Made by `Queue.wake`."""

    def __init__(
        self,
        queue: Queue,
        machine: Machine,
        log: QueueLog,
        journal: QueueJournal,
        admission: Admission,
        clock: Clock,
    ) -> None:
        self.queue = queue
        self.name = queue.name
        self.machine = machine
        self.log = log
        self.journal = journal
        self.reader = QueueReader(machine.state, log, queue.rules.shows_counts)
        self.admission = admission
        self.consumers = Consumers(single_active=machine.settings.single_active_consumer)
        self.is_closed = False
        self.used_ms = clock.now_ms()
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._subscriptions: dict[Consumer, Subscription] = {}
        self._scheduled = False
        self._fetching: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._timer = Timer(clock, self.wake)
        self._unseen = 0
        self._bell = _Bell(self)
        log.replica.watch(self._bell)
        self.wake()

    def __repr__(self) -> str:
        return f"<LiveQueue {self.name!r} {self.machine!r}>"

    @property
    def settings(self) -> QueueSettings:
        return self.machine.settings

    # --- publishing -------------------------------------------------------------------------------

    def publish(
        self,
        messages: Sequence[Message],
        dues: Sequence[int | None] | None = None,
        extras: Sequence[Headers | None] | None = None,
    ) -> Enqueued:
        """Append messages; those that the queue has no room for are refused."""
        now_ms = self._clock.now_ms()
        everything = range(len(messages))
        refused: Sequence[int] = _NONE
        if not self.admission.is_simple:
            kept, refused = self.admission.select(messages, extras, now_ms)
            if kept is not None:
                self._refuse([messages[at] for at in refused])
                messages = [messages[at] for at in kept]
                dues = dues and [dues[at] for at in kept]
                extras = extras and [extras[at] for at in kept]
                if not messages:
                    return Enqueued(None, refused)
        keep = len(self.consumers) > 0
        try:
            appended = self.log.append(
                messages, now_ms, self.machine.settings, dues=dues, extras=extras, keep=keep
            )
        except StorageError as failure:
            self.admission.not_taken(messages, extras)
            return Enqueued(None, everything, failure)
        self.admission.appended(appended.base_offset, messages)
        self.queue.published += len(messages)
        self.used_ms = now_ms
        return Enqueued(self.log.replica.when_safe(appended.end_offset), refused)

    def _refuse(self, messages: Sequence[Message]) -> None:
        if messages and self.machine.settings.overflow is Overflow.REJECT_PUBLISH_DLX:
            self.queue.host.bury_refused(self.queue, messages)

    # --- the pump ---------------------------------------------------------------------------------

    def wake(self) -> None:
        """Look after the queue in the next turn of the loop."""
        if not self._scheduled and not self.is_closed:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        if self.is_closed:
            return
        self._tick()
        end = self.log.replica.last_stable_offset
        if end > self.machine.state.end:
            self._take_in(end)
        self._deal()
        # Messages that live no time at all were dealt to those who waited; now the others go.
        self._timer.set(self.machine.next_ms())
        self._tick()
        settings = self.machine.settings
        if settings.max_length is not None or settings.max_length_bytes is not None:
            self._perform(self.machine.make_room(self.consumers.demand()))
        if self.journal.wants_checkpoint:
            self.checkpoint()

    def _take_in(self, end: int) -> None:
        machine = self.machine
        for arrival in self.log.arrivals(machine.state.end, end, machine.settings):
            if arrival is None:
                if self._fetching is None:
                    self._fetching = self._loop.create_task(self._fetch(machine.state.end, end))
                return
            machine.extend(arrival.high, arrival.time_ms, arrival.marks)
            if arrival.skipped:
                self._record(Acked(tuple(arrival.skipped)))
            self._unseen += arrival.high - arrival.low
        if self._unseen >= _SEEN_EVERY:
            self._unseen = 0
            self.journal.add(machine.seen())

    async def _fetch(self, low: int, high: int) -> None:
        try:
            await self.log.fetch(low, high)
        finally:
            self._fetching = None
            self.wake()

    def _deal(self) -> None:
        """Give ready messages to the consumers that wait, in turn."""
        machine, consumers = self.machine, self.consumers
        ready = machine.ready
        left = share = priority = 0
        while ready:
            taker = consumers.next_taker()
            if taker is None:
                return
            if not left or taker.priority != priority:  # another round: one each, as all expect
                left, priority = consumers.peers(taker), taker.priority
                share = 1 if ready <= _BY_TURNS and left > 1 else -(-ready // left)
            left -= 1
            holder = self._subscriptions[taker]
            now_ms = self._clock.now_ms() if machine.settings.lock_ms is not None else 0
            ranges = machine.take(min(taker.room, share), now_ms, holder)
            consumers.gave(taker, sum(high - low for low, high in ranges), settled=holder.no_ack)
            holder.assign(ranges)
            self.journal.touch()
            ready = machine.ready

    def _tick(self) -> None:
        due_ms = self._timer.due_ms
        if due_ms is not None:
            now_ms = self._clock.now_ms()
            if due_ms <= now_ms:
                self._perform(self.machine.tick(now_ms))
                self._timer.set(self.machine.next_ms())

    # --- consumers --------------------------------------------------------------------------------

    def subscribe(
        self, tag: str, *, no_ack: bool, exclusive: bool, prefetch: int, priority: int
    ) -> Subscription:
        """A new consumer; AccessRefused when the queue is somebody's alone."""
        consumer = Consumer(
            tag, priority=priority, exclusive=exclusive, prefetch=0 if no_ack else prefetch
        )
        try:
            self.consumers.add(consumer)
        except AccessRefused:
            raise AccessRefused(
                f"queue '{self.name}' in vhost '{self.queue.vhost}' in exclusive use"
            ) from None
        subscription = self._subscriptions[consumer] = Subscription(self, consumer, no_ack=no_ack)
        self.queue.used()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """The consumer goes; it keeps what it took."""
        rest = subscription.lose()
        if rest:
            self.give_back_unseen(subscription, rest)
        self.consumers.remove(subscription.consumer)
        self._subscriptions.pop(subscription.consumer, None)
        self.used_ms = self._clock.now_ms()
        if not self.consumers:
            self.log.pages.clear()
            self.queue.last_consumer_left()
        self.wake()

    def want(self, subscription: Subscription, count: int) -> None:
        """The consumer would like messages; they are assigned to it now, or when it is its turn."""
        if subscription.consumer not in self._subscriptions:
            return
        self.consumers.want(subscription.consumer, count)
        if count:
            self._tick()
            self._deal()
            self._watch_locks()

    def _watch_locks(self) -> None:
        """Deliveries come back by themselves when their time is up: be there."""
        if self.machine.settings.lock_ms is not None:
            self._timer.set(self.machine.next_ms())

    # --- taking -----------------------------------------------------------------------------------

    def open(
        self, reserved: Sequence[Range], limit: int, max_bytes: int, holder: Subscription | None
    ) -> tuple[list[Delivery], list[Range]]:
        """Deliveries of reserved messages as far as they are at hand; and the rest."""
        taken, rest, missing = self.reader.open(reserved, limit, max_bytes)
        self.queue.delivered += len(taken)
        if missing:
            self.forget_missing(missing, holder)
        return taken, rest

    def forget_missing(self, offsets: Sequence[int], holder: Subscription | None) -> None:
        """The log has no messages there (any more): nobody shall wait for them."""
        self._record(Acked(tuple(as_ranges(offsets))))
        self._settled(holder, len(offsets))

    def take_one(self, holder: object) -> int | None:
        """The offset of the next message, delivered to somebody who asked for one."""
        self.queue.used()
        self.used_ms = self._clock.now_ms()
        self._tick()
        ranges = self.machine.take(1, self.used_ms, holder)
        if not ranges:
            return None
        self.journal.touch()
        self._watch_locks()
        return ranges[0][0]

    # --- settling ---------------------------------------------------------------------------------

    def ack(self, offsets: Sequence[int], holder: Subscription | None) -> None:
        machine = self.machine
        for record in machine.ack(offsets, holder).records:
            self._record(record)
        self.log.pages.drop_below(machine.state.floor)
        self.queue.acknowledged += len(offsets)
        self._settled(holder, len(offsets))

    def requeue(self, offsets: Sequence[int], holder: Subscription | None) -> None:
        self._perform(self.machine.give_back(offsets, holder))
        self._settled(holder, len(offsets))

    def reject(self, offsets: Sequence[int], holder: Subscription | None) -> None:
        self._perform(self.machine.reject(offsets, holder))
        self._settled(holder, len(offsets))

    def give_back_unseen(self, holder: Subscription | None, ranges: Sequence[Range]) -> None:
        """What was reserved but not taken is as it was before."""
        offsets = [offset for low, high in ranges for offset in range(low, high)]
        self._perform(self.machine.give_back(offsets, holder, counted=False))
        self._settled(holder, len(offsets))

    def _settled(self, holder: Subscription | None, count: int) -> None:
        if holder is not None and not holder.no_ack:
            self.consumers.settled(holder.consumer, count)
        if self.machine.ready:
            self.wake()

    def purge(self) -> int:
        """Settle everything that is ready; how many that were."""
        count = self.machine.ready
        record = self.machine.purge()
        if record is not None:
            self._record(record)
        self.log.pages.clear()
        return count

    def bury(self, ranges: Sequence[Range]) -> None:
        """The copies of these dead letters are safe."""
        self._record(self.machine.bury(ranges))

    def moved(self, record: Moved) -> None:
        """The bytes of these messages lie elsewhere in the log now."""
        self._record(record)

    def reconfigure(self, rules: QueueRules) -> None:
        """The policy of the queue changed."""
        measures = self.machine.settings.max_length_bytes is not None
        self.machine.reconfigure(rules.settings)
        self.reader.shows_counts = rules.shows_counts
        if rules.settings.max_length_bytes is not None and not measures:
            self._measuring = self._loop.create_task(self._measure())
        self.wake()

    async def _measure(self) -> None:
        """A limit in bytes is new: find out how large the waiting messages are."""
        state = self.machine.state
        low, sizes = state.floor, list[int]()
        async for arrival in self.log.scan(low, state.end, self.machine.settings):
            sizes += arrival.marks.sizes or [0] * (arrival.high - arrival.low)
        # Messages that came meanwhile were measured when they came.
        self.machine.measure(low, sizes)
        self.wake()

    def _perform(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self._record(record)
        for letters in outcome.dead:
            self.queue.host.bury(self.queue, letters)

    def _record(self, record: JournalRecord) -> None:
        self.machine.apply(record)
        self.journal.add(record)
        if isinstance(record, SETTLING):
            self.admission.settled(record.ranges)

    def is_idle(self, since_ms: int) -> bool:
        """Whether nobody has used it since, and nothing would happen here by itself."""
        machine = self.machine
        busy = self.consumers or machine.delivered or machine.dying or self.log.pending
        return self.used_ms < since_ms and not busy and self._timer.due_ms is None

    # --- ending -----------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Make the journal short."""
        self.journal.write()
        self.journal.checkpoint(self.machine.checkpoint())

    def close(self, *, deleted: bool) -> None:
        """End every consumer; nothing happens here any more."""
        for subscription in list(self._subscriptions.values()):
            subscription.lose()
        if not deleted:
            self.checkpoint()
        self.is_closed = True
        self._subscriptions.clear()
        self.journal.close(write=not deleted)
        self.log.replica.unwatch(self._bell)
        self._timer.cancel()
        for task in (self._fetching, self._measuring):
            if task is not None:
                task.cancel()
