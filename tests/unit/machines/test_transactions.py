"""The transaction machine, step by step. What Kafka answers was asked of Apache Kafka 4.3."""

from __future__ import annotations

from typing import cast

import pytest

from penstock.errors import (
    BrokerError,
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    ProducerFenced,
    TransactionAbortable,
)
from penstock.machines.transaction_commands import (
    AbortIfOutOfTime,
    AddPartitions,
    Command,
    CompleteTransaction,
    EndTransaction,
    ForgetIfIdle,
    InitProducer,
    ProducerIdentity,
    Verdict,
    Verification,
    VerifyPartitions,
    WriteMarkers,
)
from penstock.machines.transactions import LAST_EPOCH, Transaction
from penstock.model.ids import TopicPartition
from penstock.model.transaction_topic import TransactionChanged, TransactionStatus

T = TransactionStatus
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
PID, FRESH = 7, 8
CLASSIC, V2 = 0, 2


class Coordinator:
    """The machine under a clock: decides, applies, and keeps what it was told to do."""

    def __init__(self) -> None:
        self.transaction = Transaction("billing")
        self.now = 1_000
        self.markers: list[WriteMarkers] = []

    def ask(self, command: Command) -> Verdict:
        before = self.transaction.state
        verdict = self.transaction.decide(command, self.now)
        assert self.transaction.state is before, "decide changes nothing"
        for record in verdict.records:
            self.transaction.apply(record)
        self.markers += verdict.effects
        if isinstance(verdict.reply, BrokerError):
            raise verdict.reply
        return verdict

    @property
    def state(self) -> TransactionChanged:
        assert self.transaction.state is not None
        return self.transaction.state

    @property
    def status(self) -> TransactionStatus:
        return self.state.status

    def init(
        self, producer_id: int = -1, epoch: int = -1, timeout_ms: int = 100
    ) -> tuple[int, int]:
        fresh = PID if self.transaction.state is None else FRESH
        verdict = self.ask(InitProducer(timeout_ms, producer_id, epoch, fresh))
        return cast(ProducerIdentity, verdict.reply)

    def add(
        self,
        *partitions: TopicPartition,
        pid: int = PID,
        epoch: int | None = None,
        v: int = CLASSIC,
    ) -> Verdict:
        epoch = self.state.producer_epoch if epoch is None else epoch
        return self.ask(AddPartitions(pid, epoch, partitions, v))

    def end(
        self, *, commit: bool, pid: int = PID, epoch: int | None = None, v: int = CLASSIC
    ) -> tuple[int, int]:
        epoch = self.state.producer_epoch if epoch is None else epoch
        return cast(ProducerIdentity, self.ask(EndTransaction(pid, epoch, commit, v, FRESH)).reply)

    def complete(self) -> None:
        self.ask(CompleteTransaction())

    def use_up_epochs(self) -> None:
        self.transaction.apply(self.state._replace(producer_epoch=LAST_EPOCH))


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
def ready(coordinator: Coordinator) -> Coordinator:
    """Initialised, epoch 0."""
    coordinator.init()
    return coordinator


@pytest.fixture
def ongoing(ready: Coordinator) -> Coordinator:
    """A classic transaction with two partitions."""
    ready.add(A0, B0)
    return ready


# --- the classic flow -----------------------------------------------------------------------------


def test_a_new_transactional_id_gets_the_fresh_producer_id_and_epoch_zero(
    coordinator: Coordinator,
) -> None:
    assert coordinator.init() == (PID, 0)
    assert coordinator.status is T.EMPTY


def test_a_new_id_is_given_even_to_a_producer_that_knows_another_one(
    coordinator: Coordinator,
) -> None:
    assert coordinator.init(5, 7) == (PID, 0)


def test_every_new_instance_gets_the_next_epoch(ready: Coordinator) -> None:
    assert [ready.init(), ready.init()] == [(PID, 1), (PID, 2)]


def test_the_first_partitions_begin_the_transaction(ready: Coordinator) -> None:
    ready.now = 2_000
    ready.add(A0)
    assert (ready.status, ready.state.started_at_ms, ready.state.partitions) == (
        T.ONGOING,
        2_000,
        (A0,),
    )
    ready.now = 3_000
    ready.add(A1, A0)
    assert ready.state.started_at_ms == 2_000
    assert ready.state.partitions == (A0, A1)


def test_partitions_that_are_already_in_cost_no_record(ongoing: Coordinator) -> None:
    assert ongoing.add(B0, A0).records == ()


@pytest.mark.parametrize(
    ("commit", "prepared", "completed"),
    [(True, T.PREPARE_COMMIT, T.COMPLETE_COMMIT), (False, T.PREPARE_ABORT, T.COMPLETE_ABORT)],
)
def test_the_end_is_decided_then_marked_then_complete(
    ongoing: Coordinator, commit: bool, prepared: T, completed: T
) -> None:
    assert ongoing.end(commit=commit) == (PID, 0)
    assert ongoing.status is prepared
    assert ongoing.markers == [WriteMarkers(PID, 0, commit, (A0, B0))]
    assert ongoing.transaction.unfinished == ongoing.markers[0]
    ongoing.complete()
    assert ongoing.status is completed
    assert ongoing.state.partitions == ()
    assert ongoing.transaction.unfinished is None


def test_the_next_transaction_starts_with_no_partitions_of_the_last(ongoing: Coordinator) -> None:
    ongoing.end(commit=True)
    ongoing.complete()
    ongoing.add(A1)
    assert ongoing.state.partitions == (A1,)


def test_completing_twice_changes_nothing(ongoing: Coordinator) -> None:
    ongoing.end(commit=True)
    ongoing.complete()
    before = ongoing.state
    ongoing.complete()
    assert ongoing.state is before


def test_nothing_can_be_asked_while_markers_are_being_written(ongoing: Coordinator) -> None:
    ongoing.end(commit=True)
    for command in (
        InitProducer(100),
        AddPartitions(PID, 0, (A1,)),
        VerifyPartitions(PID, 0, (A0,)),
        EndTransaction(PID, 0, commit=True),
    ):
        with pytest.raises(ConcurrentTransactions):
            ongoing.ask(command)
    with pytest.raises(InvalidTxnState):
        ongoing.end(commit=False)


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_is_answered_again_and_the_opposite_refused(
    ongoing: Coordinator, commit: bool
) -> None:
    ongoing.end(commit=commit)
    ongoing.complete()
    assert ongoing.end(commit=commit) == (PID, 0)
    with pytest.raises(InvalidTxnState):
        ongoing.end(commit=not commit)
    assert len(ongoing.markers) == 1


@pytest.mark.parametrize("commit", [True, False])
def test_there_is_nothing_to_end_before_a_transaction(ready: Coordinator, commit: bool) -> None:
    with pytest.raises(InvalidTxnState):
        ready.end(commit=commit)


def test_partitions_of_the_ongoing_transaction_are_verified(ongoing: Coordinator) -> None:
    found = cast(Verification, ongoing.ask(VerifyPartitions(PID, 0, (A0, A1))).reply)
    assert found[A0] is None
    assert isinstance(found[A1], TransactionAbortable)


def test_no_partition_is_verified_after_the_end(ongoing: Coordinator) -> None:
    ongoing.end(commit=True)
    ongoing.complete()
    found = cast(Verification, ongoing.ask(VerifyPartitions(PID, 0, (A0,))).reply)
    assert isinstance(found[A0], TransactionAbortable)


# --- who may ask ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [CLASSIC, V2])
def test_an_unknown_transactional_id_belongs_to_no_producer(
    coordinator: Coordinator, version: int
) -> None:
    for command in (
        AddPartitions(PID, 0, (A0,)),
        VerifyPartitions(PID, 0, (A0,)),
        EndTransaction(PID, 0, True, version),
    ):
        with pytest.raises(InvalidProducerIdMapping):
            coordinator.ask(command)


@pytest.mark.parametrize("version", [CLASSIC, V2])
def test_another_producer_id_is_refused(ongoing: Coordinator, version: int) -> None:
    for command in (
        AddPartitions(99, 0, (A0,)),
        VerifyPartitions(99, 0, (A0,)),
        EndTransaction(99, 0, True, version),
    ):
        with pytest.raises(InvalidProducerIdMapping):
            ongoing.ask(command)
    with pytest.raises(ProducerFenced):
        ongoing.init(99, 0)


@pytest.mark.parametrize("version", [CLASSIC, V2])
@pytest.mark.parametrize("epoch", [-1, 1])
def test_another_epoch_is_fenced(ongoing: Coordinator, version: int, epoch: int) -> None:
    for command in (
        AddPartitions(PID, epoch, (A0,)),
        VerifyPartitions(PID, epoch, (A0,)),
        EndTransaction(PID, epoch, True, version),
    ):
        with pytest.raises(ProducerFenced):
            ongoing.ask(command)


def test_a_new_instance_aborts_what_its_predecessor_left_and_fences_it(
    ongoing: Coordinator,
) -> None:
    with pytest.raises(ConcurrentTransactions):
        ongoing.init()
    assert ongoing.markers == [WriteMarkers(PID, 1, False, (A0, B0))]
    ongoing.complete()
    assert ongoing.init() == (PID, 2)
    for commit in (True, False):
        for version in (CLASSIC, V2):
            with pytest.raises(ProducerFenced):
                ongoing.end(commit=commit, epoch=0, v=version)


def test_a_fenced_producer_cannot_abort_its_successors_transaction(ongoing: Coordinator) -> None:
    with pytest.raises(ConcurrentTransactions):
        ongoing.init()
    ongoing.complete()
    ongoing.init()
    ongoing.add(A1)
    for old in (0, 1):
        with pytest.raises(ProducerFenced):
            ongoing.init(PID, old)
    assert ongoing.status is T.ONGOING


# --- InitProducerId by a producer that knows who it was (KIP-360) ---------------------------------


def test_a_producer_may_move_its_own_epoch(ready: Coordinator) -> None:
    assert ready.init(PID, 0) == (PID, 1)


def test_a_repeated_move_gives_the_same_epoch(ready: Coordinator) -> None:
    ready.init(PID, 0)
    assert ready.init(PID, 0) == (PID, 1)
    assert ready.init(PID, 0) == (PID, 1)


def test_a_move_is_not_repeated_once_a_newer_instance_has_come(ready: Coordinator) -> None:
    ready.init(PID, 0)
    assert ready.init() == (PID, 2)
    for old in (0, 1):
        with pytest.raises(ProducerFenced):
            ready.init(PID, old)


def test_a_producer_that_aborts_its_own_transaction_by_initialising_goes_on(
    ongoing: Coordinator,
) -> None:
    with pytest.raises(ConcurrentTransactions):
        ongoing.init(PID, 0)
    ongoing.complete()
    assert ongoing.init(PID, 0) == (PID, 1)
    assert ongoing.init(PID, 1) == (PID, 2)


# --- time -----------------------------------------------------------------------------------------


def test_a_transaction_out_of_time_is_aborted_under_the_next_epoch(ongoing: Coordinator) -> None:
    ongoing.now = 1_100
    ongoing.ask(AbortIfOutOfTime())
    assert ongoing.status is T.ONGOING
    ongoing.now = 1_101
    ongoing.ask(AbortIfOutOfTime())
    assert ongoing.markers == [WriteMarkers(PID, 1, False, (A0, B0))]
    ongoing.complete()
    assert (ongoing.status, ongoing.state.producer_epoch) == (T.COMPLETE_ABORT, 1)


@pytest.mark.parametrize("commit", [True, False])
def test_a_classic_producer_out_of_time_is_fenced_but_may_resume(
    ongoing: Coordinator, commit: bool
) -> None:
    ongoing.now = 9_999
    ongoing.ask(AbortIfOutOfTime())
    ongoing.complete()
    with pytest.raises(ProducerFenced):
        ongoing.end(commit=commit, epoch=0)
    with pytest.raises(ProducerFenced):
        ongoing.add(A0, epoch=0)
    assert ongoing.init(PID, 0) == (PID, 1)


def test_a_producer_of_version_two_out_of_time_learns_it_when_it_ends(ready: Coordinator) -> None:
    ready.add(A0, v=V2)
    ready.now = 9_999
    ready.ask(AbortIfOutOfTime())
    ready.complete()
    with pytest.raises(InvalidTxnState):
        ready.end(commit=True, epoch=0, v=V2)
    assert ready.end(commit=False, epoch=0, v=V2) == (PID, 1)


def test_only_an_ongoing_transaction_runs_out_of_time(ready: Coordinator) -> None:
    ready.now = 10**9
    assert ready.ask(AbortIfOutOfTime()) == Verdict()


def test_an_idle_transactional_id_is_forgotten_and_starts_anew(ready: Coordinator) -> None:
    ready.now = 1_999
    assert ready.ask(ForgetIfIdle(1_000)).records == ()
    ready.now = 2_000
    assert ready.ask(ForgetIfIdle(1_000)).records != ()
    assert ready.transaction.state is None
    assert ready.init() == (PID, 0)


def test_an_open_transaction_is_not_forgotten(ongoing: Coordinator) -> None:
    ongoing.now = 10**9
    ongoing.ask(ForgetIfIdle(1))
    ongoing.end(commit=True)
    ongoing.ask(ForgetIfIdle(1))
    assert ongoing.status is T.PREPARE_COMMIT


# --- transactions v2 (KIP-890) --------------------------------------------------------------------


@pytest.mark.parametrize("commit", [True, False])
def test_every_end_moves_the_epoch_and_marks_under_the_new_one(
    ready: Coordinator, commit: bool
) -> None:
    ready.add(A0, v=V2)
    assert ready.end(commit=commit, v=V2) == (PID, 1)
    assert ready.markers == [WriteMarkers(PID, 1, commit, (A0,))]
    ready.complete()
    assert ready.state.producer_epoch == 1
    ready.add(A0, v=V2)
    assert ready.end(commit=commit, v=V2) == (PID, 2)


@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_is_known_by_the_epoch_before(ready: Coordinator, commit: bool) -> None:
    ready.add(A0, v=V2)
    ready.end(commit=commit, v=V2)
    with pytest.raises(ConcurrentTransactions):
        ready.end(commit=commit, epoch=0, v=V2)
    with pytest.raises(ProducerFenced):
        ready.end(commit=commit, epoch=1, v=V2)
    ready.complete()
    assert ready.end(commit=commit, epoch=0, v=V2) == (PID, 1)
    with pytest.raises(InvalidTxnState):
        ready.end(commit=not commit, epoch=0, v=V2)
    with pytest.raises(ProducerFenced):
        ready.end(commit=commit, epoch=2, v=V2)


@pytest.mark.parametrize("commit", [True, False])
def test_a_late_end_never_touches_a_later_transaction(ready: Coordinator, commit: bool) -> None:
    ready.add(A0, v=V2)
    ready.end(commit=True, v=V2)
    ready.complete()
    ready.add(A0, v=V2)
    with pytest.raises(ProducerFenced):
        ready.end(commit=commit, epoch=0, v=V2)
    assert ready.status is T.ONGOING


def test_an_abort_of_nothing_moves_the_epoch(ready: Coordinator) -> None:
    assert ready.end(commit=False, v=V2) == (PID, 1)
    ready.complete()
    assert ready.status is T.COMPLETE_ABORT
    assert ready.end(commit=False, v=V2) == (PID, 2)
    ready.complete()
    ready.add(A0, v=V2)
    ready.end(commit=True, v=V2)
    ready.complete()
    assert ready.end(commit=False, v=V2) == (PID, 4)


def test_a_commit_of_nothing_is_refused(ready: Coordinator) -> None:
    with pytest.raises(InvalidTxnState):
        ready.end(commit=True, v=V2)
    ready.add(A0, v=V2)
    ready.end(commit=True, v=V2)
    ready.complete()
    with pytest.raises(InvalidTxnState):
        ready.end(commit=True, v=V2)


def test_a_classic_end_of_a_transaction_of_version_two_leaves_the_epoch(ready: Coordinator) -> None:
    ready.add(A0, v=V2)
    assert ready.end(commit=True) == (PID, 0)
    ready.complete()
    assert ready.end(commit=True) == (PID, 0)
    with pytest.raises(InvalidTxnState):
        ready.end(commit=True, v=V2)


# --- when the epochs are used up ------------------------------------------------------------------


def test_a_new_instance_gets_a_fresh_producer_id(ready: Coordinator) -> None:
    ready.use_up_epochs()
    assert ready.transaction.needs_producer_id
    assert ready.init() == (FRESH, 0)


def test_a_resuming_producer_gets_a_fresh_producer_id_also_when_it_repeats(
    ready: Coordinator,
) -> None:
    ready.use_up_epochs()
    assert ready.init(PID, LAST_EPOCH) == (FRESH, 0)
    assert ready.init(PID, LAST_EPOCH) == (FRESH, 0)
    with pytest.raises(ProducerFenced):
        ready.init(PID, LAST_EPOCH - 1)


def test_the_end_of_a_transaction_gives_a_fresh_producer_id(ready: Coordinator) -> None:
    ready.use_up_epochs()
    ready.add(A0, v=V2)
    assert ready.end(commit=True, v=V2) == (FRESH, 0)
    assert ready.markers == [WriteMarkers(PID, LAST_EPOCH + 1, True, (A0,))]
    ready.complete()
    assert (ready.state.producer_id, ready.state.producer_epoch) == (FRESH, 0)
    assert ready.end(commit=True, epoch=LAST_EPOCH, v=V2) == (FRESH, 0)
    with pytest.raises(InvalidTxnState):
        ready.end(commit=False, epoch=LAST_EPOCH, v=V2)


def test_an_abort_by_the_clock_gives_a_fresh_producer_id(ready: Coordinator) -> None:
    ready.use_up_epochs()
    ready.add(A0, v=V2)
    ready.now = 10**6
    ready.ask(AbortIfOutOfTime(FRESH))
    ready.complete()
    assert ready.end(commit=False, epoch=LAST_EPOCH, v=V2) == (FRESH, 0)
    assert ready.init(PID, LAST_EPOCH) == (FRESH, 0)
    assert ready.init() == (FRESH, 1)


def test_a_classic_end_keeps_the_last_epoch(ready: Coordinator) -> None:
    ready.use_up_epochs()
    ready.add(A0)
    assert ready.end(commit=True) == (PID, LAST_EPOCH)
