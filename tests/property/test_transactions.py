"""Transactions under any order of requests, repeats, time-outs, crashes and replays.

One transactional id, three partitions. Producer instances come and go and send what real ones
send; the coordinator may crash before or after it has kept a record, and markers are written one
partition at a time. Every batch carries the number of the transaction its producer believed it was
in, so the logs of the partitions can be judged in the end:

- a transaction has one outcome, the same in every partition, and the one its producer was told;
- no marker ends batches of two transactions;
- no instance writes once a newer one has been given its epoch;
- what is replayed is what was live.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from penstock.errors import BrokerError, ConcurrentTransactions
from penstock.machines.producers import NO_GUARD, ProducerStates
from penstock.machines.transaction_commands import (
    AbortIfOutOfTime,
    AddPartitions,
    Command,
    CompleteTransaction,
    EndTransaction,
    InitProducer,
    ProducerIdentity,
    Reply,
    Verification,
    VerifyPartitions,
    WriteMarkers,
)
from penstock.machines.transactions import LAST_EPOCH, Transaction
from penstock.model.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from penstock.model.ids import TopicPartition
from penstock.model.transaction_topic import TransactionForgotten, decode_value, encode_value
from support.effort import examples

PLACES = [TopicPartition("t", number) for number in range(3)]
SOME_PLACES = st.lists(st.sampled_from(PLACES), min_size=1, max_size=4)
TIMEOUT_MS = 1_000
CRASHES = st.sampled_from([""] * 8 + ["before", "after"])
ENDED = st.sampled_from(["", "", "by the clock", "by the producer"])
RARELY = st.integers(0, 9).map(lambda number: number == 9)
# Mostly the newest instance does something; sometimes one that should have been fenced.
WHICH = st.sampled_from([-1] * 6 + [-2, -2, -3])


class Crashed(Exception):
    """The coordinator died while it handled a request; its client hears nothing."""


@dataclass
class Partition:
    """A log of headers, tagged with the transaction their producer was in, or with a marker."""

    producers: ProducerStates = field(default_factory=ProducerStates)
    log: list[tuple[BatchHeader, int | bool]] = field(default_factory=list)

    def append(self, header: BatchHeader, transaction: int) -> None:
        header = header._replace(base_offset=len(self.log))
        self.producers.apply(header, 0)
        self.log.append((header, transaction))

    def mark(self, markers: WriteMarkers) -> None:
        producer_id, epoch, commit, _ = markers
        self.producers.check_marker(producer_id, epoch, 0)
        attributes = TRANSACTIONAL_FLAG | CONTROL_FLAG
        header = BatchHeader(
            len(self.log), 78, 0, 2, 0, attributes, 0, 0, 0, producer_id, epoch, -1, 1
        )
        self.producers.apply_marker(header, commit, 0, 0)
        self.log.append((header, commit))

    def replay(self) -> ProducerStates:
        producers = ProducerStates()
        for header, entry in self.log:
            if isinstance(entry, bool):
                producers.apply_marker(header, entry, 0, 0)
            else:
                producers.apply(header, 0)
        return producers

    def outcomes(self) -> dict[int, set[bool | None]]:
        """What became of each transaction here; None while it is open."""
        found: dict[int, set[bool | None]] = {}
        running: dict[int, set[int]] = {}
        for header, entry in self.log:
            if isinstance(entry, bool):
                ended = running.pop(header.producer_id, set())
                assert len(ended) <= 1, f"one marker ended transactions {ended}"
                for transaction in ended:
                    found.setdefault(transaction, set()).add(entry)
            else:
                running.setdefault(header.producer_id, set()).add(entry)
        for transactions in running.values():
            for transaction in transactions:
                found.setdefault(transaction, set()).add(None)
        return found


@dataclass
class Instance:
    """A running producer, as far as it knows."""

    number: int
    version: int
    identity: ProducerIdentity
    transaction: int
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    wrote: bool = False
    stuck: bool = False  # got an answer after which a real producer gives up or initialises


class TransactionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 10_000
        self.journal: list[bytes | None] = []
        self.transaction = Transaction("t")
        self.partitions = {place: Partition() for place in PLACES}
        self.to_mark: list[TopicPartition] = []
        self.instances: list[Instance] = []
        self.newest = -1  # the instance that was last given an identity
        self.last_transaction = 0
        self.last_producer_id = 0
        self.told: dict[int, set[bool]] = {}  # what clients were told about each transaction
        self.asked: dict[int, set[bool]] = {}  # what they asked for
        self.sent: list[EndTransaction] = []  # by clients of transactions v2: may arrive again

    # --- the coordinator, without a loop ----------------------------------------------------------

    def ask(self, command: Command, *, crash: str = "") -> Reply:
        if isinstance(command, InitProducer | EndTransaction | AbortIfOutOfTime):
            self.last_producer_id += 1
            command = command._replace(fresh_producer_id=self.last_producer_id)
        verdict = self.transaction.decide(command, self.now)
        if verdict.records and crash == "before":
            self.crash()
            raise Crashed
        for record in verdict.records:
            self.journal.append(
                None if isinstance(record, TransactionForgotten) else encode_value(record)
            )
        if verdict.records and crash == "after":
            self.crash()
            raise Crashed
        for record in verdict.records:
            self.transaction.apply(record)
        for markers in verdict.effects:
            assert not self.to_mark
            self.to_mark = list(markers.partitions)
        if isinstance(verdict.reply, BrokerError):
            raise verdict.reply
        return verdict.reply

    def complete(self) -> None:
        """All that is left to do for the transaction whose end is decided."""
        markers = self.transaction.unfinished
        if markers is None:
            return
        for place in self.to_mark:
            self.partitions[place].mark(markers)
        self.to_mark = []
        self.ask(CompleteTransaction())

    def ask_patiently(self, command: Command, *, crash: str = "") -> Reply:
        try:
            return self.ask(command, crash=crash)
        except ConcurrentTransactions:
            self.complete()
            return self.ask(command, crash=crash)

    @rule(lose=st.booleans())
    def power_loss(self, lose: bool) -> None:
        """A completion at the end of the journal may be lost: nobody waits for it to be durable."""
        last = self.journal[-1] if self.journal else None
        if lose and last is not None and decode_value(last).status.label.startswith("Complete"):
            self.journal.pop()
        self.crash()

    def crash(self) -> None:
        """Everything volatile is gone; the journal and the logs are not."""
        self.transaction = Transaction("t")
        for value in self.journal:
            self.transaction.apply(TransactionForgotten() if value is None else decode_value(value))
        for partition in self.partitions.values():
            partition.producers = partition.replay()
        markers = self.transaction.unfinished
        self.to_mark = list(markers.partitions) if markers is not None else []

    # --- producers --------------------------------------------------------------------------------

    def new_transaction(self) -> int:
        self.last_transaction += 1
        return self.last_transaction

    @rule(version=st.sampled_from([0, 2]), crash=CRASHES)
    def start_instance(self, version: int, crash: str) -> None:
        if len(self.instances) >= 5:
            self.instances.pop(0)
        try:
            reply = self.ask_patiently(InitProducer(TIMEOUT_MS), crash=crash)
        except Crashed:
            return
        self.newest += 1
        identity = cast(ProducerIdentity, reply)
        self.instances.append(Instance(self.newest, version, identity, self.new_transaction()))

    def pick(self, index: int) -> Instance:
        """The newest (-1) or an older instance; a newest that gave up is started again."""
        if index == -1 and (not self.instances or self.instances[-1].stuck):
            self.start_instance(self.instances[-1].version if self.instances else 2, "")
        return self.instances[max(index, -len(self.instances))]

    @precondition(lambda self: self.instances)
    @rule(index=WHICH, crash=CRASHES)
    def resume_instance(self, index: int, crash: str) -> None:
        """KIP-360: the producer had an error and asks for its next epoch."""
        instance = self.pick(index)
        try:
            reply = self.ask_patiently(InitProducer(TIMEOUT_MS, *instance.identity), crash=crash)
        except Crashed:
            return
        except BrokerError:
            instance.stuck = True
            return
        assert instance.number == self.newest, "an old instance was let back in"
        instance.identity = cast(ProducerIdentity, reply)
        instance.transaction, instance.wrote = self.new_transaction(), False
        instance.sequences = {}
        instance.stuck = False

    @rule(places=SOME_PLACES, late=st.sampled_from([0, 0, 1, 2]))
    def produce_some(self, places: list[TopicPartition], late: int) -> None:
        instance = self.pick(-1)
        for place in places:
            self.produce(instance, place)
        if late and self.sent:  # while that transaction is open, an end of an earlier one arrives
            self.late_end(late)

    @rule(places=SOME_PLACES, commit=st.booleans(), crash=CRASHES)
    def whole_transaction(self, places: list[TopicPartition], commit: bool, crash: str) -> None:
        instance = self.pick(-1)
        for place in places:
            self.produce(instance, place)
        self.end_transaction(instance, commit, crash)

    @precondition(lambda self: self.instances)
    @rule(index=WHICH, place=st.sampled_from(PLACES), crash=CRASHES, ended=ENDED)
    def produce_in_trouble(self, index: int, place: TopicPartition, crash: str, ended: str) -> None:
        self.produce(self.pick(index), place, crash, ended)

    def produce(
        self,
        instance: Instance,
        place: TopicPartition,
        crash: str = "",
        ended: str = "",
    ) -> None:
        if instance.stuck:
            return
        producer_id, epoch = instance.identity
        partition = self.partitions[place]
        sequence = instance.sequences.get(place, 0)
        header = BatchHeader(
            0, 78, 0, 2, 0, TRANSACTIONAL_FLAG, 0, 0, 0, producer_id, epoch, sequence, 1
        )
        v2 = instance.version == 2
        try:
            if not v2:
                self.ask_patiently(AddPartitions(producer_id, epoch, (place,)), crash=crash)
            guard = partition.producers.begin_verification(
                producer_id, epoch, sequence, self.now, starts_at_zero=v2
            )
            if guard != NO_GUARD and v2:
                self.ask_patiently(AddPartitions(producer_id, epoch, (place,), 2), crash=crash)
            elif guard != NO_GUARD:
                found = self.ask_patiently(VerifyPartitions(producer_id, epoch, (place,)))
                refusal = cast(Verification, found)[place]
                if refusal is not None:
                    raise refusal
            if ended:  # between the coordinator's yes and the append
                self.end_meanwhile(instance, ended)
            partition.producers.check(header, guard=guard)
        except Crashed:
            return
        except BrokerError:
            instance.stuck = True
            return
        assert instance.number == self.newest, "a fenced instance has written"
        assert ended != "by the producer", "a batch came in behind the end of its transaction"
        partition.append(header, instance.transaction)
        instance.sequences[place] = sequence + 1
        instance.wrote = True

    def end_meanwhile(self, instance: Instance, ended: str) -> None:
        if ended == "by the clock":
            self.now += 2 * TIMEOUT_MS
            self.ask(AbortIfOutOfTime())
        else:
            self.asked.setdefault(instance.transaction, set()).add(True)
            self.ask(EndTransaction(*instance.identity, True, instance.version))
        self.complete()

    @precondition(lambda self: self.instances)
    @rule(
        index=WHICH,
        commit=st.booleans(),
        crash=CRASHES,
        lost=RARELY,
    )
    def end(self, index: int, commit: bool, crash: str, lost: bool) -> None:
        self.end_transaction(self.pick(index), commit, crash, lost)

    def end_transaction(
        self, instance: Instance, commit: bool, crash: str = "", lost: bool = False
    ) -> None:
        if instance.stuck:
            return
        command = EndTransaction(*instance.identity, commit, instance.version)
        self.asked.setdefault(instance.transaction, set()).add(commit)
        if instance.version == 2:
            self.sent.append(command)
        for attempt in (crash, ""):  # a client that hears nothing asks once more
            try:
                reply = self.ask(command, crash=attempt)
                break
            except ConcurrentTransactions:
                self.complete()
            except Crashed:
                self.complete()
            except BrokerError:
                instance.stuck = True
                return
        else:
            return
        if lost:  # and never hears anything: it may still repeat the request later
            instance.stuck = True
            return
        self.told.setdefault(instance.transaction, set()).add(commit)
        identity = cast(ProducerIdentity, reply)
        if instance.version == 2:
            if identity != instance.identity:
                instance.sequences = {}
            instance.identity = identity
        instance.transaction, instance.wrote = self.new_transaction(), False

    @precondition(lambda self: self.sent)
    @rule(back=st.sampled_from([1, 1, 1, 2, 3]))
    def late_end(self, back: int) -> None:
        """A request of transactions v2 that was under way for long arrives again."""
        with contextlib.suppress(BrokerError):
            self.ask(self.sent[-min(back, len(self.sent))])

    # --- time and markers -------------------------------------------------------------------------

    @precondition(lambda self: self.transaction.is_out_of_time(self.now + 2 * TIMEOUT_MS))
    @rule(passed=st.sampled_from([1, TIMEOUT_MS // 2, 2 * TIMEOUT_MS]))
    def pass_time(self, passed: int) -> None:
        self.now += passed
        self.ask(AbortIfOutOfTime())

    @initialize(version=st.sampled_from([0, 2]), old=st.booleans())
    def first_instance(self, version: int, old: bool) -> None:
        self.start_instance(version, "")
        if old:
            self.use_up_epochs()
            self.start_instance(version, "")

    def use_up_epochs(self) -> None:
        """As if the id had lived long: the next epochs are the last there are."""
        state = self.transaction.state
        assert state is not None
        moved = state._replace(producer_epoch=LAST_EPOCH - 4)
        self.journal.append(encode_value(moved))
        self.transaction.apply(moved)

    @precondition(lambda self: self.to_mark)
    @rule(index=st.integers(0, 2), again=RARELY)
    def write_one_marker(self, index: int, again: bool) -> None:
        markers = self.transaction.unfinished
        assert markers is not None
        place = self.to_mark[index % len(self.to_mark)]
        self.partitions[place].mark(markers)
        if not again:  # else it is written a second time, as after a crash
            self.to_mark.remove(place)

    @rule()
    def finish(self) -> None:
        self.complete()

    # --- judgement --------------------------------------------------------------------------------

    @invariant()
    def replayed_state_is_live_state(self) -> None:
        replayed = Transaction("t")
        for value in self.journal:
            replayed.apply(TransactionForgotten() if value is None else decode_value(value))
        live = self.transaction.state
        assert replayed.state == (live and live._replace(last_epoch=-1))  # not in Kafka's record
        for partition in self.partitions.values():
            assert partition.replay().snapshot() == partition.producers.snapshot()

    @invariant()
    def every_transaction_has_one_outcome(self) -> None:
        outcomes: dict[int, set[bool | None]] = {}
        for partition in self.partitions.values():
            for transaction, found in partition.outcomes().items():
                outcomes.setdefault(transaction, set()).update(found)
        for transaction, found in outcomes.items():
            decided = found - {None}
            assert len(decided) <= 1, f"transaction {transaction} ended as {found}"
            if True in decided:
                assert True in self.asked.get(transaction, ()), f"nobody committed {transaction}"
            told = self.told.get(transaction, set())
            assert len(told) <= 1
            assert not told or decided <= told, f"{transaction}: told {told}, found {found}"

    def teardown(self) -> None:
        self.complete()
        self.now += 10 * TIMEOUT_MS
        if self.transaction.state is not None:
            self.ask(AbortIfOutOfTime())
        self.complete()
        for partition in self.partitions.values():
            assert partition.producers.describe() == [] or all(
                producer.transaction_offset == -1 for producer in partition.producers.describe()
            ), "a transaction was left open"
            for found in partition.outcomes().values():
                assert None not in found
        self.every_transaction_has_one_outcome()


TransactionsMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=50)
TestTransactions = TransactionsMachine.TestCase
