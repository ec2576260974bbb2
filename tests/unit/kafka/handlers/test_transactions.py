"""Transactions over the wire, in every version. The answers are those of Apache Kafka 4.3."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode as E

from support.batches import batch
from support.inside import Inside, inside
from support.scenario import scenario

NAME, TOPIC, GROUP = "billing", "orders", "group"


class Producer:
    """A transactional producer made of raw requests."""

    def __init__(self, broker: Inside, name: str = NAME) -> None:
        self.broker = broker
        self.name = name
        self.id = self.epoch = -1

    async def init(self, version: int = 4, *, known: bool = False, epoch: int = -1) -> E:
        identity = (self.id, epoch) if known else (-1, -1)
        answer = await self.broker.ask(
            "init_producer_id",
            version,
            transactional_id=self.name,
            transaction_timeout=60_000,
            producer_id=identity[0],
            producer_epoch=identity[1],
        )
        if answer.error_code is E.none:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        else:
            assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
        return E(answer.error_code)

    async def add(
        self, *indexes: int, version: int = 3, topic: str = TOPIC, epoch: int = -1
    ) -> Any:
        answer = await self.broker.ask(
            "add_partitions_to_txn",
            version,
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.id,
            v3_and_below_producer_epoch=self.epoch if epoch < 0 else epoch,
            v3_and_below_topics=[{"name": topic, "partitions": indexes}],
        )
        (found,) = answer.results_by_topic_v3_and_below
        assert found.name == topic
        return [row.partition_error_code for row in found.results_by_partition]

    async def add_offsets(self, version: int = 3, epoch: int = -1) -> E:
        answer = await self.broker.ask(
            "add_offsets_to_txn",
            version,
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch if epoch < 0 else epoch,
            group_id=GROUP,
        )
        return E(answer.error_code)

    async def commit_offsets(
        self, version: int = 3, *, topic: str = TOPIC, group: str = GROUP, epoch: int = -1
    ) -> E:
        answer = await self.broker.ask(
            "txn_offset_commit",
            version,
            transactional_id=self.name,
            group_id=group,
            producer_id=self.id,
            producer_epoch=self.epoch if epoch < 0 else epoch,
            generation_id=-1,
            topics=[
                {
                    "name": topic,
                    "partitions": [
                        {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
                    ],
                }
            ],
        )
        return E(answer.topics[0].partitions[0].error_code)

    async def produce(self, sequence: int, version: int = 9, index: int = 0) -> E:
        records = batch(
            [b"x"], producer=(self.id, self.epoch), sequence=sequence, transactional=True
        )
        answer = await self.broker.ask(
            "produce",
            version,
            transactional_id=self.name,
            acks=-1,
            timeout=5_000,
            topic_data=[{"name": TOPIC, "partition_data": [{"index": index, "records": records}]}],
        )
        return E(answer.responses[0].partition_responses[0].error_code)

    async def end(self, version: int = 3, *, commit: bool = True, epoch: int = -1) -> E:
        answer = await self.broker.ask(
            "end_txn",
            version,
            transactional_id=self.name,
            producer_id=self.id,
            producer_epoch=self.epoch if epoch < 0 else epoch,
            committed=commit,
        )
        if version >= 5 and answer.error_code is E.none:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return E(answer.error_code)


async def ready(broker: Inside) -> Producer:
    await broker.services.topics.create(TOPIC, partitions=3)
    producer = Producer(broker)
    assert await producer.init() is E.none
    return producer


# --- the flows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
@scenario
async def test_the_classic_flow(version: int) -> None:
    async with inside() as broker:
        producer = await ready(broker)
        assert await producer.add(0, 2, version=version) == [E.none, E.none]
        assert await producer.produce(0) is E.none
        assert await producer.add_offsets(version) is E.none
        assert await producer.commit_offsets(version) is E.none
        assert await producer.end(version) is E.none
        assert producer.epoch == 0
        assert await committed(broker) == 5


@scenario
async def test_transactions_of_version_two_add_implicitly_and_move_the_epoch() -> None:
    async with inside() as broker:
        producer = await ready(broker)
        assert await producer.produce(0, version=12) is E.none
        assert await producer.commit_offsets(5) is E.none
        assert await producer.end(5) is E.none
        assert producer.epoch == 1
        assert await committed(broker) == 5
        assert await producer.produce(0, version=12) is E.none
        assert await producer.end(5, commit=False) is E.none
        assert producer.epoch == 2


async def committed(broker: Inside) -> int:
    answer = await broker.ask(
        "offset_fetch", 7, group_id=GROUP, topics=[{"name": TOPIC, "partition_indexes": [0]}]
    )
    return int(answer.topics[0].partitions[0].committed_offset)


@scenario
async def test_an_aborted_commit_of_offsets_is_forgotten() -> None:
    async with inside() as broker:
        producer = await ready(broker)
        await producer.commit_offsets(5)
        await producer.end(5, commit=False)
        assert await committed(broker) == -1


# --- producers that are not who they were ---------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
@scenario
async def test_every_version_of_init_producer_id_is_answered(version: int) -> None:
    async with inside() as broker:
        producer = Producer(broker)
        assert await producer.init(version) is E.none
        assert producer.epoch == 0
        answer = await broker.ask(
            "init_producer_id", version, transactional_id=None, transaction_timeout=0
        )
        assert (answer.error_code, answer.producer_epoch) == (E.none, 0)
        assert answer.producer_id != producer.id


@pytest.mark.parametrize("version", [3, 4, 5])
@scenario
async def test_a_fenced_producer_is_told_in_words_its_version_knows(version: int) -> None:
    async with inside() as broker:
        producer = await ready(broker)
        await producer.init()
        fenced = E.invalid_producer_epoch if version < 4 else E.producer_fenced
        assert await producer.init(version, known=True, epoch=0) is fenced


@pytest.mark.parametrize("version", range(4))
@scenario
async def test_requests_of_a_fenced_producer_are_refused_in_every_version(version: int) -> None:
    async with inside() as broker:
        producer = await ready(broker)
        await producer.init()
        fenced = E.invalid_producer_epoch if version < 2 else E.producer_fenced
        assert await producer.add(0, version=version, epoch=0) == [fenced]
        assert await producer.add_offsets(version, epoch=0) is fenced
        assert await producer.end(version, epoch=0) is fenced
        assert await producer.commit_offsets(version, epoch=0) is E.invalid_producer_epoch


@scenario
async def test_an_id_without_an_epoch_and_an_epoch_without_an_id_are_refused() -> None:
    async with inside() as broker:
        producer = await ready(broker)
        assert await producer.init(known=True, epoch=-1) is E.invalid_request
        producer.id = -1
        assert await producer.init(known=True, epoch=3) is E.invalid_request


# --- what is not part of a transaction ------------------------------------------------------------


@scenario
async def test_partitions_are_added_all_or_none() -> None:
    async with inside() as broker:
        producer = await ready(broker)
        unknown, untouched = E.unknown_topic_or_partition, E.operation_not_attempted
        assert await producer.add(0, 9) == [untouched, unknown]
        assert await producer.add(0, topic="nowhere") == [unknown]
        assert await producer.add(0, topic="__consumer_offsets") == [E.topic_authorization_failed]
        assert broker.services.transactions.describe(NAME).status.label == "Empty"


@pytest.mark.parametrize(
    ("version", "refusal"),
    [(9, E.invalid_txn_state), (10, E.invalid_txn_state), (11, E.transaction_abortable)],
)
@scenario
async def test_a_batch_outside_a_transaction_is_refused(version: int, refusal: E) -> None:
    async with inside() as broker:
        producer = await ready(broker)
        await producer.add(1)
        assert await producer.produce(0, version) is refusal


@scenario
async def test_nobody_writes_under_the_transaction_of_another() -> None:
    async with inside() as broker:
        producer = await ready(broker)
        stranger = batch([b"x"], producer=(99, 0), sequence=0, transactional=True)
        own = batch([b"x"], producer=(producer.id, 0), sequence=0, transactional=True)
        for rows in ([own, stranger], [stranger, own]):
            answer = await broker.ask(
                "produce",
                12,
                transactional_id=NAME,
                acks=-1,
                timeout=5_000,
                topic_data=[
                    {
                        "name": TOPIC,
                        "partition_data": [
                            {"index": index, "records": records}
                            for index, records in enumerate(rows)
                        ],
                    }
                ],
            )
            codes = [row.error_code for row in answer.responses[0].partition_responses]
            assert codes[rows.index(stranger)] is not E.none
        for index in (0, 1):
            found = (await producers(broker, index)).active_producers
            assert 99 not in [one.producer_id for one in found]


@pytest.mark.parametrize(
    ("version", "refusal"), [(3, E.invalid_txn_state), (4, E.transaction_abortable)]
)
@scenario
async def test_offsets_outside_a_transaction_are_refused(version: int, refusal: E) -> None:
    async with inside() as broker:
        producer = await ready(broker)
        assert await producer.commit_offsets(version) is refusal
        assert await producer.commit_offsets(topic="nowhere") is E.unknown_topic_or_partition
        assert await producer.commit_offsets(group="") is E.invalid_group_id


@pytest.mark.parametrize("version", [4, 5])
@scenario
async def test_brokers_add_and_verify_several_transactions_at_once(version: int) -> None:
    async with inside() as broker:
        producer = await ready(broker)

        async def ask(name: str, *indexes: int, verify_only: bool) -> Any:
            transaction = {
                "transactional_id": name,
                "producer_id": producer.id,
                "producer_epoch": producer.epoch,
                "verify_only": verify_only,
                "topics": [{"name": TOPIC, "partitions": indexes}],
            }
            answer = await broker.ask("add_partitions_to_txn", version, transactions=[transaction])
            (found,) = answer.results_by_transaction
            assert (answer.error_code, found.transactional_id) == (E.none, name)
            (rows,) = found.topic_results
            return [row.partition_error_code for row in rows.results_by_partition]

        assert await ask(NAME, 0, verify_only=True) == [E.transaction_abortable]
        assert await ask(NAME, 0, 1, verify_only=False) == [E.none, E.none]
        assert await ask(NAME, 0, 2, verify_only=True) == [E.none, E.transaction_abortable]
        assert await ask("nobody", 0, verify_only=True) == [E.invalid_producer_id_mapping]


# --- what people ask ------------------------------------------------------------------------------


@scenario
async def test_transactions_are_described() -> None:
    async with inside() as broker:
        producer = await ready(broker)
        await producer.add(0, 2)
        answer = await broker.ask("describe_transactions", 0, transactional_ids=[NAME, "x", ""])
        found, unknown, nameless = answer.transaction_states
        assert (found.transaction_state, found.producer_id) == ("Ongoing", producer.id)
        assert [(one.topic, one.partitions) for one in found.topics] == [(TOPIC, (0, 2))]
        assert unknown.error_code is E.transactional_id_not_found
        assert nameless.error_code is E.invalid_request


@scenario
async def test_a_transaction_that_has_not_begun_has_no_start() -> None:
    async with inside() as broker:
        await ready(broker)
        body = await broker.ask_raw("describe_transactions", 0, transactional_ids=[NAME])
        assert body.count(b"\xff" * 8) == 1


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, ["billing", "idle"]),
        ({"state_filters": ["Ongoing"]}, ["billing"]),
        ({"state_filters": ["Empty", "Dead"]}, ["idle"]),
        ({"state_filters": ["Nonsense"]}, []),
        ({"producer_id_filters": [0]}, ["billing"]),
        ({"producer_id_filters": [7]}, []),
        ({"duration_filter": 3_600_000, "state_filters": ["Ongoing"]}, []),
        ({"transactional_id_pattern": "b.*"}, ["billing"]),
        ({"transactional_id_pattern": "b"}, []),
        ({"transactional_id_pattern": ""}, ["billing", "idle"]),
    ],
)
@scenario
async def test_transactions_are_listed_by_filters(
    filters: dict[str, Any], found: list[str]
) -> None:
    async with inside() as broker:
        producer = await ready(broker)
        await producer.add(0)
        await Producer(broker, "idle").init()
        answer = await broker.ask("list_transactions", 2, **filters)
        assert [one.transactional_id for one in answer.transaction_states] == found
        unknown = tuple(name for name in filters.get("state_filters", ()) if name == "Nonsense")
        assert (answer.error_code, answer.unknown_state_filters) == (E.none, unknown)


@pytest.mark.parametrize("version", range(3))
@scenario
async def test_every_version_of_list_transactions_is_answered(version: int) -> None:
    async with inside() as broker:
        await ready(broker)
        answer = await broker.ask("list_transactions", version)
        assert [one.transactional_id for one in answer.transaction_states] == [NAME]


@scenario
async def test_a_pattern_that_is_none_is_refused() -> None:
    async with inside() as broker:
        answer = await broker.ask("list_transactions", 2, transactional_id_pattern="(")
        assert answer.error_code is E.invalid_regular_expression


async def producers(broker: Inside, index: int = 0, topic: str = TOPIC) -> Any:
    answer = await broker.ask(
        "describe_producers", 0, topics=[{"name": topic, "partition_indexes": [index]}]
    )
    return answer.topics[0].partitions[0]


@scenario
async def test_producers_of_a_partition_are_described() -> None:
    async with inside() as broker:
        producer = await ready(broker)
        await producer.add(0)
        await producer.produce(0)
        (found,) = (await producers(broker)).active_producers
        assert (found.producer_id, found.last_sequence) == (producer.id, 0)
        assert (found.current_txn_start_offset, found.coordinator_epoch) == (0, -1)
        assert (await producers(broker, 77)).error_code is E.unknown_topic_or_partition
        assert (await producers(broker, 0, "x")).error_code is E.unknown_topic_or_partition


@pytest.mark.parametrize("version", [1, 2])
@scenario
async def test_a_hanging_transaction_is_aborted_by_hand(version: int) -> None:
    async with inside() as broker:
        producer = await ready(broker)
        await producer.add(0)
        await producer.produce(0)

        async def mark(index: int, epoch: int) -> Any:
            marker = {
                "producer_id": producer.id,
                "producer_epoch": epoch,
                "transaction_result": False,
                "coordinator_epoch": 0,
                "topics": [{"name": TOPIC, "partition_indexes": [index]}],
            }
            answer = await broker.ask("write_txn_markers", version, markers=[marker])
            (found,) = answer.markers
            assert found.producer_id == producer.id
            return found.topics[0].partitions[0].error_code

        assert await mark(77, 0) is E.unknown_topic_or_partition
        assert await mark(0, -1) is E.invalid_request
        assert await mark(0, 0) is E.none
        (found,) = (await producers(broker)).active_producers
        assert found.current_txn_start_offset == -1
        assert await mark(0, 1) is E.none
        assert await mark(0, 0) is E.invalid_producer_epoch
