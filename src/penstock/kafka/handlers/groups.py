"""Groups by the classic protocol: finding the coordinator, taking part, looking, deleting."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from penstock.errors import (
    AccessDenied,
    BrokerError,
    InconsistentGroupProtocol,
    UnknownMember,
)
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import GROUP_ID_NOT_FOUND, INVALID_REQUEST, NONE, error_code
from penstock.model.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from penstock.services.group_views import DescribedGroup
from penstock.services.groups import (
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaver,
    SyncGroup,
    SyncReply,
    new_member_id,
)

_GROUP_KEY, _TRANSACTION_KEY = 0, 1
_MILLISECOND = timedelta(milliseconds=1)

# Read, delete, describe, describe configs, alter configs: everything there is to do with a group.
_EVERYTHING = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
_NOT_ASKED = -(2**31)


def milliseconds(span: timedelta) -> int:
    return span // _MILLISECOND


def require_group(ctx: RequestContext, operation: str, group_id: str) -> None:
    """Raise `AccessDenied` unless the caller may do `operation` on the group."""
    if not ctx.allow(operation, "Group", group_id):
        raise AccessDenied(f"may not {operation.lower()} group {group_id}", "group")


def authorized_operations(request: Any) -> int:
    return _EVERYTHING if getattr(request, "include_authorized_operations", False) else _NOT_ASKED


# --- finding --------------------------------------------------------------------------------------


async def find_coordinator(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """This broker coordinates every group and every transaction: it is alone."""
    key_type = getattr(request, "key_type", _GROUP_KEY)
    # As with Kafka the topic exists from the first question on; tools look for it in the metadata.
    await ctx.broker.topics.ensure_internal(
        OFFSETS_TOPIC if key_type == _GROUP_KEY else TRANSACTIONS_TOPIC
    )
    if ctx.api_version >= 4:
        return {"coordinators": [_coordinator(ctx, key_type, k) for k in request.coordinator_keys]}
    return _coordinator(ctx, key_type, request.key)


def _coordinator(ctx: RequestContext, key_type: int, key: str) -> dict[str, Any]:
    nowhere = {"key": key, "node_id": -1, "host": "", "port": -1}
    if key_type not in (_GROUP_KEY, _TRANSACTION_KEY):
        return {**nowhere, "error_code": INVALID_REQUEST, "error_message": "unknown key type"}
    kind = "Group" if key_type == _GROUP_KEY else "TransactionalId"
    if not ctx.allow("Describe", kind, key):
        resource = "group" if key_type == _GROUP_KEY else "transactional_id"
        denied = AccessDenied(f"may not describe {key}", resource)
        return {**nowhere, "error_code": error_code(denied), "error_message": str(denied)}
    node = ctx.broker.cluster.this_node
    return {"key": key, "node_id": node.id, "host": node.host, "port": node.port}


# --- taking part ----------------------------------------------------------------------------------


async def join_group(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Answered when the join phase ends, unless the member is refused or told its id."""
    try:
        require_group(ctx, "Read", request.group_id)
        reply = await ctx.broker.groups.join(request.group_id, _join_command(ctx, request))
    except BrokerError as refusal:
        reply = JoinReply(request.member_id, error=refusal)
    failed = reply.error is not None
    return {
        "error_code": NONE if reply.error is None else error_code(reply.error),
        "generation_id": reply.generation,
        "protocol_type": None if failed else reply.protocol_type,
        "protocol_name": _nullable_from(7, ctx, None if failed else reply.protocol),
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in reply.members
        ],
    }


def _join_command(ctx: RequestContext, request: Any) -> JoinGroup:
    session_timeout_ms = milliseconds(request.session_timeout)
    # Version 0 has one time-out for both.
    rebalance_timeout_ms = milliseconds(
        getattr(request, "rebalance_timeout", request.session_timeout)
    )
    instance_id = getattr(request, "group_instance_id", None)
    return JoinGroup(
        member_id=request.member_id,
        fresh_member_id=new_member_id(instance_id or ctx.client_id),
        instance_id=instance_id,
        client_id=ctx.client_id,
        client_host=f"/{ctx.client_host}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=(
            rebalance_timeout_ms if rebalance_timeout_ms >= 0 else session_timeout_ms
        ),
        protocol_type=request.protocol_type,
        protocols=tuple((p.name, bytes(p.metadata)) for p in request.protocols),
        member_id_required=ctx.api_version >= 4,
        can_skip_assignment=ctx.api_version >= 9,
    )


async def sync_group(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Answered when the leader has assigned."""
    command = SyncGroup(
        request.member_id,
        getattr(request, "group_instance_id", None),
        request.generation_id,
        getattr(request, "protocol_type", None),
        getattr(request, "protocol_name", None),
        {a.member_id: bytes(a.assignment) for a in request.assignments},
    )
    try:
        require_group(ctx, "Read", request.group_id)
        if ctx.api_version >= 5 and None in (command.protocol_type, command.protocol):
            raise InconsistentGroupProtocol("a member says by which protocol it joined")
        reply = await ctx.broker.groups.sync(request.group_id, command)
    except BrokerError as refusal:
        reply = SyncReply(error=refusal)
    return {
        "error_code": NONE if reply.error is None else error_code(reply.error),
        "protocol_type": reply.protocol_type,
        "protocol_name": reply.protocol,
        "assignment": reply.assignment,
    }


async def heartbeat(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    command = Heartbeat(
        request.member_id, getattr(request, "group_instance_id", None), request.generation_id
    )
    try:
        require_group(ctx, "Read", request.group_id)
        await ctx.broker.groups.heartbeat(request.group_id, command)
    except BrokerError as refusal:
        return {"error_code": error_code(refusal)}
    return {"error_code": NONE}


async def leave_group(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """One member before version 3, any number since."""
    if ctx.api_version < 3:
        leavers: tuple[Leaver, ...] = (Leaver(request.member_id),)
    else:
        leavers = tuple(Leaver(m.member_id, m.group_instance_id) for m in request.members)
    outcomes: tuple[tuple[Leaver, BrokerError | None], ...]
    try:
        require_group(ctx, "Read", request.group_id)
        outcomes = (await ctx.broker.groups.leave(request.group_id, LeaveGroup(leavers))).members
    except UnknownMember as unknown:  # the group is not there, so none of them is
        outcomes = tuple((leaver, unknown) for leaver in leavers)
    except BrokerError as refusal:
        return {"error_code": error_code(refusal)}
    if ctx.api_version < 3:
        refused = outcomes[0][1]
        return {"error_code": NONE if refused is None else error_code(refused)}
    return {
        "error_code": NONE,
        "members": [
            {
                "member_id": leaver.member_id,
                "group_instance_id": leaver.instance_id,
                "error_code": NONE if refused is None else error_code(refused),
            }
            for leaver, refused in outcomes
        ],
    }


def _nullable_from(version: int, ctx: RequestContext, text: str | None) -> str | None:
    return "" if text is None and ctx.api_version < version else text


# --- looking and deleting -------------------------------------------------------------------------


async def describe_groups(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Classic groups; one that is not there is Dead, which since version 6 is an error."""
    return {"groups": [_describe(ctx, request, group_id) for group_id in request.groups]}


def _describe(ctx: RequestContext, request: Any, group_id: str) -> dict[str, Any]:
    try:
        require_group(ctx, "Describe", group_id)
        group = ctx.broker.groups.describe(group_id)
    except BrokerError as refusal:
        code = error_code(refusal)
        if code == GROUP_ID_NOT_FOUND and ctx.api_version < 6:
            code = NONE
        return {
            "error_code": code,
            "error_message": str(refusal),
            "group_id": group_id,
            "group_state": "Dead",
            "authorized_operations": authorized_operations(request),
        }
    return {
        **_described(group),
        "error_code": NONE,
        "authorized_operations": authorized_operations(request),
    }


def _described(group: DescribedGroup) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "group_state": group.state,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in group.members
        ],
    }


async def list_groups(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Every group the caller may see, by state (version 4) and type (version 5) if wanted."""
    found = ctx.broker.groups.list_groups(
        states=getattr(request, "states_filter", ()), types=getattr(request, "types_filter", ())
    )
    return {
        "error_code": NONE,
        "groups": [
            {
                "group_id": group.group_id,
                "protocol_type": group.protocol_type,
                "group_state": group.state,
                "group_type": group.group_type,
            }
            for group in found
            if ctx.allow("Describe", "Group", group.group_id)
        ],
    }


async def delete_groups(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        try:
            require_group(ctx, "Delete", group_id)
            await ctx.broker.groups.delete(group_id)
            code = NONE
        except BrokerError as refusal:
            code = error_code(refusal)
        results.append({"group_id": group_id, "error_code": code})
    return {"results": results}
