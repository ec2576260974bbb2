"""ShareFetch and ShareAcknowledge (KIP-932): records to members of share groups, and back.

A fetch may carry acknowledgements of earlier records; they are dealt with first. It then acquires
what it can, waits if that is nothing, and is answered when its acknowledgements are on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

from penstock.errors import (
    AccessDenied,
    BrokerError,
    InvalidRecordState,
    InvalidRequest,
    InvalidShareSessionEpoch,
    UnknownTopicId,
)
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import NONE, error_code
from penstock.kafka.handlers.groups import require_group
from penstock.kafka.share_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    PartitionKey,
    ShareSession,
)
from penstock.model.share_delivery import Acknowledgements, Acquired
from penstock.model.topic import Topic
from penstock.services.share_partition import SharePartition

_NIL = UUID(int=0)
_MILLISECOND = timedelta(milliseconds=1)
_GAP, _ACCEPT, _RELEASE, _REJECT, _RENEW = range(5)
_RECORD_LIMIT = 1  # of the acquire modes; the other, 0, is by whole batches

Rows = dict[PartitionKey, dict[str, Any]]
Said = dict[PartitionKey, Sequence[Any]]  # acknowledgement batches


class _Wish(NamedTuple):
    """How much a fetch may bring."""

    max_records: int
    max_bytes: int
    by_batch: bool


async def share_fetch(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Acknowledge, then acquire; answered when there are records, or after `max_wait`."""
    said = _batches(request)
    try:
        group_id, member_id = _who(ctx, request)
        session = _fetch_session(ctx, request, (group_id, member_id), said)
    except BrokerError as refusal:
        return {"error_code": error_code(refusal), "error_message": str(refusal), "responses": ()}
    is_renewal = getattr(request, "is_renew_ack", False)
    touched, answers = await _acknowledge_all(ctx, session, said, may_renew=is_renewal)
    rows: Rows = {}
    if request.share_session_epoch == FINAL_EPOCH:
        await _release(ctx, session)
    elif not is_renewal:
        wish = _Wish(
            request.max_records if request.max_records > 0 else request.batch_size,
            min(request.max_bytes, ctx.broker.config.fetch_max_bytes),
            getattr(request, "share_acquire_mode", 0) != _RECORD_LIMIT,
        )
        rows = await _acquire_until_some(ctx, session, wish, request.max_wait / _MILLISECOND)
    await _settle(touched, answers)
    is_full = request.share_session_epoch == INITIAL_EPOCH
    return {
        "throttle_time": ctx.throttle("consumer_byte_rate", sum(map(_size, rows.values()))),
        "error_code": NONE,
        "acquisition_lock_timeout": ctx.broker.share_partitions.rules(group_id).lock_ms,
        "responses": _responses(ctx, session, rows, answers, is_full=is_full),
    }


async def share_acknowledge(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Acknowledgements alone, answered when they are on disk."""
    said = _batches(request)
    try:
        group_id, member_id = _who(ctx, request)
        if request.share_session_epoch == INITIAL_EPOCH:
            raise InvalidShareSessionEpoch("a share session begins with a fetch")
        session = ctx.broker.share_sessions.resume(
            (group_id, member_id), request.share_session_epoch
        )
    except BrokerError as refusal:
        return {"error_code": error_code(refusal), "error_message": str(refusal), "responses": ()}
    may_renew = getattr(request, "is_renew_ack", False)
    touched, answers = await _acknowledge_all(ctx, session, said, may_renew=may_renew)
    if request.share_session_epoch == FINAL_EPOCH:
        await _release(ctx, session)
    await _settle(touched, answers)
    topics: dict[UUID, list[dict[str, Any]]] = {}
    for (topic_id, index), failure in answers.items():
        topics.setdefault(topic_id, []).append(
            {
                "partition_index": index,
                "error_code": NONE if failure is None else error_code(failure),
                "error_message": None if failure is None else str(failure),
                "current_leader": _leader(ctx),
            }
        )
    return {
        "error_code": NONE,
        "acquisition_lock_timeout": ctx.broker.share_partitions.rules(group_id).lock_ms,
        "responses": [{"topic_id": key, "partitions": rows} for key, rows in topics.items()],
    }


# --- who asks, for what ---------------------------------------------------------------------------


def _who(ctx: RequestContext, request: Any) -> tuple[str, str]:
    group_id, member_id = request.group_id or "", request.member_id or ""
    if not member_id:
        raise InvalidRequest("a share session belongs to a member")
    require_group(ctx, "Read", group_id)
    ctx.broker.groups.shares.get(group_id)
    return group_id, member_id


def _batches(request: Any) -> Said:
    return {
        (topic.topic_id or _NIL, each.partition_index): each.acknowledgement_batches
        for topic in request.topics
        for each in topic.partitions
    }


def _fetch_session(
    ctx: RequestContext, request: Any, key: tuple[str, str], said: Said
) -> ShareSession:
    epoch = request.share_session_epoch
    if epoch == INITIAL_EPOCH:
        if any(said.values()):
            raise InvalidRequest("the first fetch of a share session acknowledges nothing")
        session = ctx.broker.share_sessions.begin(key)
        ctx.goodbyes["share", *key] = partial(_disconnected, ctx, session)
    else:
        session = ctx.broker.share_sessions.resume(key, epoch)
    forgotten = [
        (topic.topic_id or _NIL, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    session.change(said if epoch != FINAL_EPOCH else (), forgotten)
    return session


def _disconnected(ctx: RequestContext, session: ShareSession) -> None:
    """The connection of a session is gone: others may have its records at once."""
    if not ctx.broker.share_sessions.close(session):
        return
    group_id, member_id = session.key
    for held in ctx.broker.share_partitions:
        if held.group_id == group_id:
            held.release(member_id)


async def _find(ctx: RequestContext, group_id: str, key: PartitionKey) -> SharePartition:
    topic = ctx.broker.topics.by_id(key[0])
    if topic is None:
        raise UnknownTopicId(f"no topic has the id {key[0]}")
    _allow(ctx, topic)
    found = ctx.broker.share_partitions.find(group_id, topic.name, key[1])
    return found or await ctx.broker.share_partitions.get(group_id, topic, key[1])


def _allow(ctx: RequestContext, topic: Topic) -> None:
    if not ctx.allow("Read", "Topic", topic.name):
        raise AccessDenied(f"may not read {topic.name}", "topic")


# --- acknowledging --------------------------------------------------------------------------------


async def _acknowledge_all(
    ctx: RequestContext, session: ShareSession, said: Said, *, may_renew: bool
) -> tuple[list[tuple[PartitionKey, SharePartition]], dict[PartitionKey, BrokerError | None]]:
    """(partitions to wait for, what became of each partition's acknowledgements)."""
    group_id, member_id = session.key
    touched: list[tuple[PartitionKey, SharePartition]] = []
    answers: dict[PartitionKey, BrokerError | None] = {}
    may_renew = may_renew and ctx.broker.share_partitions.rules(group_id).may_renew
    for key, batches in said.items():
        if not batches:
            continue
        answers[key] = None
        try:
            found = await _find(ctx, group_id, key)
            found.acknowledge(member_id, _parse(batches, found, may_renew=may_renew))
            touched.append((key, found))
        except BrokerError as refusal:
            answers[key] = refusal
    return touched, answers


def _parse(batches: Iterable[Any], of: SharePartition, *, may_renew: bool) -> Acknowledgements:
    """Acknowledgement batches by kind; each has one kind, or one for each offset."""
    most = of.machine.delivered
    kinds: tuple[list[int], ...] = ([], [], [], [], [])
    following = -1
    highest = _RENEW if may_renew else _REJECT
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        size = last - first + 1
        if first < following or size < 1:
            raise InvalidRequest("acknowledgements are in order and do not overlap")
        if len(types) not in (1, size) or not all(_GAP <= kind <= highest for kind in types):
            raise InvalidRequest("an acknowledgement is of no kind that is known")
        if most and last >= of.given_end:
            raise InvalidRequest(f"records {first} to {last} were given to nobody yet")
        if len(types) == 1:
            # Below the start nothing is held and everything forgiven: it need not be spelled out.
            some = range(max(first, of.start_offset), last + 1)
            if last - some.start >= most:
                raise InvalidRecordState(f"records {first} to {last} are more than anybody holds")
            kinds[types[0]].extend(some)
        else:
            for offset, kind in enumerate(types, first):
                kinds[kind].append(offset)
        following = last + 1
    gaps, accepted, released, rejected, renewed = kinds
    return Acknowledgements(sorted(gaps + accepted), released, rejected, renewed)


async def _settle(
    touched: list[tuple[PartitionKey, SharePartition]],
    answers: dict[PartitionKey, BrokerError | None],
) -> None:
    """Wait until what was acknowledged is on disk."""
    if not touched:
        return
    outcomes = await asyncio.gather(
        *(found.committed() for _, found in touched), return_exceptions=True
    )
    for (key, _), outcome in zip(touched, outcomes, strict=True):
        if isinstance(outcome, BrokerError):
            answers[key] = outcome
        elif isinstance(outcome, BaseException):
            raise outcome


async def _release(ctx: RequestContext, session: ShareSession) -> None:
    """The session is over: what its member still holds is for others."""
    group_id, member_id = session.key
    ctx.goodbyes.pop(("share", *session.key), None)
    for held in ctx.broker.share_partitions:
        if held.group_id == group_id:
            held.release(member_id)


# --- acquiring ------------------------------------------------------------------------------------


async def _acquire_until_some(
    ctx: RequestContext, session: ShareSession, wish: _Wish, max_wait_ms: float
) -> Rows:
    rows, watched = await _acquire_all(ctx, session, wish)
    if rows or max_wait_ms <= 0 or not session.partitions:
        return rows
    moved = asyncio.Event()
    for found in watched:
        found.watch(moved)
    moved.set()  # something may have moved before we watched: look again first
    deadline = asyncio.get_running_loop().time() + max_wait_ms / 1000
    try:
        while not rows:
            # Only the waiting ends with the time: what is being acquired must reach the client.
            async with asyncio.timeout_at(deadline):
                await moved.wait()
            moved.clear()
            rows, _ = await _acquire_all(ctx, session, wish)
    except TimeoutError:
        pass
    finally:
        for found in watched:
            found.unwatch(moved)
    return rows


async def _acquire_all(
    ctx: RequestContext, session: ShareSession, wish: _Wish
) -> tuple[Rows, list[SharePartition]]:
    """One pass, with as many bytes as there is room for: slow readers may hold the rest."""
    granted = ctx.room.reserve(max(wish.max_bytes, 0))
    try:
        return await _pass(ctx, session, wish._replace(max_bytes=granted))
    finally:
        ctx.room.release(granted)


async def _pass(
    ctx: RequestContext, session: ShareSession, wish: _Wish
) -> tuple[Rows, list[SharePartition]]:
    """Of the partitions those that have records or fail; and all there are."""
    group_id, member_id = session.key
    rows: Rows = {}
    seen: list[SharePartition] = []
    records, size = wish.max_records, wish.max_bytes
    for key in list(session.partitions):
        try:
            found = await _find(ctx, group_id, key)
            seen.append(found)
            if records <= 0 or size <= 0:
                continue
            acquired = await found.acquire(member_id, records, size, by_batch=wish.by_batch)
        except BrokerError as refusal:
            rows[key] = {"error_code": error_code(refusal), "error_message": str(refusal)}
            continue
        if acquired.record_count:
            rows[key] = _row(acquired)
            records -= acquired.record_count
            size -= _size(rows[key])
            session.partitions.move_to_end(key)
    return rows, seen


def _row(acquired: Acquired) -> dict[str, Any]:
    return {
        "error_code": NONE,
        "records": b"".join(acquired.data),
        "acquired_records": [
            {"first_offset": first, "last_offset": last, "delivery_count": count}
            for first, last, count in acquired.ranges
        ],
    }


def _size(row: Mapping[str, Any]) -> int:
    return len(row.get("records", b""))


# --- answering ------------------------------------------------------------------------------------


def _responses(
    ctx: RequestContext,
    session: ShareSession,
    rows: Rows,
    answers: Mapping[PartitionKey, BrokerError | None],
    *,
    is_full: bool,
) -> list[dict[str, Any]]:
    """What there is to say; of every partition when the session begins."""
    keys = dict.fromkeys([*rows, *answers, *(session.partitions if is_full else ())])
    topics: dict[UUID, list[dict[str, Any]]] = {}
    for key in keys:
        failure = answers.get(key)
        row = {"partition_index": key[1], "current_leader": _leader(ctx), **rows.get(key, {})}
        if failure is not None:
            row["acknowledge_error_code"] = error_code(failure)
            row["acknowledge_error_message"] = str(failure)
        topics.setdefault(key[0], []).append(row)
    return [{"topic_id": topic_id, "partitions": rows} for topic_id, rows in topics.items()]


def _leader(ctx: RequestContext) -> dict[str, int]:
    broker = ctx.broker
    return {
        "leader_id": broker.cluster.node_id,
        "leader_epoch": broker.partitions.leader_epoch,
    }
