"""CreateTopics, DeleteTopics and CreatePartitions.

Every topic of a request succeeds or fails by itself. Creating and deleting partitions is counted
against `controller_mutation_rate`; clients new enough to understand are refused while over it, the
others only slowed down (KIP-599).
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import (
    BrokerError,
    InvalidReplicaAssignment,
    InvalidRequest,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import INVALID_REQUEST, TOPIC_DELETION_DISABLED, error_code
from penstock.kafka.handlers.access import require_cluster, require_topic
from penstock.kafka.handlers.metadata import describe_topic_partitions, metadata
from penstock.model.quota import CONTROLLER_MUTATION_RATE
from penstock.model.topic import Topic

__all__ = [
    "create_partitions",
    "create_topics",
    "delete_topics",
    "describe_topic_partitions",
    "metadata",
]

Payload = dict[str, Any]

# From these versions on a client knows THROTTLING_QUOTA_EXCEEDED (KIP-599).
_STRICT_CREATE, _STRICT_DELETE, _STRICT_GROW = 6, 5, 3


def _charge(ctx: RequestContext, partitions: int, strict_from: int) -> None:
    """Count a change of so many partitions; raise when the caller is over its quota already.

    A caller that can be refused is not slowed down for what it was allowed: it may overdraw once,
    and what it asks next is refused with the time after which it may ask again.
    """
    if ctx.api_version < strict_from:
        ctx.throttle(CONTROLLER_MUTATION_RATE, partitions)
        return
    who, now_ms = (ctx.principal, ctx.client_id), ctx.broker.clock.now_ms()
    ctx.throttle(CONTROLLER_MUTATION_RATE, 0)  # what is overdrawn until now
    ctx.broker.quotas.check_mutations(*who, now_ms)
    ctx.broker.quotas.record(CONTROLLER_MUTATION_RATE, *who, partitions, now_ms)


def _twice(names: Sequence[Any]) -> set[Any]:
    return {name for name, times in Counter(names).items() if times > 1}


# --- creating -------------------------------------------------------------------------------------


async def create_topics(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Create topics, or with `validate_only` say whether they could be."""
    duplicates = _twice([wanted.name for wanted in request.topics])
    unique = {wanted.name: wanted for wanted in request.topics}
    rows = await asyncio.gather(
        *(
            _create(ctx, wanted, request.validate_only, wanted.name in duplicates)
            for wanted in unique.values()
        )
    )
    return {"throttle_time": ctx.throttle_ms, "topics": rows}


async def _create(ctx: RequestContext, wanted: Any, validate_only: bool, twice: bool) -> Payload:
    try:
        if twice:
            raise InvalidRequest("Duplicate topic name.")
        if not ctx.allow("Create", "Topic", wanted.name):
            require_cluster(ctx, "Create")
        assignment = _assignment(wanted)
        if not validate_only:
            count = len(assignment) or wanted.num_partitions
            default = ctx.broker.topics.defaults.partitions
            _charge(ctx, count if count > 0 else default, _STRICT_CREATE)
        topic = await ctx.broker.topics.create(
            wanted.name,
            partitions=wanted.num_partitions,
            replication_factor=wanted.replication_factor,
            assignment=assignment,
            config=_config(wanted),
            validate_only=validate_only,
        )
    except BrokerError as failure:
        # `configs` may be null in the schema, but null ends the Java client.
        return {
            "name": wanted.name,
            "topic_id": None,
            "error_code": error_code(failure),
            "error_message": str(failure),
            "num_partitions": -1,
            "replication_factor": -1,
            "configs": (),
        }
    return _created(ctx, topic)


def _created(ctx: RequestContext, topic: Topic) -> Payload:
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "error_code": 0,
        "error_message": None,
        "num_partitions": topic.partition_count,
        "replication_factor": topic.replication_factor,
        "configs": [
            {
                "name": setting.name,
                "value": None if setting.sensitive else setting.value,
                "read_only": setting.read_only,
                "config_source": int(setting.source),
                "is_sensitive": setting.sensitive,
            }
            for setting in ctx.broker.configs.describe_topic_config(topic.config)
        ]
        if ctx.api_version >= 5
        else (),
    }


def _assignment(wanted: Any) -> dict[int, Sequence[int]]:
    assignment = {row.partition_index: row.broker_ids for row in wanted.assignments}
    if len(assignment) != len(wanted.assignments):
        raise InvalidReplicaAssignment("A partition is assigned twice.")
    return assignment


def _config(wanted: Any) -> dict[str, str | None]:
    """What the topic shall be configured with; of a setting given twice the last one counts."""
    return {entry.name: entry.value for entry in wanted.configs}


# --- deleting -------------------------------------------------------------------------------------

_Named = tuple[str | None, uuid.UUID | None]


async def delete_topics(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Delete topics by name or, from version 6, by id."""
    wanted: list[_Named]
    if ctx.api_version >= 6:
        wanted = [(each.name, each.topic_id) for each in request.topics]
    else:
        wanted = [(name, None) for name in request.topic_names]
    if not ctx.broker.config.delete_topic_enable:
        code = TOPIC_DELETION_DISABLED if ctx.api_version >= 3 else INVALID_REQUEST
        rows = [{"name": name, "topic_id": id_, "error_code": code} for name, id_ in wanted]
        return {"responses": rows}
    answers = await asyncio.gather(*(_delete(ctx, each) for each in _look_up(ctx, wanted)))
    return {"throttle_time": ctx.throttle_ms, "responses": answers}


def _look_up(ctx: RequestContext, wanted: Sequence[_Named]) -> list[Topic | Payload]:
    """The topics to delete, or why not; what is named twice, by name and id too, is refused."""
    duplicates = _twice([each for each in wanted if each != (None, None)])
    found: list[Topic | Payload] = []
    for name, topic_id in dict.fromkeys(wanted):
        try:
            if (name, topic_id) in duplicates:
                raise InvalidRequest("Duplicate topic name or id.")
            found.append(_find(ctx, name, topic_id))
        except BrokerError as failure:
            found.append(_not_deleted(name, topic_id, failure))
    twice = _twice([each.id for each in found if isinstance(each, Topic)])
    rows = {each.id if isinstance(each, Topic) else at: each for at, each in enumerate(found)}
    again = InvalidRequest("The topic is named twice: by its name and by its id.")
    return [
        _not_deleted(each.name, each.id, again)
        if isinstance(each, Topic) and each.id in twice
        else each
        for each in rows.values()
    ]


async def _delete(ctx: RequestContext, topic: Topic | Payload) -> Payload:
    if not isinstance(topic, Topic):
        return topic
    try:
        require_topic(ctx, "Delete", topic.name)
        _charge(ctx, topic.partition_count, _STRICT_DELETE)
        await ctx.broker.topics.delete(topic.name, topic_id=topic.id)
    except BrokerError as failure:
        return _not_deleted(topic.name, topic.id, failure)
    return {"name": topic.name, "topic_id": topic.id, "error_code": 0, "error_message": None}


def _not_deleted(name: str | None, topic_id: uuid.UUID | None, failure: BrokerError) -> Payload:
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": error_code(failure),
        "error_message": str(failure),
    }


def _find(ctx: RequestContext, name: str | None, topic_id: uuid.UUID | None) -> Topic:
    """The topic; one the caller may not even see is as unknown as one that does not exist."""
    topics = ctx.broker.topics
    if name is not None and topic_id is not None:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    if topic_id is not None:
        found = topics.by_id(topic_id)
        if found is None or not ctx.allow("Describe", "Topic", found.name):
            raise UnknownTopicId("This server does not host this topic ID.")
        return found
    if name is None:
        raise InvalidRequest("Neither topic name nor id were specified.")
    found = topics.find(name)
    if found is None:
        raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    return found


# --- growing --------------------------------------------------------------------------------------


async def create_partitions(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Give topics more partitions."""
    duplicates = _twice([wanted.name for wanted in request.topics])
    unique = {wanted.name: wanted for wanted in request.topics}
    rows = await asyncio.gather(
        *(
            _grow(ctx, wanted, request.validate_only, wanted.name in duplicates)
            for wanted in unique.values()
        )
    )
    return {"throttle_time": ctx.throttle_ms, "results": rows}


async def _grow(ctx: RequestContext, wanted: Any, validate_only: bool, twice: bool) -> Payload:
    try:
        if twice:
            raise InvalidRequest("Duplicate topic name.")
        require_topic(ctx, "Alter", wanted.name)
        topic = ctx.broker.topics.get(wanted.name)
        assignment = None
        if wanted.assignments is not None:
            assignment = [each.broker_ids for each in wanted.assignments]
        if not validate_only:
            _charge(ctx, max(0, wanted.count - topic.partition_count), _STRICT_GROW)
        await ctx.broker.topics.add_partitions(
            wanted.name, wanted.count, assignment=assignment, validate_only=validate_only
        )
    except BrokerError as failure:
        return {
            "name": wanted.name,
            "error_code": error_code(failure),
            "error_message": str(failure),
        }
    return {"name": wanted.name, "error_code": 0, "error_message": None}
