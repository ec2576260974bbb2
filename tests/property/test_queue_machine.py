"""The queue machine against a naive one, under anything that can happen to a queue.

Publishing, delivering, acknowledging in any order, returning, rejecting, expiring, locks running
out, overflow, purges, checkpoints, and crashes that lose any number of the journal's last records.
"""

from __future__ import annotations

from itertools import pairwise

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.support.naive_queue import NaiveMessage, NaiveQueue

from penstock.machines.queue import Queue
from penstock.machines.queue_outcome import DeadLetters, Marks, Outcome
from penstock.model.queue_journal import Acked, Checkpoint, JournalRecord, decode, encode
from penstock.model.queue_settings import Overflow, QueueSettings
from support.effort import examples

HOLDERS = st.sampled_from(["a", "b"])


def maybe(strategy: st.SearchStrategy[int]) -> st.SearchStrategy[int | None]:
    return st.none() | strategy


@st.composite
def queue_settings(draw: st.DrawFn) -> QueueSettings:
    return QueueSettings(
        max_priority=draw(st.sampled_from([0, 0, 2, 255])),
        message_ttl_ms=draw(maybe(st.integers(0, 50))),
        max_length=draw(maybe(st.integers(0, 20))),
        max_length_bytes=draw(maybe(st.integers(0, 200))),
        overflow=Overflow.DROP_HEAD,
        dead_letters=draw(st.booleans()),
        delivery_limit=draw(maybe(st.integers(0, 3))),
        lock_ms=draw(maybe(st.integers(1, 40))),
    )


@st.composite
def messages(draw: st.DrawFn) -> tuple[int, int, int | None, int | None]:
    priority = draw(st.integers(0, 2))
    size = draw(st.integers(0, 30))
    expires_after = draw(st.none() | st.none() | st.integers(0, 60))
    due_after = draw(st.none() | st.none() | st.integers(1, 60))
    return priority, size, expires_after, due_after


class QueueAgainstNaive(RuleBasedStateMachine):
    @initialize(rules=queue_settings(), before=st.sampled_from([0, 0, 1015, 2040]))
    def start(self, rules: QueueSettings, before: int) -> None:
        """A new queue, or one whose first messages are done with, near the edge of a chunk."""
        self.rules = rules
        self.now_ms = 1_000_000
        self.naive = NaiveQueue(rules)
        self.journal: list[bytes] = []
        self.dying: list[DeadLetters] = []
        self.queue = Queue(rules)
        if before:
            settled = [NaiveMessage(at, 0, 0, 0, state="settled") for at in range(before)]
            self.naive.messages += settled
            self.keep(Acked(((0, before),)))
        self.queue.recovered()

    # --- what happens -----------------------------------------------------------------------------

    @rule(batch=st.lists(messages(), min_size=1, max_size=12), demand=st.integers(0, 3))
    def publish(self, batch: list[tuple[int, int, int | None, int | None]], demand: int) -> None:
        new = []
        for priority, size, expires_after, due_after in batch:
            due_ms = None if due_after is None else self.now_ms + due_after
            born_ms = due_ms or self.now_ms
            message = NaiveMessage(
                offset=len(self.naive.messages),
                priority=priority if self.rules.max_priority else 0,
                published_ms=self.now_ms,
                size=size,
                expires_ms=None if expires_after is None else born_ms + expires_after,
                due_ms=due_ms,
            )
            self.naive.publish(message)
            new.append(message)
        self.extend(new)
        self.perform(self.queue.make_room(demand))
        self.naive.make_room(demand)

    @rule(limit=st.integers(1, 10), holder=HOLDERS)
    def take(self, limit: int, holder: str) -> None:
        ranges = self.queue.take(limit, self.now_ms, holder)
        offsets = [offset for low, high in ranges for offset in range(low, high)]
        assert offsets == self.naive.take(limit, self.now_ms, holder)
        for offset in offsets:
            assert self.queue.delivery_count(offset) == self.naive.messages[offset].count

    @rule(data=st.data(), holder=HOLDERS)
    def ack(self, data: st.DataObject, holder: str) -> None:
        offsets = self.some_offsets(data)
        self.perform(self.queue.ack(offsets, holder))
        self.naive.ack(offsets, holder)

    @rule(data=st.data(), holder=HOLDERS, counted=st.booleans())
    def give_back(self, data: st.DataObject, holder: str, counted: bool) -> None:
        offsets = self.some_offsets(data)
        self.perform(self.queue.give_back(offsets, holder, counted=counted))
        self.naive.give_back(offsets, holder, counted)

    @rule(data=st.data(), holder=HOLDERS)
    def reject(self, data: st.DataObject, holder: str) -> None:
        offsets = self.some_offsets(data)
        self.perform(self.queue.reject(offsets, holder))
        self.naive.reject(offsets, holder)

    @rule(milliseconds=st.integers(1, 40))
    def time_passes(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        due_ms = self.queue.next_ms()
        before = [message.state for message in self.naive.messages]
        self.perform(self.queue.tick(self.now_ms))
        self.naive.tick(self.now_ms)
        if before != [message.state for message in self.naive.messages]:
            assert due_ms is not None, "something happened of which the queue had not warned"
            assert due_ms <= self.now_ms

    @rule()
    def purge(self) -> None:
        record = self.queue.purge()
        if record is not None:
            self.keep(record)
        self.naive.purge()

    @rule()
    def bury_the_dead(self) -> None:
        for letters in self.dying:
            self.keep(self.queue.bury(letters.ranges))
            for low, high in letters.ranges:
                self.naive.bury(range(low, high))
        self.dying.clear()

    @rule()
    def note_deliveries(self) -> None:
        record = self.queue.handed()
        if record is not None:
            self.keep(record)

    @rule()
    def checkpoint(self) -> None:
        self.note_deliveries()
        self.journal = [encode(self.queue.checkpoint())]

    @rule(lost=st.integers(0, 3))
    def crash(self, lost: int) -> None:
        if lost and len(self.journal) > lost:
            del self.journal[-lost:]
        records = [decode(data) for data in self.journal]
        self.dying.clear()
        self.naive.crash(records)
        self.queue = Queue(self.rules)
        for record in records:
            self.queue.apply(record)
        assert self.queue.state.orphans(len(self.naive.messages)) is None
        self.queue.recovered()
        self.extend(self.naive.messages[self.queue.state.floor :])
        # A restart begins with what the time did meanwhile.
        self.perform(self.queue.tick(self.now_ms))
        self.naive.tick(self.now_ms)

    # --- what must be so --------------------------------------------------------------------------

    @invariant()
    def both_agree(self) -> None:
        if not hasattr(self, "queue"):
            return
        queue, naive = self.queue, self.naive
        assert queue.ready == len(naive.those("ready"))
        assert queue.delivered == len(naive.those("delivered"))
        assert queue.held == len(naive.those("held"))
        assert queue.dying == len(naive.those("dying"))
        if self.rules.max_length_bytes is not None:
            assert queue.ready_bytes == sum(m.size for m in naive.those("ready"))
        unsettled = [m.offset for m in naive.messages if m.state != "settled"]
        assert queue.state.floor == min(unsettled, default=len(naive.messages))
        assert [at for at, _ in queue.state.unsettled_places(len(naive.messages))] == unsettled

    # --- inside -----------------------------------------------------------------------------------

    def some_offsets(self, data: st.DataObject) -> list[int]:
        """Mostly delivered ones, in any order, but also nonsense."""
        delivered = [message.offset for message in self.naive.those("delivered")]
        known = [message.offset for message in self.naive.messages]
        if not known:
            return []
        pool = st.sampled_from(delivered) if delivered else st.sampled_from(known)
        return data.draw(st.lists(pool | st.sampled_from(known), max_size=8))

    def extend(self, new: list[NaiveMessage]) -> None:
        """As the service would: one call for each publish, which have their own times."""
        for start in range(0, len(new)):
            if start and new[start].published_ms == new[start - 1].published_ms:
                continue
            batch = [m for m in new[start:] if m.published_ms == new[start].published_ms]
            assert all(a.offset + 1 == b.offset for a, b in pairwise(batch))
            self.queue.extend(
                batch[-1].offset + 1,
                batch[0].published_ms,
                Marks(
                    bytes(m.priority for m in batch),
                    [(m.offset, m.expires_ms) for m in batch if m.expires_ms is not None],
                    [(m.offset, m.due_ms) for m in batch if m.due_ms is not None],
                    [m.size for m in batch],
                ),
            )

    def perform(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self.keep(record)
        self.dying += outcome.dead

    def keep(self, record: JournalRecord) -> None:
        assert not isinstance(record, Checkpoint)
        self.queue.apply(record)
        self.journal.append(encode(record))


TestQueueAgainstNaive = QueueAgainstNaive.TestCase
TestQueueAgainstNaive.settings = hypothesis_settings(
    max_examples=examples(100), stateful_step_count=40
)
