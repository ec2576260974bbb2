"""Idempotence, verification and open transactions of one partition."""

from __future__ import annotations

import pytest

from penstock.errors import (
    DuplicateSequence,
    InvalidProducerEpoch,
    InvalidTxnState,
    OutOfOrderSequence,
    TransactionCoordinatorFenced,
)
from penstock.machines.producers import NO_GUARD, ProducerStates
from penstock.model.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, BatchHeader
from penstock.model.producer import AbortedTransaction

PID = 7
LAST = 0x7FFFFFFF


def batch(
    sequence: int,
    count: int = 1,
    *,
    offset: int = 0,
    epoch: int = 0,
    pid: int = PID,
    txn: bool = False,
) -> BatchHeader:
    attributes = TRANSACTIONAL_FLAG if txn else 0
    return BatchHeader(
        offset, 100, 0, 2, 0, attributes, count - 1, 0, 0, pid, epoch, sequence, count
    )


def marker(offset: int, *, epoch: int = 0, pid: int = PID) -> BatchHeader:
    attributes = TRANSACTIONAL_FLAG | CONTROL_FLAG
    return BatchHeader(offset, 78, 0, 2, 0, attributes, 0, 0, 0, pid, epoch, -1, 1)


class Partition:
    """A log of headers over the machine under test: check, append, apply."""

    def __init__(self) -> None:
        self.producers = ProducerStates()
        self.end = 0
        self.log: list[tuple[BatchHeader, bool | None]] = []

    def write(self, header: BatchHeader, *, verify: bool = True, now: int = 0) -> int:
        guard = NO_GUARD
        if header.is_transactional and verify:
            guard = self.producers.begin_verification(
                header.producer_id, header.producer_epoch, header.base_sequence, now
            )
        self.producers.check(header, guard=guard)
        header = header._replace(base_offset=self.end)
        self.producers.apply(header, now)
        self.log.append((header, None))
        self.end = header.next_offset
        return header.base_offset

    def end_transaction(
        self, *, commit: bool, epoch: int = 0, pid: int = PID, coordinator: int = 0
    ) -> AbortedTransaction | None:
        self.producers.check_marker(pid, epoch, coordinator)
        header = marker(self.end, epoch=epoch, pid=pid)
        self.log.append((header, commit))
        self.end += 1
        return self.producers.apply_marker(header, commit, coordinator, 0)


def test_without_transactions_nothing_is_unstable() -> None:
    partition = Partition()
    partition.write(batch(0, 3))
    assert partition.producers.first_unstable_offset is None


@pytest.fixture
def partition() -> Partition:
    return Partition()


# --- sequences ------------------------------------------------------------------------------------


def test_batches_in_sequence_are_accepted(partition: Partition) -> None:
    assert [partition.write(batch(sequence, 10)) for sequence in (0, 10, 20)] == [0, 10, 20]


def test_a_gap_is_refused(partition: Partition) -> None:
    partition.write(batch(0, 10))
    with pytest.raises(OutOfOrderSequence, match="10 comes next"):
        partition.producers.check(batch(11))


def test_an_unknown_producer_may_start_anywhere(partition: Partition) -> None:
    partition.write(batch(41, 2))
    partition.write(batch(43))
    with pytest.raises(OutOfOrderSequence):
        partition.producers.check(batch(40))


def test_sequences_wrap_after_the_largest_integer(partition: Partition) -> None:
    partition.write(batch(LAST - 1, 2))
    partition.write(batch(0, 3))
    partition.write(batch(3))


def test_a_batch_may_wrap_inside(partition: Partition) -> None:
    partition.write(batch(LAST - 1, 5))
    partition.write(batch(3))
    with pytest.raises(DuplicateSequence) as duplicate:
        partition.producers.check(batch(LAST - 1, 5))
    assert duplicate.value.base_offset == 0


def test_each_of_the_last_five_batches_is_answered_with_its_first_offset(
    partition: Partition,
) -> None:
    for number in range(6):
        partition.write(batch(number * 10, 10), now=1000 + number)
    for number in range(1, 6):
        with pytest.raises(DuplicateSequence) as duplicate:
            partition.producers.check(batch(number * 10, 10))
        assert duplicate.value.base_offset == number * 10
        assert duplicate.value.append_time_ms == 1000 + number
    with pytest.raises(OutOfOrderSequence):
        partition.producers.check(batch(0, 10))


def test_a_batch_that_overlaps_a_remembered_one_is_no_duplicate(partition: Partition) -> None:
    partition.write(batch(0, 10))
    with pytest.raises(OutOfOrderSequence):
        partition.producers.check(batch(0, 9))


def test_a_duplicate_changes_nothing(partition: Partition) -> None:
    partition.write(batch(0, 10))
    before = partition.producers.snapshot()
    with pytest.raises(DuplicateSequence):
        partition.producers.check(batch(0, 10))
    assert partition.producers.snapshot() == before


def test_producers_do_not_share_sequences(partition: Partition) -> None:
    partition.write(batch(0, 10, pid=1))
    partition.write(batch(0, 10, pid=2))
    partition.write(batch(10, pid=1))


# --- epochs ---------------------------------------------------------------------------------------


def test_an_old_epoch_is_refused(partition: Partition) -> None:
    partition.write(batch(0, epoch=3))
    with pytest.raises(InvalidProducerEpoch):
        partition.producers.check(batch(1, epoch=2))


def test_a_new_epoch_starts_at_sequence_zero(partition: Partition) -> None:
    partition.write(batch(0, 10))
    with pytest.raises(OutOfOrderSequence):
        partition.producers.check(batch(10, epoch=1))
    partition.write(batch(0, 10, epoch=1))
    partition.write(batch(10, epoch=1))


def test_a_new_epoch_forgets_the_batches_of_the_old_one(partition: Partition) -> None:
    partition.write(batch(0, 10))
    partition.write(batch(0, 10, epoch=1))
    with pytest.raises(DuplicateSequence) as duplicate:
        partition.producers.check(batch(0, 10, epoch=1))
    assert duplicate.value.base_offset == 10


def test_a_marker_with_a_newer_epoch_fences_the_older_one(partition: Partition) -> None:
    partition.write(batch(0, txn=True))
    partition.end_transaction(commit=True, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        partition.write(batch(1, txn=True))
    partition.write(batch(0, epoch=1, txn=True))


# --- transactions ---------------------------------------------------------------------------------


def test_the_first_unstable_offset_is_where_the_oldest_open_transaction_begins(
    partition: Partition,
) -> None:
    partition.write(batch(0, 3, pid=9))
    partition.write(batch(0, 2, pid=1, txn=True))
    partition.write(batch(0, 2, pid=2, txn=True))
    partition.write(batch(2, 2, pid=1, txn=True))
    assert partition.producers.first_unstable_offset == 3
    partition.end_transaction(commit=True, pid=1)
    partition.producers.advance_high_watermark(partition.end)
    assert partition.producers.first_unstable_offset == 5
    partition.end_transaction(commit=True, pid=2)
    partition.producers.advance_high_watermark(partition.end)
    assert partition.producers.first_unstable_offset is None


def test_a_transaction_stays_unstable_until_its_marker_is_below_the_high_watermark(
    partition: Partition,
) -> None:
    partition.write(batch(0, 2, txn=True))
    partition.end_transaction(commit=True)
    assert partition.producers.first_unstable_offset == 0
    partition.producers.advance_high_watermark(2)
    assert partition.producers.first_unstable_offset == 0
    partition.producers.advance_high_watermark(3)
    assert partition.producers.first_unstable_offset is None


def test_an_abort_gives_the_entry_of_the_transaction_index(partition: Partition) -> None:
    partition.write(batch(0, 2, txn=True))
    partition.write(batch(2, 2, txn=True))
    assert partition.end_transaction(commit=False) == AbortedTransaction(PID, 0, 4, 5)


def test_the_last_stable_offset_of_an_abort_stops_at_the_next_open_transaction(
    partition: Partition,
) -> None:
    partition.write(batch(0, 2, pid=1, txn=True))
    partition.write(batch(0, 2, pid=2, txn=True))
    assert partition.end_transaction(commit=False, pid=1) == AbortedTransaction(1, 0, 4, 2)
    assert partition.end_transaction(commit=False, pid=2) == AbortedTransaction(2, 2, 5, 6)


def test_a_commit_gives_no_entry(partition: Partition) -> None:
    partition.write(batch(0, txn=True))
    assert partition.end_transaction(commit=True) is None


def test_a_marker_without_a_transaction_ends_nothing(partition: Partition) -> None:
    assert partition.end_transaction(commit=False) is None
    partition.write(batch(0, txn=True))
    partition.end_transaction(commit=True)
    assert partition.end_transaction(commit=False) is None


def test_a_marker_of_an_old_epoch_is_refused(partition: Partition) -> None:
    partition.write(batch(0, epoch=2, txn=True))
    with pytest.raises(InvalidProducerEpoch):
        partition.end_transaction(commit=False, epoch=1)
    assert partition.producers.first_unstable_offset == 0


def test_a_marker_of_a_replaced_coordinator_is_refused(partition: Partition) -> None:
    partition.write(batch(0, txn=True))
    partition.end_transaction(commit=True, coordinator=5)
    partition.write(batch(1, txn=True))
    with pytest.raises(TransactionCoordinatorFenced):
        partition.end_transaction(commit=False, coordinator=4)


def test_a_plain_batch_is_refused_while_its_producer_has_a_transaction_open(
    partition: Partition,
) -> None:
    partition.write(batch(0, txn=True))
    with pytest.raises(InvalidTxnState):
        partition.write(batch(1))
    partition.end_transaction(commit=True)
    partition.write(batch(1))


# --- verification (KIP-890) -----------------------------------------------------------------------


def test_a_transactional_batch_without_a_guard_is_refused(partition: Partition) -> None:
    with pytest.raises(InvalidTxnState):
        partition.write(batch(0, txn=True), verify=False)


def test_only_the_first_batch_of_a_transaction_needs_a_guard(partition: Partition) -> None:
    partition.write(batch(0, txn=True))
    assert partition.producers.begin_verification(PID, 0, 1, 0) == NO_GUARD
    partition.write(batch(1, txn=True), verify=False)
    partition.end_transaction(commit=True)
    with pytest.raises(InvalidTxnState):
        partition.write(batch(2, txn=True), verify=False)


def test_a_marker_takes_the_worth_of_a_guard_away(partition: Partition) -> None:
    guard = partition.producers.begin_verification(PID, 0, 0, 0)
    partition.end_transaction(commit=False)
    with pytest.raises(InvalidTxnState):
        partition.producers.check(batch(0, txn=True), guard=guard)
    renewed = partition.producers.begin_verification(PID, 0, 0, 0)
    assert renewed != guard
    with pytest.raises(InvalidTxnState):
        partition.producers.check(batch(0, txn=True), guard=guard)
    partition.producers.check(batch(0, txn=True), guard=renewed)


def test_a_guard_is_for_one_epoch(partition: Partition) -> None:
    old = partition.producers.begin_verification(PID, 0, 0, 0)
    new = partition.producers.begin_verification(PID, 1, 0, 0)
    with pytest.raises(InvalidTxnState):
        partition.producers.check(batch(0, epoch=1, txn=True), guard=old)
    partition.producers.check(batch(0, epoch=1, txn=True), guard=new)


def test_a_verification_under_a_made_up_epoch_is_not_in_the_way(partition: Partition) -> None:
    partition.producers.begin_verification(PID, 9, 0, 0)
    partition.write(batch(0, txn=True))


def test_a_guard_is_worth_nothing_once_a_marker_has_fenced_its_epoch(partition: Partition) -> None:
    guard = partition.producers.begin_verification(PID, 0, 0, 0)
    partition.end_transaction(commit=False, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        partition.producers.check(batch(0, txn=True), guard=guard)
    with pytest.raises(InvalidProducerEpoch):
        partition.producers.begin_verification(PID, 0, 0, 0)


def test_verifications_that_nobody_finishes_do_not_pile_up(partition: Partition) -> None:
    first = partition.producers.begin_verification(1, 0, 0, 0)
    for producer_id in range(2, 10_002):
        partition.producers.begin_verification(producer_id, 0, 0, 0)
    with pytest.raises(InvalidTxnState):
        partition.producers.check(batch(0, pid=1, txn=True), guard=first)


def test_of_batches_that_wait_for_one_verification_the_first_goes_first(
    partition: Partition,
) -> None:
    guard = partition.producers.begin_verification(PID, 0, 5, 0)
    assert partition.producers.begin_verification(PID, 0, 6, 0) == guard
    with pytest.raises(OutOfOrderSequence):
        partition.producers.check(batch(6, txn=True), guard=guard)
    partition.producers.check(batch(5, txn=True), guard=guard)


def test_a_transaction_of_version_two_starts_at_sequence_zero(partition: Partition) -> None:
    guard = partition.producers.begin_verification(PID, 0, 4, 0, starts_at_zero=True)
    with pytest.raises(OutOfOrderSequence):
        partition.producers.check(batch(4, txn=True), guard=guard)


def test_a_coordinator_needs_a_verification_but_no_sequence(partition: Partition) -> None:
    with pytest.raises(InvalidTxnState):
        partition.producers.check(batch(-1, txn=True), client=False)
    partition.producers.begin_verification(PID, 0, -1, 0)
    for offset in (0, 1):
        partition.producers.check(batch(-1, txn=True), client=False)
        partition.producers.apply(batch(-1, offset=offset, txn=True), 0)
    partition.producers.apply_marker(marker(2), True, 0, 0)
    with pytest.raises(InvalidTxnState):
        partition.producers.check(batch(-1, txn=True), client=False)


# --- snapshots, expiry, description ---------------------------------------------------------------


def test_a_snapshot_brings_back_producers_and_open_transactions(partition: Partition) -> None:
    partition.write(batch(0, 10, pid=1))
    partition.write(batch(0, 4, pid=3, txn=True))
    partition.write(batch(0, 4, pid=2, epoch=6, txn=True))
    partition.end_transaction(commit=True, pid=5, coordinator=8)
    restored = ProducerStates()
    restored.restore(reversed(partition.producers.snapshot()))
    assert sorted(restored.snapshot()) == sorted(partition.producers.snapshot())
    assert restored.first_unstable_offset == 10
    restored.check(batch(10, pid=1))
    with pytest.raises(DuplicateSequence) as duplicate:
        restored.check(batch(0, 10, pid=1))
    assert duplicate.value.base_offset == 0
    assert restored.apply_marker(marker(18, pid=3), False, 0, 0) == AbortedTransaction(
        3, 10, 18, 14
    )
    with pytest.raises(TransactionCoordinatorFenced):
        restored.check_marker(5, 0, 7)


def test_a_restored_producer_can_be_reminded_of_its_older_batches(partition: Partition) -> None:
    for number in range(7):
        partition.write(batch(number * 10, 10))
    restored = ProducerStates()
    restored.restore(partition.producers.snapshot())
    late = batch(30, 10)
    with pytest.raises(OutOfOrderSequence):
        restored.check(late)
    assert restored.incomplete(0) == restored.incomplete(69) == [PID]
    assert restored.incomplete(70) == []  # it has written nothing there
    restored.recall(PID, [header for header, _ in partition.log], 0)
    with pytest.raises(DuplicateSequence) as duplicate:
        restored.check(late)
    assert duplicate.value.base_offset == 30
    assert restored.incomplete(0) == []
    restored.check(batch(70))


def test_silent_producers_are_forgotten_and_may_start_anywhere(partition: Partition) -> None:
    partition.write(batch(0, 10), now=1_000)
    assert partition.producers.expire(1_999, 1_000) == 0
    assert partition.producers.expire(2_000, 1_000) == 1
    assert len(partition.producers) == 0
    partition.write(batch(77))


def test_a_producer_with_an_open_transaction_is_never_forgotten(partition: Partition) -> None:
    partition.write(batch(0, txn=True))
    assert partition.producers.expire(10**12, 1) == 0
    partition.end_transaction(commit=True)
    assert partition.producers.expire(10**12, 1) == 1


def test_a_guard_expires_too(partition: Partition) -> None:
    guard = partition.producers.begin_verification(PID, 0, 0, 1_000)
    partition.producers.expire(2_000, 1_000)
    with pytest.raises(InvalidTxnState):
        partition.producers.check(batch(0, txn=True), guard=guard)


def test_description_shows_the_last_sequence_and_where_the_transaction_began(
    partition: Partition,
) -> None:
    partition.write(batch(0, 4, txn=True), now=5)
    assert partition.producers.describe() == [(PID, 0, 3, 5, -1, 0)]
    partition.end_transaction(commit=True, coordinator=2)
    assert partition.producers.describe() == [(PID, 0, 3, 0, 2, -1)]


def test_replaying_the_log_gives_the_same_state(partition: Partition) -> None:
    partition.write(batch(0, 4, txn=True))
    partition.write(batch(0, 4, pid=2, txn=True))
    partition.end_transaction(commit=False)
    partition.write(batch(4, 4, txn=True))
    replayed = ProducerStates()
    for header, commit in partition.log:
        if commit is None:
            replayed.apply(header, 0)
        else:
            replayed.apply_marker(header, commit, 0, 0)
    assert replayed.snapshot() == partition.producers.snapshot()
    assert replayed.first_unstable_offset == partition.producers.first_unstable_offset
