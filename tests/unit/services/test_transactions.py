"""The coordinator over a journal and partitions in memory: waiting, time, crashes, full disks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    NotEnoughReplicas,
    ProducerFenced,
    StorageError,
    TransactionAbortable,
    TransactionalIdNotFound,
    TransactionCoordinatorFenced,
    UnknownTopicOrPartition,
)
from penstock.machines.producers import ProducerStates
from penstock.machines.transaction_commands import ProducerIdentity
from penstock.model.batch import TRANSACTIONAL_FLAG, BatchHeader, read_header
from penstock.model.ids import TopicPartition
from penstock.model.records import build_marker
from penstock.model.topic import OFFSETS_TOPIC
from penstock.model.transaction_topic import TransactionStatus
from penstock.runtime.clock import ManualClock
from penstock.services.producer_ids import ProducerIds
from penstock.services.transactions import EPOCH_PER_TRANSACTION, TransactionLimits, Transactions
from support.journal import MemoryJournal
from support.scenario import scenario

T = TransactionStatus
A, B = TopicPartition("a", 0), TopicPartition("b", 0)
NAME = "billing"


class Place:
    """A partition: what it remembers of producers, and the markers it was given."""

    def __init__(self) -> None:
        self.producers = ProducerStates()
        self.markers: list[tuple[int, int, bool]] = []


class Places:
    """Partitions in memory. `broken` ones refuse markers; `gate` holds all of them back."""

    def __init__(self) -> None:
        self.places: dict[TopicPartition, Place] = {}
        self.broken: dict[TopicPartition, Exception] = {}
        self.gate: asyncio.Event | None = None

    def __getitem__(self, place: TopicPartition) -> Place:
        return self.places.setdefault(place, Place())

    async def replica(self, topic: str, partition: int) -> Place:
        return self[TopicPartition(topic, partition)]

    async def write_marker(
        self,
        topic: str,
        partition: int,
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
    ) -> None:
        if self.gate is not None:
            await self.gate.wait()
        place = TopicPartition(topic, partition)
        if place in self.broken:
            raise self.broken[place]
        marker = build_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp_ms=0,
        )
        self[place].producers.check_marker(producer_id, producer_epoch, coordinator_epoch)
        self[place].producers.apply_marker(read_header(marker), commit, coordinator_epoch, 0)
        self[place].markers.append((producer_id, producer_epoch, commit))

    def markers(self, *places: TopicPartition) -> list[list[tuple[int, int, bool]]]:
        return [self[place].markers for place in places]


class Offsets:
    """Where the offsets of groups are."""

    def __init__(self) -> None:
        self.exists = False

    def partition_for(self, key: str) -> int:
        return len(key)

    async def ensure(self) -> None:
        self.exists = True


class Blocks:
    """Producer ids that outlive the coordinator."""

    def __init__(self) -> None:
        self.next = 0

    async def reserve_producer_ids(self, count: int) -> int:
        first, self.next = self.next, self.next + count
        return first


class World:
    """What survives a crash of the coordinator."""

    def __init__(self, **limits: int | bool) -> None:
        self.journal = MemoryJournal()
        self.places = Places()
        self.blocks = Blocks()
        self.clock = ManualClock()
        self.limits = TransactionLimits(**{"patience_ms": 50, **limits})  # type: ignore[arg-type]

    @asynccontextmanager
    async def coordinator(self) -> AsyncIterator[Transactions]:
        transactions = Transactions(
            self.journal,
            self.places,
            Offsets(),
            ProducerIds(self.blocks),
            self.clock,
            limits=self.limits,
        )
        await transactions.load()
        try:
            yield transactions
        finally:
            await transactions.close()


async def begin(transactions: Transactions, *places: TopicPartition) -> ProducerIdentity:
    producer = await transactions.init_producer_id(NAME, 1_000)
    await transactions.add_partitions(NAME, *producer, places)
    return producer


def status(transactions: Transactions) -> TransactionStatus:
    return transactions.describe(NAME).status


# --- the ordinary way -----------------------------------------------------------------------------


@scenario
async def test_every_partition_has_its_marker_when_the_end_is_answered() -> None:
    world = World()
    async with world.coordinator() as transactions:
        producer = await begin(transactions, A, B)
        assert await transactions.end(NAME, *producer, commit=True) == producer
        assert world.places.markers(A, B) == [[(*producer, True)], [(*producer, True)]]
        assert status(transactions) is T.COMPLETE_COMMIT


@scenario
async def test_offsets_of_a_group_are_part_of_the_transaction() -> None:
    world = World()
    async with world.coordinator() as transactions:
        producer = await transactions.init_producer_id(NAME, 1_000)
        await transactions.add_offsets(NAME, *producer, "group")
        await transactions.end(NAME, *producer, commit=False)
        place = TopicPartition(OFFSETS_TOPIC, len("group"))
        assert world.places[place].markers == [(*producer, False)]


@scenario
async def test_idempotent_producers_get_ids_of_their_own() -> None:
    async with World().coordinator() as transactions:
        found = [await transactions.init_producer_id(None, 0) for _ in range(3)]
        assert found == [(0, 0), (1, 0), (2, 0)]


@scenario
async def test_time_outs_and_names_are_checked() -> None:
    async with World(max_timeout_ms=1_000).coordinator() as transactions:
        for timeout_ms in (-1, 0, 1_001):
            with pytest.raises(InvalidTransactionTimeout):
                await transactions.init_producer_id(NAME, timeout_ms)
        with pytest.raises(InvalidRequest):
            await transactions.init_producer_id("", 1)
        with pytest.raises(InvalidRequest):
            await transactions.end("", 0, 0, commit=True)
        with pytest.raises(InvalidRequest):
            transactions.describe("")


@scenario
async def test_an_unknown_transactional_id_leaves_nothing_behind() -> None:
    world = World()
    async with world.coordinator() as transactions:
        with pytest.raises(InvalidProducerIdMapping):
            await transactions.add_partitions("nobody", 1, 0, [A])
        with pytest.raises(InvalidProducerIdMapping):
            await transactions.end("nobody", 1, 0, commit=True)
        with pytest.raises(TransactionalIdNotFound):
            transactions.describe("nobody")
        assert (transactions.list(), world.journal.appends, world.blocks.next) == ([], 0, 0)


# --- while markers are being written --------------------------------------------------------------


@scenario
async def test_the_end_is_answered_although_markers_take_long() -> None:
    world = World()
    async with world.coordinator() as transactions:
        producer = await begin(transactions, A)
        world.places.gate = asyncio.Event()
        assert await transactions.end(NAME, *producer, commit=True) == producer
        assert status(transactions) is T.PREPARE_COMMIT
        with pytest.raises(ConcurrentTransactions):
            await transactions.add_partitions(NAME, *producer, [B])
        with pytest.raises(ConcurrentTransactions):
            await transactions.end(NAME, *producer, commit=True)
        with pytest.raises(ConcurrentTransactions):
            await transactions.init_producer_id(NAME, 1_000)
        world.places.gate.set()
        await transactions.add_partitions(NAME, *producer, [B])
        assert status(transactions) is T.ONGOING


@scenario
async def test_the_next_transaction_waits_for_the_markers_of_the_last() -> None:
    world = World(patience_ms=5_000)
    async with world.coordinator() as transactions:
        producer = await begin(transactions, A)
        world.places.gate = asyncio.Event()
        ending = asyncio.create_task(transactions.end(NAME, *producer, commit=True))
        adding = asyncio.create_task(transactions.add_partitions(NAME, *producer, [B]))
        await asyncio.sleep(0.02)
        assert not ending.done()
        assert not adding.done()
        world.places.gate.set()
        await asyncio.gather(ending, adding)
        assert transactions.describe(NAME).partitions == (B,)


@scenario
async def test_a_repeated_end_waits_for_its_own_transaction_and_touches_no_later_one() -> None:
    world = World(patience_ms=5_000)
    async with world.coordinator() as transactions:
        producer = await begin(transactions, A)
        world.places.gate = asyncio.Event()
        first = asyncio.create_task(transactions.end(NAME, *producer, commit=True))
        again = asyncio.create_task(transactions.end(NAME, *producer, commit=True))
        following = asyncio.create_task(transactions.add_partitions(NAME, *producer, [B]))
        await asyncio.sleep(0.02)
        world.places.gate.set()
        await asyncio.gather(first, again, following)
        assert first.result() == again.result() == producer
        assert status(transactions) is T.ONGOING
        assert world.places.markers(A, B) == [[(*producer, True)], []]


@scenario
async def test_a_new_instance_waits_until_its_predecessor_is_aborted() -> None:
    world = World()
    async with world.coordinator() as transactions:
        old = await begin(transactions, A)
        new = await transactions.init_producer_id(NAME, 1_000)
        assert new == (old.producer_id, 2)
        assert world.places[A].markers == [(old.producer_id, 1, False)]
        with pytest.raises(ProducerFenced):
            await transactions.end(NAME, *old, commit=True)


@scenario
async def test_a_caller_who_goes_away_does_not_stop_what_was_decided() -> None:
    world = World(patience_ms=5_000)
    async with world.coordinator() as transactions:
        producer = await begin(transactions, A)
        world.journal.gate = asyncio.Event()
        ending = asyncio.create_task(transactions.end(NAME, *producer, commit=True))
        await asyncio.sleep(0.01)
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        world.journal.gate.set()
        world.journal.gate = None
        await transactions.add_partitions(NAME, *producer, [B])
        assert world.places[A].markers == [(*producer, True)]


# --- trouble --------------------------------------------------------------------------------------


@scenario
async def test_a_decision_found_after_a_crash_is_carried_out_again() -> None:
    world = World()
    world.places.gate = asyncio.Event()
    async with world.coordinator() as transactions:
        producer = await begin(transactions, A, B)
        await transactions.end(NAME, *producer, commit=True)
        assert status(transactions) is T.PREPARE_COMMIT
    world.places.gate = None
    async with world.coordinator() as transactions:
        await transactions.add_partitions(NAME, *producer, [A])
        assert world.places.markers(A, B) == [[(*producer, True)], [(*producer, True)]]
        assert status(transactions) is T.ONGOING


@scenario
async def test_everything_comes_back_after_a_crash() -> None:
    world = World()
    async with world.coordinator() as transactions:
        producer = await begin(transactions, A, B)
        await transactions.init_producer_id("other", 500)
        before = dict(transactions.list())
    async with world.coordinator() as transactions:
        assert dict(transactions.list()) == before
        await transactions.end(NAME, *producer, commit=False)
        assert (await transactions.init_producer_id("third", 500)).producer_id == 1_000


@scenario
async def test_what_the_journal_refuses_did_not_happen() -> None:
    world = World()
    async with world.coordinator() as transactions:
        producer = await begin(transactions, A)
        world.journal.fail = True
        with pytest.raises(CoordinatorNotAvailable):
            await transactions.end(NAME, *producer, commit=True)
        with pytest.raises(CoordinatorNotAvailable):
            await transactions.init_producer_id("new", 1_000)
        assert status(transactions) is T.ONGOING
        assert [name for name, _ in transactions.list()] == [NAME]
        world.journal.fail = False
        await transactions.end(NAME, *producer, commit=True)
        assert world.places[A].markers == [(*producer, True)]


@scenario
async def test_a_marker_that_finds_no_room_is_tried_until_there_is() -> None:
    world = World(patience_ms=5_000)
    async with world.coordinator() as transactions:
        producer = await begin(transactions, A, B)
        world.places.broken[A] = StorageError("full")
        ending = asyncio.create_task(transactions.end(NAME, *producer, commit=True))
        await asyncio.sleep(0.02)
        assert world.places.markers(A, B) == [[], [(*producer, True)]]
        del world.places.broken[A]
        await ending
        assert world.places.markers(A, B) == [[(*producer, True)], [(*producer, True)]]


@pytest.mark.parametrize(
    "reason",
    [
        UnknownTopicOrPartition("gone"),
        InvalidProducerEpoch("old"),
        TransactionCoordinatorFenced(""),
    ],
)
@scenario
async def test_a_partition_with_nothing_left_to_end_is_not_waited_for(reason: Exception) -> None:
    world = World()
    async with world.coordinator() as transactions:
        producer = await begin(transactions, A, B)
        world.places.broken[A] = reason
        await transactions.end(NAME, *producer, commit=True)
        assert status(transactions) is T.COMPLETE_COMMIT


# --- time -----------------------------------------------------------------------------------------


@scenario
async def test_a_transaction_out_of_time_is_aborted_and_its_producer_fenced() -> None:
    world = World()
    async with world.coordinator() as transactions:
        producer = await begin(transactions, A)
        world.clock.advance(1_000)
        await transactions.abort_out_of_time()
        assert status(transactions) is T.ONGOING
        world.clock.advance(1)
        await transactions.abort_out_of_time()
        assert await transactions.init_producer_id(NAME, 1_000) == (producer.producer_id, 2)
        assert world.places[A].markers == [(producer.producer_id, 1, False)]


@scenario
async def test_idle_transactional_ids_are_forgotten_for_good() -> None:
    world = World(id_expiration_ms=10_000)
    async with world.coordinator() as transactions:
        await transactions.init_producer_id("idle", 1_000)
        world.clock.advance(9_000)
        await begin(transactions, A)
        world.clock.advance(1_000)
        await transactions.forget_idle()
        assert [name for name, _ in transactions.list()] == [NAME]
    async with world.coordinator() as transactions:
        assert [name for name, _ in transactions.list()] == [NAME]


# --- what partitions ask (KIP-890) ----------------------------------------------------------------


@scenario
async def test_only_partitions_of_the_transaction_are_admitted() -> None:
    async with World().coordinator() as transactions:
        producer = await begin(transactions, A)
        answers = await transactions.admit(NAME, *producer, [A, B], add=False)
        assert answers[A] is None
        assert isinstance(answers[B], InvalidTxnState)
        answers = await transactions.admit(NAME, *producer, [B], add=False, abortable=True)
        assert isinstance(answers[B], TransactionAbortable)


@scenario
async def test_transactions_of_version_two_add_what_they_write_to() -> None:
    world = World()
    async with world.coordinator() as transactions:
        producer = await transactions.init_producer_id(NAME, 1_000)
        assert await transactions.admit(NAME, *producer, [A, B], add=True) == {A: None, B: None}
        moved = await transactions.end(
            NAME, *producer, commit=True, client_version=EPOCH_PER_TRANSACTION
        )
        assert moved == (producer.producer_id, 1)
        assert world.places[A].markers == [(*moved, True)]
        late = await transactions.admit(NAME, *producer, [A], add=True)
        assert isinstance(late[A], InvalidProducerEpoch)


@scenario
async def test_old_clients_are_sent_away_from_a_completing_transaction_in_words_they_know() -> None:
    world = World()
    async with world.coordinator() as transactions:
        producer = await begin(transactions, A)
        world.places.gate = asyncio.Event()
        await transactions.end(NAME, *producer, commit=True)
        answers = await transactions.admit(NAME, *producer, [A], add=False)
        assert isinstance(answers[A], NotEnoughReplicas)
        answers = await transactions.admit(NAME, *producer, [A], add=True)
        assert isinstance(answers[A], ConcurrentTransactions)


@scenario
async def test_without_verification_everything_is_admitted() -> None:
    async with World(verify_partitions=False).coordinator() as transactions:
        assert await transactions.admit("nobody", 1, 0, [A], add=False) == {A: None}


@scenario
async def test_offsets_are_admitted_when_their_group_is_part_of_the_transaction() -> None:
    world = World()
    async with world.coordinator() as transactions:
        producer = await begin(transactions, A)
        with pytest.raises(InvalidTxnState):
            await transactions.admit_offsets(NAME, *producer, "group", add=False)
        await transactions.add_offsets(NAME, *producer, "group")
        await transactions.admit_offsets(NAME, *producer, "group", add=False)
        producers = world.places[TopicPartition(OFFSETS_TOPIC, len("group"))].producers
        producers.check(_offsets_batch(producer), client=False)
        await transactions.end(NAME, *producer, commit=True)
        with pytest.raises(InvalidTxnState):
            producers.check(_offsets_batch(producer), client=False)


@scenario
async def test_offsets_of_version_two_are_added_once_and_then_open() -> None:
    world = World()
    async with world.coordinator() as transactions:
        producer = await transactions.init_producer_id(NAME, 1_000)
        await transactions.admit_offsets(NAME, *producer, "group", add=True)
        place = TopicPartition(OFFSETS_TOPIC, len("group"))
        assert transactions.describe(NAME).partitions == (place,)
        world.places[place].producers.apply(_offsets_batch(producer), 0)
        appends = world.journal.appends
        await transactions.admit_offsets(NAME, *producer, "group", add=True)
        assert world.journal.appends == appends


def _offsets_batch(producer: ProducerIdentity) -> BatchHeader:
    return BatchHeader(0, 78, 0, 2, 0, TRANSACTIONAL_FLAG, 0, 0, 0, *producer, -1, 1)
