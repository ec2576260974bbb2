"""Share groups (KIP-932): membership, and where they stand.

ShareGroupHeartbeat, ShareGroupDescribe, DescribeShareGroupOffsets, AlterShareGroupOffsets,
DeleteShareGroupOffsets. Records are fetched and acknowledged in `share_fetch.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from penstock.errors import AccessDenied, BrokerError, UnknownTopicOrPartition
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import NONE, error_code
from penstock.kafka.handlers.groups import authorized_operations, require_group
from penstock.model.topic import Topic
from penstock.services.group_views import DescribedSharer
from penstock.services.share_groups import ShareGroup, ShareHeartbeat

_NOWHERE = -1  # the start of a partition that the group has not begun to read


def _failed(failure: BrokerError) -> dict[str, Any]:
    return {"error_code": error_code(failure), "error_message": str(failure)}


async def share_group_heartbeat(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Everything a member says, and what it is to read."""
    names = request.subscribed_topic_names
    command = ShareHeartbeat(
        request.member_id,
        request.member_epoch,
        request.rack_id,
        ctx.client_id,
        f"/{ctx.client_host}",
        None if names is None else tuple(names),
    )
    try:
        require_group(ctx, "Read", request.group_id)
        reply = await ctx.broker.groups.shares.heartbeat(request.group_id, command)
    except BrokerError as refusal:
        return _failed(refusal)
    assignment = None
    if reply.assignment is not None:
        assignment = {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": partitions}
                for topic_id, partitions in reply.assignment.items()
            ]
        }
    return {
        "error_code": NONE,
        "member_id": reply.member_id,
        "member_epoch": reply.member_epoch,
        "heartbeat_interval": reply.heartbeat_interval_ms,
        "assignment": assignment,
    }


async def share_group_describe(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Share groups with their members, and what each reads."""
    return {"groups": [_describe(ctx, request, group_id) for group_id in request.group_ids]}


def _describe(ctx: RequestContext, request: Any, group_id: str) -> dict[str, Any]:
    operations = authorized_operations(request)
    try:
        require_group(ctx, "Describe", group_id)
        group = ctx.broker.groups.shares.describe(group_id)
    except BrokerError as refusal:
        return {**_failed(refusal), "group_id": group_id, "authorized_operations": operations}
    return {
        "error_code": NONE,
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": [_member(member) for member in group.members],
        "authorized_operations": operations,
    }


def _member(member: DescribedSharer) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topic_names,
        "assignment": {
            "topic_partitions": [
                {
                    "topic_id": topic.topic_id,
                    "topic_name": topic.name,
                    "partitions": topic.partitions,
                }
                for topic in member.assignment
            ]
        },
    }


# --- where groups stand ---------------------------------------------------------------------------


async def describe_share_group_offsets(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """From where on a group is not done with records yet, and how many those are."""
    return {"groups": [await _group_offsets(ctx, group) for group in request.groups]}


async def _group_offsets(ctx: RequestContext, wanted: Any) -> dict[str, Any]:
    try:
        require_group(ctx, "Describe", wanted.group_id)
        group = ctx.broker.groups.shares.get(wanted.group_id)
    except BrokerError as refusal:
        return {**_failed(refusal), "group_id": wanted.group_id, "topics": ()}
    if wanted.topics is None:
        asked = [(topic.name, topic.partitions) for topic in group.started.values()]
    else:
        asked = [(topic.topic_name, topic.partitions) for topic in wanted.topics]
    topics = []
    for name, partitions in asked:
        rows = [await _offset_row(ctx, group, name, partition) for partition in partitions]
        topic = ctx.broker.topics.find(name)
        topics.append(
            {
                "topic_name": name,
                "topic_id": None if topic is None else topic.id,
                "partitions": rows,
            }
        )
    return {"group_id": group.group_id, "error_code": NONE, "topics": topics}


async def _offset_row(
    ctx: RequestContext, group: ShareGroup, name: str, partition: int
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "partition_index": partition,
        "start_offset": _NOWHERE,
        "leader_epoch": 0,
        "lag": -1,
    }
    try:
        topic = _topic(ctx, "Describe", name)
        if not topic.has_partition(partition):
            raise UnknownTopicOrPartition(f"there is no partition {partition} of {name!r}")
        if not group.has_started(topic.id, partition):
            return row
        found = await ctx.broker.share_partitions.get(group.group_id, topic, partition)
    except BrokerError as refusal:
        return {**row, **_failed(refusal)}
    return {
        **row,
        "start_offset": found.start_offset,
        "leader_epoch": found.replica.leader_epoch,
        "lag": found.lag,
    }


def _topic(ctx: RequestContext, operation: str, name: str) -> Topic:
    if not ctx.allow(operation, "Topic", name):
        raise AccessDenied(f"may not {operation.lower()} {name}", "topic")
    return ctx.broker.topics.get(name)


async def alter_share_group_offsets(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Let a group that has no members go on from other offsets."""
    try:
        require_group(ctx, "Read", request.group_id)
        ctx.broker.groups.shares.require_empty(request.group_id)
    except BrokerError as refusal:
        return {**_failed(refusal), "responses": ()}
    responses = []
    for wanted in request.topics:
        found = ctx.broker.topics.find(wanted.topic_name)
        rows = [
            await _alter(ctx, request.group_id, wanted.topic_name, each)
            for each in wanted.partitions
        ]
        responses.append(
            {
                "topic_name": wanted.topic_name,
                "topic_id": None if found is None else found.id,
                "partitions": rows,
            }
        )
    return {"error_code": NONE, "responses": responses}


async def _alter(ctx: RequestContext, group_id: str, name: str, wanted: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"partition_index": wanted.partition_index, "error_code": NONE}
    try:
        topic = _topic(ctx, "Read", name)
        await ctx.broker.share_partitions.start_at(
            group_id, topic, wanted.partition_index, wanted.start_offset
        )
    except BrokerError as refusal:
        return {**row, **_failed(refusal)}
    return row


async def delete_share_group_offsets(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Let a group that has no members forget topics."""
    try:
        require_group(ctx, "Delete", request.group_id)
        ctx.broker.groups.shares.require_empty(request.group_id)
    except BrokerError as refusal:
        return {**_failed(refusal), "responses": ()}
    names: Iterable[str] = [wanted.topic_name for wanted in request.topics]
    return {
        "error_code": NONE,
        "responses": [await _forget(ctx, request.group_id, name) for name in names],
    }


async def _forget(ctx: RequestContext, group_id: str, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"topic_name": name, "topic_id": None, "error_code": NONE}
    try:
        topic = _topic(ctx, "Read", name)
        row["topic_id"] = topic.id
        await ctx.broker.share_partitions.forget(group_id, topic)
    except BrokerError as refusal:
        return {**row, **_failed(refusal)}
    return row
