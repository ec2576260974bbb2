"""Committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

Topics are named by name up to version 9 of commit and fetch, and by id from version 10. A topic
that does not exist is refused partition by partition, so that the others succeed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from penstock.errors import (
    AccessDenied,
    BrokerError,
    GroupIdNotFound,
    IllegalGeneration,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import GROUP_SUBSCRIBED_TO_TOPIC, NONE, error_code
from penstock.kafka.handlers.groups import milliseconds, require_group
from penstock.model.ids import TopicPartition
from penstock.model.topic import Topic
from penstock.services.group_offsets import Commit, Fetched, PartitionCommit

_BY_ID = 10  # the version of OffsetCommit and OffsetFetch from which topics have ids


def _topic(ctx: RequestContext, topic: Any, operation: str) -> Topic:
    """The topic that a request names, if it exists and the caller may read it."""
    if ctx.api_version >= _BY_ID:
        topic_id: UUID | None = topic.topic_id
        found = ctx.broker.topics.by_id(topic_id) if topic_id is not None else None
        if found is None:
            raise UnknownTopicId(f"no topic has the id {topic_id}")
    else:
        found = ctx.broker.topics.get(topic.name)
    if not ctx.allow(operation, "Topic", found.name):
        raise AccessDenied(f"may not {operation.lower()} {found.name}", "topic")
    return found


def _named(topic: Any) -> dict[str, Any]:
    """The name or id of a topic in a response, as in the request."""
    return {"name": getattr(topic, "name", ""), "topic_id": getattr(topic, "topic_id", None)}


# --- commit ---------------------------------------------------------------------------------------


async def offset_commit(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Commit for a member, or, with generation -1, for a consumer without a group."""
    commits: list[PartitionCommit] = []
    codes: list[list[int]] = []  # by topic and partition, in the order of the request
    places: list[tuple[int, int]] = []  # where each of `commits` is in `codes`
    for at, topic in enumerate(request.topics):
        codes.append([NONE] * len(topic.partitions))
        try:
            found = _topic(ctx, topic, "Read")
        except BrokerError as refusal:
            codes[at] = [error_code(refusal)] * len(topic.partitions)
            continue
        for index, part in enumerate(topic.partitions):
            if not found.has_partition(part.partition_index):
                codes[at][index] = error_code(UnknownTopicOrPartition(""))
                continue
            places.append((at, index))
            commits.append(_partition_commit(found.name, part))
    for (at, index), refused in zip(places, await _commit(ctx, request, commits), strict=True):
        codes[at][index] = NONE if refused is None else error_code(refused)
    return {
        "topics": [
            {
                **_named(topic),
                "partitions": [
                    {"partition_index": part.partition_index, "error_code": code}
                    for part, code in zip(topic.partitions, codes[at], strict=True)
                ],
            }
            for at, topic in enumerate(request.topics)
        ]
    }


def _partition_commit(topic: str, part: Any) -> PartitionCommit:
    return PartitionCommit(
        topic,
        part.partition_index,
        part.committed_offset,
        getattr(part, "committed_leader_epoch", -1),
        part.committed_metadata,
    )


async def _commit(
    ctx: RequestContext, request: Any, commits: Sequence[PartitionCommit]
) -> Iterable[BrokerError | None]:
    retention = getattr(request, "retention_time", None)  # versions 2 to 4
    commit = Commit(
        request.group_id,
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id_or_member_epoch,
        commits,
        -1 if retention is None else milliseconds(retention),
        knows_epochs=ctx.api_version >= 9,
    )
    try:
        require_group(ctx, "Read", request.group_id)
        return [refused for _, refused in await ctx.broker.groups.offsets.commit(commit)]
    except GroupIdNotFound as unknown:
        # Before version 9 clients know this as a generation that is over.
        refusal: BrokerError = unknown if ctx.api_version >= 9 else IllegalGeneration(str(unknown))
    except BrokerError as failure:
        refusal = failure
    return [refusal] * len(commits)


# --- fetch ----------------------------------------------------------------------------------------


async def offset_fetch(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """The offsets of one group, or of many since version 8; null topics mean all of them."""
    require_stable = getattr(request, "require_stable", False)
    if ctx.api_version >= 8:
        return {"groups": [_fetch_group(ctx, group, require_stable) for group in request.groups]}
    return _fetch_group(ctx, request, require_stable)


def _fetch_group(ctx: RequestContext, group: Any, require_stable: bool) -> dict[str, Any]:
    try:
        require_group(ctx, "Describe", group.group_id)
        ctx.broker.groups.offsets.check_fetch(
            group.group_id, getattr(group, "member_id", None), getattr(group, "member_epoch", -1)
        )
    except BrokerError as refusal:
        code = error_code(refusal)
        # Before version 2 there is no error for the whole, so each partition carries it; with many
        # groups in one answer it is only said of the group.
        failed = group.topics or () if ctx.api_version < 8 else ()
        topics = [_failed_topic(topic, code) for topic in failed]
        return {"group_id": group.group_id, "error_code": code, "topics": topics}
    if group.topics is None:
        fetched = _fetch_all(ctx, group.group_id, require_stable)
    else:
        fetched = [_fetch_topic(ctx, group.group_id, t, require_stable) for t in group.topics]
    return {"group_id": group.group_id, "error_code": NONE, "topics": fetched}


def _fetch_all(ctx: RequestContext, group_id: str, require_stable: bool) -> list[dict[str, Any]]:
    by_topic: dict[str, list[dict[str, Any]]] = {}
    offsets = ctx.broker.groups.offsets.fetch_all(group_id, require_stable=require_stable)
    for partition, fetched in offsets:
        if ctx.allow("Describe", "Topic", partition.topic):
            rows = by_topic.setdefault(partition.topic, [])
            rows.append(_partition(partition.partition, fetched))
    topics = []
    for name, rows in by_topic.items():
        found = ctx.broker.topics.find(name)
        if found is None and ctx.api_version >= _BY_ID:
            continue  # deleted a moment ago: it has no id any more
        topic_id = None if found is None else found.id
        topics.append({"name": name, "topic_id": topic_id, "partitions": rows})
    return topics


def _fetch_topic(
    ctx: RequestContext, group_id: str, topic: Any, require_stable: bool
) -> dict[str, Any]:
    # By name a topic need not exist any more; by id it must, or there is no name to look for.
    if ctx.api_version >= _BY_ID:
        try:
            name = _topic(ctx, topic, "Describe").name
        except BrokerError as refusal:
            return _failed_topic(topic, error_code(refusal))
    else:
        name = topic.name
        if not ctx.allow("Describe", "Topic", name):
            return _failed_topic(topic, error_code(AccessDenied("", "topic")))
    offsets = ctx.broker.groups.offsets.fetch(
        group_id,
        (TopicPartition(name, index) for index in topic.partition_indexes),
        require_stable=require_stable,
    )
    rows = [_partition(partition.partition, fetched) for partition, fetched in offsets]
    return {**_named(topic), "partitions": rows}


def _partition(index: int, fetched: Fetched) -> dict[str, Any]:
    if isinstance(fetched, BrokerError):
        return _failed_partition(index, error_code(fetched))
    return {
        "partition_index": index,
        "committed_offset": fetched.offset,
        "committed_leader_epoch": fetched.leader_epoch,
        "metadata": fetched.metadata,
        "error_code": NONE,
    }


def _failed_topic(topic: Any, code: int) -> dict[str, Any]:
    rows = [_failed_partition(index, code) for index in topic.partition_indexes]
    return {**_named(topic), "partitions": rows}


def _failed_partition(index: int, code: int) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": code,
    }


# --- delete ---------------------------------------------------------------------------------------


async def offset_delete(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Forget offsets of topics that the group does not read."""
    wanted: list[TopicPartition] = []
    codes: dict[TopicPartition, int] = {}
    for topic in request.topics:
        for part in topic.partitions:
            partition = TopicPartition(topic.name, part.partition_index)
            if not ctx.allow("Read", "Topic", topic.name):
                codes[partition] = error_code(AccessDenied("", "topic"))
            elif not _has_partition(ctx, partition):
                codes[partition] = error_code(UnknownTopicOrPartition(""))
            else:
                wanted.append(partition)
    try:
        require_group(ctx, "Delete", request.group_id)
        for partition, refused in await ctx.broker.groups.offsets.delete(request.group_id, wanted):
            codes[partition] = NONE if refused is None else GROUP_SUBSCRIBED_TO_TOPIC
    except BrokerError as refusal:
        return {"error_code": error_code(refusal)}
    return {
        "error_code": NONE,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": part.partition_index,
                        "error_code": codes[TopicPartition(topic.name, part.partition_index)],
                    }
                    for part in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }


def _has_partition(ctx: RequestContext, partition: TopicPartition) -> bool:
    topic = ctx.broker.topics.find(partition.topic)
    return topic is not None and topic.has_partition(partition.partition)
