"""Metadata and DescribeTopicPartitions: which topics there are and who leads their partitions."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from penstock.errors import (
    BrokerError,
    InvalidRequest,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import INVALID_REQUEST, error_code
from penstock.kafka.handlers.access import (
    NOT_ASKED,
    cluster_operations,
    require_cluster,
    require_topic,
    topic_operations,
)
from penstock.model.quota import CONTROLLER_MUTATION_RATE
from penstock.model.topic import Topic, check_topic_name
from penstock.wire.kafka.codec import Shared

Payload = dict[str, Any]


@lru_cache(maxsize=1024)
def _partition_rows(node_id: int, leader_epoch: int, count: int) -> Shared:
    """The partitions of a topic. Alike for all topics of a size, so they are made and encoded once:
    a client that asks for everything must not stop the loop for each partition there is."""
    only = (node_id,)
    return Shared(
        {
            "error_code": 0,
            "partition_index": partition,
            "leader_id": node_id,
            "leader_epoch": leader_epoch,
            "replica_nodes": only,
            "isr_nodes": only,
            "eligible_leader_replicas": (),  # null here ends the Java client's describeTopics
            "last_known_elr": (),
            "offline_replicas": (),
        }
        for partition in range(count)
    )


def _topic_row(ctx: RequestContext, topic: Topic, with_operations: bool) -> Payload:
    epoch = ctx.broker.partitions.leader_epoch
    return {
        "error_code": 0,
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.internal,
        "partitions": _partition_rows(ctx.broker.cluster.node_id, epoch, topic.partition_count),
        "topic_authorized_operations": (
            topic_operations(ctx, topic.name) if with_operations else NOT_ASKED
        ),
    }


def _failed_row(failure: BrokerError, name: str | None, topic_id: uuid.UUID | None) -> Payload:
    return {
        "error_code": error_code(failure),
        "name": name,
        "topic_id": topic_id,
        "partitions": (),
        "topic_authorized_operations": NOT_ASKED,
    }


async def metadata(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """The brokers, and the topics asked for, which may come into being by being asked for."""
    with_operations = getattr(request, "include_topic_authorized_operations", False)
    wanted = request.topics
    if wanted is None or (ctx.api_version == 0 and not wanted):
        topics = [
            _topic_row(ctx, topic, with_operations)
            for topic in ctx.broker.topics.all()
            if ctx.allow("Describe", "Topic", topic.name)
        ]
    else:
        may_create = getattr(request, "allow_auto_topic_creation", True)
        asked = dict.fromkeys((each.name, getattr(each, "topic_id", None)) for each in wanted)
        topics = await asyncio.gather(
            *(_one(ctx, name, id_, may_create, with_operations) for name, id_ in asked)
        )
    answer: Payload = {
        "throttle_time": ctx.throttle_ms,
        "brokers": [
            {"node_id": node.id, "host": node.host, "port": node.port, "rack": node.rack}
            for node in ctx.broker.cluster.nodes
        ],
        "cluster_id": ctx.broker.cluster.cluster_id,
        "controller_id": ctx.broker.cluster.controller_id,
        "topics": topics,
    }
    if getattr(request, "include_cluster_authorized_operations", False):
        answer["cluster_authorized_operations"] = cluster_operations(ctx)
    return answer


async def _one(
    ctx: RequestContext,
    name: str | None,
    topic_id: uuid.UUID | None,
    may_create: bool,
    with_operations: bool,
) -> Payload:
    """One topic by id, when there is one, else by name."""
    try:
        if topic_id is not None:
            found = ctx.broker.topics.by_id(topic_id)
            if found is None or not ctx.allow("Describe", "Topic", found.name):
                raise UnknownTopicId(f"no topic has the id {topic_id}")
            topic = found
        elif name is None:
            raise InvalidRequest("a topic is asked for by neither name nor id")
        else:
            require_topic(ctx, "Describe", name)
            topic = ctx.broker.topics.find(name) or await _create(ctx, name, may_create)
    except BrokerError as failure:
        # Without a name there must be an id, and the reverse (schema of MetadataResponse).
        return _failed_row(failure, "" if topic_id is None and name is None else name, topic_id)
    return _topic_row(ctx, topic, with_operations)


async def _create(ctx: RequestContext, name: str, may_create: bool) -> Topic:
    check_topic_name(name)
    if not may_create or not ctx.broker.topics.defaults.auto_create:
        raise UnknownTopicOrPartition(f"there is no topic {name!r}")
    if not ctx.allow("Create", "Topic", name):
        require_cluster(ctx, "Create")
    topic = await ctx.broker.topics.auto_create(name)
    ctx.throttle(CONTROLLER_MUTATION_RATE, topic.partition_count)
    return topic


async def describe_topic_partitions(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Topics in the order of their names, a page of partitions at a time (KIP-966)."""
    names = sorted({each.name for each in request.topics}) or list(ctx.broker.topics.names())
    cursor = request.cursor
    first = 0
    if cursor is not None:
        if cursor.partition_index < 0:
            return {
                "topics": [{"error_code": INVALID_REQUEST, "name": name} for name in names],
                "next_cursor": None,
            }
        names = [name for name in names if name >= cursor.topic_name]
        if names and names[0] == cursor.topic_name:
            first = cursor.partition_index
    most = min(request.response_partition_limit, ctx.broker.config.max_request_partition_size_limit)
    page = _Page(max(1, most))
    return {"topics": list(page.fill(ctx, names, first)), "next_cursor": page.next_cursor}


class _Page:
    """One answer's worth of partitions, and where the next one begins."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.next_cursor: Payload | None = None

    def fill(self, ctx: RequestContext, names: Sequence[str], first: int) -> Iterator[Payload]:
        for name in names:
            if self._room == 0:
                self.next_cursor = {"topic_name": name, "partition_index": first}
                return
            try:
                check_topic_name(name)
                require_topic(ctx, "Describe", name)
                row = _topic_row(ctx, ctx.broker.topics.get(name), with_operations=True)
            except BrokerError as failure:
                yield _failed_row(failure, name, None)
                continue
            partitions = row["partitions"][first : first + self._room]
            self._room -= len(partitions)
            after = first + len(partitions)
            yield {**row, "partitions": partitions}
            if after < len(row["partitions"]):
                self.next_cursor = {"topic_name": name, "partition_index": after}
                return
            first = 0
