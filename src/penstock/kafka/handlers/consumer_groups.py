"""Groups by the KIP-848 protocol: ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from penstock.errors import BrokerError, InvalidGroupId, InvalidRequest
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import NONE, error_code
from penstock.kafka.handlers.groups import authorized_operations, milliseconds, require_group
from penstock.services.consumer_groups import ConsumerHeartbeat, HeartbeatReply
from penstock.services.group_views import AssignedTopic, DescribedConsumer

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


async def consumer_group_heartbeat(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Everything a KIP-848 member says, and what it is to do next."""
    try:
        require_group(ctx, "Read", request.group_id)
        reply = await ctx.broker.groups.consumers.heartbeat(
            request.group_id, _heartbeat(ctx, request)
        )
    except BrokerError as refusal:
        return {"error_code": error_code(refusal), "error_message": str(refusal)}
    return {
        "error_code": NONE,
        "member_id": reply.member_id,
        "member_epoch": reply.member_epoch,
        "heartbeat_interval": reply.heartbeat_interval_ms,
        "assignment": _assignment(reply),
    }


def _heartbeat(ctx: RequestContext, request: Any) -> ConsumerHeartbeat:
    member_id = request.member_id
    if not member_id and ctx.api_version == 0 and request.member_epoch == 0:
        member_id = str(uuid.uuid4())  # since version 1 members choose their own id
    names = request.subscribed_topic_names
    return ConsumerHeartbeat(
        member_id,
        request.member_epoch,
        request.instance_id,
        request.rack_id,
        ctx.client_id,
        f"/{ctx.client_host}",
        milliseconds(request.rebalance_timeout),
        None if names is None else tuple(names),
        getattr(request, "subscribed_topic_regex", None),
        request.server_assignor,
        _owned(request.topic_partitions),
    )


def _owned(topics: Any) -> dict[uuid.UUID, tuple[int, ...]] | None:
    if topics is None:
        return None
    owned: dict[uuid.UUID, tuple[int, ...]] = {}
    for topic in topics:
        if topic.topic_id is None or topic.topic_id in owned:
            raise InvalidRequest("each topic is named once, by its id")
        if topic.partitions:
            owned[topic.topic_id] = tuple(sorted(topic.partitions))
    return owned


def _assignment(reply: HeartbeatReply) -> dict[str, Any] | None:
    if reply.assignment is None:
        return None
    return {
        "topic_partitions": [
            {"topic_id": topic_id, "partitions": partitions}
            for topic_id, partitions in reply.assignment.items()
        ]
    }


async def consumer_group_describe(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """KIP-848 groups with their members, what each has and what it is to have."""
    return {"groups": [_describe(ctx, request, group_id) for group_id in request.group_ids]}


def _describe(ctx: RequestContext, request: Any, group_id: str) -> dict[str, Any]:
    try:
        require_group(ctx, "Describe", group_id)
        if not group_id:
            raise InvalidGroupId("a group needs a name")
        group = ctx.broker.groups.consumers.describe(group_id)
    except BrokerError as refusal:
        return {
            "error_code": error_code(refusal),
            "error_message": str(refusal),
            "group_id": group_id,
            "authorized_operations": authorized_operations(request),
        }
    return {
        "error_code": NONE,
        "group_id": group.group_id,
        "group_state": group.state,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": [_member(member) for member in group.members],
        "authorized_operations": authorized_operations(request),
    }


def _member(member: DescribedConsumer) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": member.topic_names,
        "subscribed_topic_regex": member.topic_regex or "",
        "assignment": {"topic_partitions": [_topic(topic) for topic in member.assignment]},
        "target_assignment": {"topic_partitions": [_topic(topic) for topic in member.target]},
        "member_type": _CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    }


def _topic(topic: AssignedTopic) -> dict[str, Any]:
    return {
        "topic_id": topic.topic_id,
        "topic_name": topic.name,
        "partitions": topic.partitions,
    }
