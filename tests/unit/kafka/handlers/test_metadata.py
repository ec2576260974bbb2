"""Metadata and DescribeTopicPartitions, in every version."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from penstock.model.topic import OFFSETS_TOPIC
from support.admin import DESCRIBE_TOPIC_PARTITIONS, METADATA, Admin, admin
from support.scenario import scenario

NOT_ASKED = -(2**31)
ALL_TOPIC_OPERATIONS = 3576  # what Kafka answers to a client that may do everything
ALL_CLUSTER_OPERATIONS = 8096


async def ask(broker: Admin, *names: str, version: int = 13, **more: Any) -> Any:
    topics = [{"name": name} for name in names]
    return await broker.ask(METADATA, version, topics=topics, **more)


@pytest.mark.parametrize("version", range(14))
@scenario
async def test_every_version_names_broker_topic_and_leader(version: int) -> None:
    async with admin() as broker:
        topic = await broker.topics.create("orders", partitions=2)
        answer = await ask(broker, "orders", version=version)
        (node,) = answer.brokers
        assert (node.node_id, node.host, node.port) == (1, "127.0.0.1", 9092)
        (row,) = answer.topics
        assert (row.name, row.error_code) == ("orders", ErrorCode.none)
        assert [part.partition_index for part in row.partitions] == [0, 1]
        for part in row.partitions:
            assert (part.leader_id, part.replica_nodes, part.isr_nodes) == (1, (1,), (1,))
        if version >= 1:
            assert answer.controller_id == 1
        if version >= 2:
            assert answer.cluster_id == "a-cluster-of-one"
        if version >= 5:
            assert row.partitions[0].offline_replicas == ()
        if version >= 7:
            assert row.partitions[0].leader_epoch == 0
        if version >= 10:
            assert row.topic_id == topic.id


@pytest.mark.parametrize("version", range(14))
@scenario
async def test_all_topics_are_asked_for_by_null_or_in_version_0_by_nothing(version: int) -> None:
    async with admin() as broker:
        await broker.topics.create("a")
        await broker.topics.create("b")
        nothing = await broker.ask(METADATA, version, topics=[])
        everything = [] if version == 0 else None
        answer = await broker.ask(METADATA, version, topics=everything)
        assert [row.name for row in answer.topics] == ["a", "b"]
        assert len(nothing.topics) == (2 if version == 0 else 0)


@scenario
async def test_internal_topics_say_so() -> None:
    async with admin() as broker:
        await broker.topics.ensure_internal(OFFSETS_TOPIC)
        await broker.topics.create("mine")
        answer = await broker.ask(METADATA, 13, topics=None)
        assert {row.name: row.is_internal for row in answer.topics} == {
            OFFSETS_TOPIC: True,
            "mine": False,
        }


@scenario
async def test_a_topic_comes_into_being_by_being_asked_for() -> None:
    async with admin() as broker:
        (row,) = (await ask(broker, "new", allow_auto_topic_creation=True)).topics
        assert (row.error_code, len(row.partitions)) == (ErrorCode.none, 4)
        assert broker.topics.get("new").partition_count == 4
        (old,) = (await ask(broker, "older", version=3)).topics
        assert old.error_code is ErrorCode.none
        (offsets,) = (await ask(broker, OFFSETS_TOPIC, allow_auto_topic_creation=True)).topics
        assert (offsets.is_internal, len(offsets.partitions)) == (True, 50)


@scenario
async def test_a_topic_does_not_come_into_being_unless_client_and_broker_want_it() -> None:
    async with admin() as broker:
        (row,) = (await ask(broker, "new", allow_auto_topic_creation=False)).topics
        assert (row.error_code, row.name) == (ErrorCode.unknown_topic_or_partition, "new")
    async with admin(auto_create_topics_enable=False) as broker:
        (row,) = (await ask(broker, "new", allow_auto_topic_creation=True)).topics
        assert row.error_code is ErrorCode.unknown_topic_or_partition
        assert len(broker.topics) == 0


@scenario
async def test_many_clients_asking_for_a_new_topic_get_the_same_one() -> None:
    async with admin() as broker:
        answers = await asyncio.gather(
            *(ask(broker, "new", allow_auto_topic_creation=True) for _ in range(20))
        )
        assert len({answer.topics[0].topic_id for answer in answers}) == 1


@scenario
async def test_names_that_cannot_be_topics_are_refused_one_by_one() -> None:
    async with admin() as broker:
        await broker.topics.create("good")
        answer = await ask(broker, "good", "a b", "", "x" * 250, allow_auto_topic_creation=True)
        assert [row.error_code for row in answer.topics] == [
            ErrorCode.none,
            ErrorCode.invalid_topic_exception,
            ErrorCode.invalid_topic_exception,
            ErrorCode.invalid_topic_exception,
        ]


@scenario
async def test_a_topic_is_found_by_id_and_an_unknown_id_is_said_to_be_unknown() -> None:
    async with admin() as broker:
        topic, stranger = await broker.topics.create("orders"), uuid.uuid4()
        answer = await broker.ask(
            METADATA,
            12,
            topics=[{"topic_id": topic.id, "name": None}, {"topic_id": stranger, "name": None}],
        )
        known, unknown = answer.topics
        assert (known.name, known.error_code) == ("orders", ErrorCode.none)
        assert (unknown.name, unknown.topic_id) == (None, stranger)
        assert unknown.error_code is ErrorCode.unknown_topic_id


@scenario
async def test_a_topic_named_twice_is_answered_once() -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        assert len((await ask(broker, "orders", "orders")).topics) == 1


@scenario
async def test_allowed_operations_are_given_only_when_asked_for() -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        silent = await ask(broker, "orders", version=9)
        assert silent.topics[0].topic_authorized_operations == NOT_ASKED
        assert silent.cluster_authorized_operations == NOT_ASKED
        told = await ask(
            broker,
            "orders",
            version=9,
            include_topic_authorized_operations=True,
            include_cluster_authorized_operations=True,
        )
        assert told.topics[0].topic_authorized_operations == ALL_TOPIC_OPERATIONS
        assert told.cluster_authorized_operations == ALL_CLUSTER_OPERATIONS


# --- DescribeTopicPartitions ----------------------------------------------------------------------


async def page(
    broker: Admin, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[list[tuple[str, list[int]]], tuple[str, int] | None]:
    answer = await broker.ask(
        DESCRIBE_TOPIC_PARTITIONS,
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
    )
    rows = [(row.name, [part.partition_index for part in row.partitions]) for row in answer.topics]
    after = answer.next_cursor
    return rows, after and (after.topic_name, after.partition_index)


@scenario
async def test_pages_follow_each_other_without_gap_or_overlap() -> None:
    async with admin() as broker:
        for name, count in (("c", 4), ("a", 3), ("b", 1)):
            await broker.topics.create(name, partitions=count)
        seen: list[tuple[str, int]] = []
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            rows, cursor = await page(broker, limit=2, cursor=cursor)
            seen += [(name, part) for name, parts in rows for part in parts]
            pages += 1
        expected = [(name, part) for name, n in (("a", 3), ("b", 1), ("c", 4)) for part in range(n)]
        assert seen == expected
        assert pages == 4


@scenario
async def test_nothing_is_null_that_the_java_client_cannot_bear() -> None:
    async with admin() as broker:
        await broker.topics.create("a", partitions=1)
        answer = await broker.ask(DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": "a"}])
        (part,) = answer.topics[0].partitions
        assert part.eligible_leader_replicas == ()
        assert part.last_known_elr == ()
        assert answer.topics[0].topic_authorized_operations == ALL_TOPIC_OPERATIONS


@scenario
async def test_topics_come_sorted_and_unknown_ones_are_said_to_be_unknown() -> None:
    async with admin() as broker:
        await broker.topics.create("m", partitions=1)
        answer = await broker.ask(
            DESCRIBE_TOPIC_PARTITIONS, 0, topics=[{"name": name} for name in ("z", "m", "a b")]
        )
        assert [(row.name, row.error_code) for row in answer.topics] == [
            ("a b", ErrorCode.invalid_topic_exception),
            ("m", ErrorCode.none),
            ("z", ErrorCode.unknown_topic_or_partition),
        ]


@scenario
async def test_a_cursor_may_name_a_topic_that_is_gone() -> None:
    async with admin() as broker:
        await broker.topics.create("a", partitions=2)
        await broker.topics.create("c", partitions=2)
        assert await page(broker, cursor=("b", 1)) == ([("c", [0, 1])], None)
        assert await page(broker, cursor=("a", 9)) == ([("a", []), ("c", [0, 1])], None)
        assert await page(broker, cursor=("z", 0)) == ([], None)


@scenario
async def test_a_page_has_at_least_one_partition_and_at_most_what_the_broker_allows() -> None:
    async with admin(max_request_partition_size_limit=3) as broker:
        await broker.topics.create("a", partitions=9)
        assert await page(broker, limit=0) == ([("a", [0])], ("a", 1))
        assert await page(broker, limit=-5) == ([("a", [0])], ("a", 1))
        assert await page(broker, limit=2**31 - 1) == ([("a", [0, 1, 2])], ("a", 3))


@scenario
async def test_a_negative_cursor_is_refused() -> None:
    async with admin() as broker:
        await broker.topics.create("a")
        answer = await broker.ask(
            DESCRIBE_TOPIC_PARTITIONS,
            0,
            topics=[{"name": "a"}],
            cursor={"topic_name": "a", "partition_index": -1},
        )
        assert [row.error_code for row in answer.topics] == [ErrorCode.invalid_request]
