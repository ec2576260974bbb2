"""DescribeCluster, DescribeLogDirs, ElectLeaders and reassignments on one node."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from support.admin import (
    ALTER_REASSIGNMENTS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
    ELECT_LEADERS,
    LIST_REASSIGNMENTS,
    Admin,
    admin,
)
from support.scenario import scenario


@pytest.mark.parametrize("version", range(3))
@scenario
async def test_the_cluster_is_one_broker_that_is_its_own_controller(version: int) -> None:
    async with admin() as broker:
        answer = await broker.ask(DESCRIBE_CLUSTER, version)
        assert (answer.error_code, answer.cluster_id) == (ErrorCode.none, "a-cluster-of-one")
        (node,) = answer.brokers
        assert (node.broker_id, node.host, node.port, node.rack) == (1, "127.0.0.1", 9092, None)
        assert answer.controller_id == 1
        assert answer.cluster_authorized_operations == -(2**31)
        if version >= 2:
            assert not node.is_fenced
        told = await broker.ask(
            DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True
        )
        assert told.cluster_authorized_operations == 8096


@pytest.mark.parametrize(
    ("endpoint", "error"),
    [(2, ErrorCode.mismatched_endpoint_type), (3, ErrorCode.unsupported_endpoint_type)],
)
@scenario
async def test_only_brokers_are_described_here(endpoint: int, error: ErrorCode) -> None:
    async with admin() as broker:
        answer = await broker.ask(DESCRIBE_CLUSTER, 2, endpoint_type=endpoint)
        assert (answer.error_code, answer.brokers) == (error, ())
        assert answer.error_message


async def sizes(broker: Admin, version: int, topics: Any) -> dict[tuple[str, int], int]:
    answer = await broker.ask(DESCRIBE_LOG_DIRS, version, topics=topics)
    (directory,) = answer.results
    assert directory.error_code is ErrorCode.none
    assert directory.log_dir
    return {
        (topic.name, part.partition_index): part.partition_size
        for topic in directory.topics
        for part in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
@scenario
async def test_partitions_are_listed_with_their_bytes_without_opening_empty_ones(
    version: int,
) -> None:
    async with admin() as broker:
        await broker.topics.create("orders", partitions=2)
        await broker.topics.create("other", partitions=1)
        nothing = {("orders", 0): 0, ("orders", 1): 0}
        assert await sizes(broker, version, None) == {**nothing, ("other", 0): 0}
        asked = [
            {"topic": "orders", "partitions": (1, 99)},
            {"topic": "ghost", "partitions": (0,)},
        ]
        assert await sizes(broker, version, asked) == {("orders", 1): 0}
        assert await sizes(broker, version, []) == {}
        assert broker.services.partitions.find("orders", 0) is None


@pytest.mark.parametrize("version", range(3))
@scenario
async def test_the_only_replica_needs_no_election(version: int) -> None:
    async with admin() as broker:
        await broker.topics.create("orders", partitions=1)
        asked = [
            {"topic": "orders", "partitions": (0, 9)},
            {"topic": "ghost", "partitions": (0,)},
        ]
        answer = await broker.ask(ELECT_LEADERS, version, topic_partitions=asked)
        results = {
            (topic.topic, part.partition_id): part.error_code
            for topic in answer.replica_election_results
            for part in topic.partition_result
        }
        assert results == {
            ("orders", 0): ErrorCode.election_not_needed,
            ("orders", 9): ErrorCode.unknown_topic_or_partition,
            ("ghost", 0): ErrorCode.unknown_topic_or_partition,
        }
        everything = await broker.ask(ELECT_LEADERS, version, topic_partitions=None)
        assert everything.replica_election_results == ()


@scenario
async def test_an_unknown_kind_of_election_is_refused() -> None:
    async with admin() as broker:
        answer = await broker.ask(ELECT_LEADERS, 2, election_type=7, topic_partitions=None)
        assert answer.error_code is ErrorCode.invalid_request


@scenario
async def test_no_reassignment_is_ever_under_way() -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        answer = await broker.ask(LIST_REASSIGNMENTS, 0, topics=None)
        assert (answer.error_code, answer.topics) == (ErrorCode.none, ())


@pytest.mark.parametrize("version", range(2))
@scenario
async def test_partitions_stay_where_they_are(version: int) -> None:
    async with admin() as broker:
        await broker.topics.create("orders", partitions=4)
        wishes = {0: (1,), 1: None, 2: (7,), 3: (), 99: (1,)}
        parts = [{"partition_index": n, "replicas": each} for n, each in wishes.items()]
        answer = await broker.ask(
            ALTER_REASSIGNMENTS, version, topics=[{"name": "orders", "partitions": parts}]
        )
        rows = answer.responses[0].partitions
        assert {row.partition_index: row.error_code for row in rows} == {
            0: ErrorCode.none,
            1: ErrorCode.no_reassignment_in_progress,
            2: ErrorCode.invalid_replica_assignment,
            3: ErrorCode.invalid_replica_assignment,
            99: ErrorCode.unknown_topic_or_partition,
        }
