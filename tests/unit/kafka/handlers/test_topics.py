"""CreateTopics, DeleteTopics and CreatePartitions, in every version."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from penstock.model.quota import QuotaOperation
from penstock.model.topic import OFFSETS_TOPIC
from support.admin import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    Admin,
    admin,
)
from support.scenario import scenario


def wanted(name: str, partitions: int = -1, replicas: int = -1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": replicas, **more}


def with_config(name: str, **config: str | None) -> dict[str, Any]:
    entries = [{"name": key.replace("_", "."), "value": text} for key, text in config.items()]
    return wanted(name, configs=entries)


def assigned(name: str, *replicas: tuple[int, ...], **more: Any) -> dict[str, Any]:
    rows = [{"partition_index": n, "broker_ids": each} for n, each in enumerate(replicas)]
    return wanted(name, assignments=rows, **more)


async def create(broker: Admin, *topics: dict[str, Any], version: int = 7, **more: Any) -> Any:
    return (await broker.ask(CREATE_TOPICS, version, topics=topics, **more)).topics


@pytest.mark.parametrize("version", range(2, 8))
@scenario
async def test_every_version_creates(version: int) -> None:
    async with admin() as broker:
        (row,) = await create(broker, wanted("orders", 3, 1), version=version)
        assert (row.name, row.error_code, row.error_message) == ("orders", ErrorCode.none, None)
        topic = broker.topics.get("orders")
        assert topic.partition_count == 3
        if version >= 5:
            assert (row.num_partitions, row.replication_factor) == (3, 1)
            assert len(row.configs) == 35
        if version >= 7:
            assert row.topic_id == topic.id


@scenario
async def test_minus_one_asks_for_the_defaults_and_the_answer_says_what_was_given() -> None:
    async with admin() as broker:
        (row,) = await create(broker, with_config("orders", retention_ms="5"))
        assert (row.num_partitions, row.replication_factor) == (4, 1)
        retention = next(each for each in row.configs if each.name == "retention.ms")
        assert (retention.value, retention.config_source) == ("5", 1)


@scenario
async def test_validating_creates_nothing() -> None:
    async with admin() as broker:
        (row,) = await create(broker, wanted("orders", 3), validate_only=True)
        assert (row.error_code, row.num_partitions) == (ErrorCode.none, 3)
        assert len(broker.topics) == 0


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (wanted(""), ErrorCode.invalid_topic_exception),
        (wanted("a b"), ErrorCode.invalid_topic_exception),
        (wanted("x" * 250), ErrorCode.invalid_topic_exception),
        (wanted("t", 0), ErrorCode.invalid_partitions),
        (wanted("t", -2), ErrorCode.invalid_partitions),
        (wanted("t", 20_000), ErrorCode.policy_violation),
        (wanted("t", 1, 0), ErrorCode.invalid_replication_factor),
        (wanted("t", 1, 3), ErrorCode.invalid_replication_factor),
        (with_config("t", nope="1"), ErrorCode.invalid_config),
        (with_config("t", retention_ms="x"), ErrorCode.invalid_config),
        (with_config("t", retention_ms=None), ErrorCode.invalid_config),
        (assigned("t", (7,)), ErrorCode.invalid_replica_assignment),
        (assigned("t", (1, 1)), ErrorCode.invalid_replica_assignment),
        (assigned("t", ()), ErrorCode.invalid_replica_assignment),
        (assigned("t", (1,), num_partitions=1), ErrorCode.invalid_request),
        (assigned("t", (1,), replication_factor=1), ErrorCode.invalid_request),
        (wanted("exists"), ErrorCode.topic_already_exists),
        (wanted("a_b"), ErrorCode.invalid_topic_exception),
        (wanted(OFFSETS_TOPIC), ErrorCode.policy_violation),
    ],
)
@scenario
async def test_refusals_are_kafkas(topic: dict[str, Any], error: ErrorCode) -> None:
    async with admin() as broker:
        await broker.topics.create("exists")
        await broker.topics.create("a.b")
        (row,) = await create(broker, topic)
        assert row.error_code is error
        assert row.error_message
        assert (row.topic_id, row.num_partitions, row.configs) == (None, -1, ())
        assert broker.topics.names() == ["a.b", "exists"]


@scenario
async def test_one_bad_topic_does_not_spoil_the_others() -> None:
    async with admin() as broker:
        rows = await create(broker, wanted("good"), wanted("a b"), wanted("fine"))
        errors = [row.error_code for row in rows]
        assert errors == [ErrorCode.none, ErrorCode.invalid_topic_exception, ErrorCode.none]
        assert broker.topics.names() == ["fine", "good"]


@scenario
async def test_a_name_given_twice_is_refused_once_and_not_created() -> None:
    async with admin() as broker:
        rows = await create(broker, wanted("twin"), wanted("other"), wanted("twin"))
        assert {row.name: row.error_code for row in rows} == {
            "twin": ErrorCode.invalid_request,
            "other": ErrorCode.none,
        }
        assert broker.topics.names() == ["other"]


@scenario
async def test_of_a_setting_given_twice_the_last_one_counts() -> None:
    async with admin() as broker:
        entries = [{"name": "retention.ms", "value": text} for text in ("1", "2")]
        (row,) = await create(broker, wanted("a", configs=entries))
        assert row.error_code == ErrorCode.none
        assert broker.topics.get("a").config == {"retention.ms": "2"}


@scenario
async def test_a_partition_assigned_twice_is_refused() -> None:
    async with admin() as broker:
        part = {"partition_index": 0, "broker_ids": (1,)}
        (row,) = await create(broker, wanted("b", assignments=[part, part]))
        assert row.error_code == ErrorCode.invalid_replica_assignment


@scenario
async def test_a_manual_assignment_to_this_broker_is_taken() -> None:
    async with admin() as broker:
        (row,) = await create(broker, assigned("orders", (1,), (1,), (1,)))
        assert (row.error_code, row.num_partitions) == (ErrorCode.none, 3)


# --- deleting -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(1, 6))
@scenario
async def test_topics_are_deleted_by_name(version: int) -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        answer = await broker.ask(DELETE_TOPICS, version, topic_names=["orders", "ghost"])
        assert [(row.name, row.error_code) for row in answer.responses] == [
            ("orders", ErrorCode.none),
            ("ghost", ErrorCode.unknown_topic_or_partition),
        ]
        assert len(broker.topics) == 0


async def delete(broker: Admin, *wanted: tuple[str | None, uuid.UUID | None]) -> Any:
    topics = [{"name": name, "topic_id": id_} for name, id_ in wanted]
    return (await broker.ask(DELETE_TOPICS, 6, topics=topics)).responses


@scenario
async def test_topics_are_deleted_by_id() -> None:
    async with admin() as broker:
        topic, stranger = await broker.topics.create("orders"), uuid.uuid4()
        known, unknown = await delete(broker, (None, topic.id), (None, stranger))
        assert (known.name, known.topic_id) == ("orders", topic.id)
        assert known.error_code is ErrorCode.none
        assert (unknown.name, unknown.topic_id) == (None, stranger)
        assert unknown.error_code is ErrorCode.unknown_topic_id
        assert len(broker.topics) == 0


@scenario
async def test_deleting_is_refused_where_the_request_is_unclear() -> None:
    async with admin() as broker:
        topic = await broker.topics.create("orders")
        both, neither = await delete(broker, ("orders", topic.id), (None, None))
        assert both.error_code is neither.error_code is ErrorCode.invalid_request
        (twice,) = await delete(broker, ("orders", None), ("orders", None))
        assert twice.error_code is ErrorCode.invalid_request
        assert broker.topics.names() == ["orders"]


@scenario
async def test_the_brokers_own_topics_are_not_deleted() -> None:
    async with admin() as broker:
        await broker.topics.ensure_internal(OFFSETS_TOPIC)
        (row,) = await delete(broker, (OFFSETS_TOPIC, None))
        assert row.error_code is ErrorCode.policy_violation


@scenario
async def test_deleting_may_be_switched_off() -> None:
    async with admin(delete_topic_enable=False) as broker:
        await broker.topics.create("orders")
        (row,) = await delete(broker, ("orders", None))
        assert row.error_code is ErrorCode.topic_deletion_disabled
        old = await broker.ask(DELETE_TOPICS, 1, topic_names=["orders"])
        assert old.responses[0].error_code is ErrorCode.invalid_request
        assert broker.topics.names() == ["orders"]


# --- growing --------------------------------------------------------------------------------------


async def grow(broker: Admin, *rows: dict[str, Any], version: int = 3, **more: Any) -> Any:
    return (await broker.ask(CREATE_PARTITIONS, version, topics=rows, **more)).results


@pytest.mark.parametrize("version", range(4))
@scenario
async def test_topics_grow(version: int) -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        rows = await grow(
            broker, {"name": "orders", "count": 6, "assignments": None}, version=version
        )
        assert [(row.name, row.error_code) for row in rows] == [("orders", ErrorCode.none)]
        assert broker.topics.get("orders").partition_count == 6


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"name": "orders", "count": 4}, ErrorCode.invalid_partitions),
        ({"name": "orders", "count": 3}, ErrorCode.invalid_partitions),
        ({"name": "orders", "count": 20_000}, ErrorCode.policy_violation),
        ({"name": "ghost", "count": 9}, ErrorCode.unknown_topic_or_partition),
        (
            {"name": "orders", "count": 6, "assignments": [{"broker_ids": (1,)}]},
            ErrorCode.invalid_replica_assignment,
        ),
        (
            {"name": "orders", "count": 5, "assignments": [{"broker_ids": (7,)}]},
            ErrorCode.invalid_replica_assignment,
        ),
        ({"name": "orders", "count": 5, "assignments": []}, ErrorCode.invalid_replica_assignment),
    ],
)
@scenario
async def test_growing_in_ways_that_cannot_be_is_refused(
    row: dict[str, Any], error: ErrorCode
) -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        (answer,) = await grow(broker, {"assignments": None, **row})
        assert answer.error_code is error
        assert answer.error_message
        assert broker.topics.get("orders").partition_count == 4


@scenario
async def test_growing_can_be_checked_only() -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        row = {"name": "orders", "count": 5, "assignments": [{"broker_ids": (1,)}]}
        (answer,) = await grow(broker, row, validate_only=True)
        assert answer.error_code is ErrorCode.none
        assert broker.topics.get("orders").partition_count == 4
        twice = await grow(broker, row, row)
        assert [each.error_code for each in twice] == [ErrorCode.invalid_request]


# --- the mutation quota ---------------------------------------------------------------------------


async def limit_mutations(broker: Admin, rate: float) -> None:
    operation = QuotaOperation("controller_mutation_rate", rate, False)
    await broker.quotas.alter([("client-id", "test")], [operation])


@scenario
async def test_new_clients_over_their_quota_are_refused_and_told_when_to_come_back() -> None:
    async with admin() as broker:
        await limit_mutations(broker, 1)  # a burst of 11
        (row,) = await create(broker, wanted("first", 12))
        assert row.error_code is ErrorCode.none
        assert broker.throttle_ms == 0
        (row,) = await create(broker, wanted("second", 1))
        assert row.error_code is ErrorCode.throttling_quota_exceeded
        assert broker.throttle_ms == 1000
        (row,) = await delete(broker, ("first", None))
        assert row.error_code is ErrorCode.throttling_quota_exceeded
        (row,) = await grow(broker, {"name": "first", "count": 13, "assignments": None})
        assert row.error_code is ErrorCode.throttling_quota_exceeded
        broker.clock.advance(1000)
        (row,) = await create(broker, wanted("second", 1))
        assert row.error_code is ErrorCode.none


@scenario
async def test_old_clients_over_their_quota_are_only_slowed_down() -> None:
    async with admin() as broker:
        await limit_mutations(broker, 1)
        await create(broker, wanted("first", 12), version=5)
        (row,) = await create(broker, wanted("second", 1), version=5)
        assert row.error_code is ErrorCode.none
        assert broker.throttle_ms == 2000


@scenario
async def test_checking_costs_nothing() -> None:
    async with admin() as broker:
        await limit_mutations(broker, 1)
        await create(broker, wanted("first", 5000), validate_only=True)
        assert broker.throttle_ms == 0
