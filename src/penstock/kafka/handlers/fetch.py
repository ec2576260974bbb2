"""Fetch: from the log to a client's socket, waiting for more when there is too little.

Sessions (KIP-227) decide which partitions are meant; the reading below does not know of them. A
fetch that finds less than `min_bytes` watches its partitions and reads again when one moves.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from penstock.errors import (
    AccessDenied,
    BrokerError,
    FetchSessionNotFound,
    FetchSessionTopicIdMismatch,
    InvalidFetchSessionEpoch,
    OffsetOutOfRange,
    UnknownTopicId,
)
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import error_code
from penstock.kafka.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    FetchSession,
    PartitionKey,
    TopicKey,
    WantedPartition,
)
from penstock.services.replica import Replica
from penstock.wire.kafka import codec
from penstock.wire.kafka import fetch as wire
from penstock.wire.kafka.fetch import PartitionData

_NIL = UUID(int=0)
_MILLISECOND = timedelta(milliseconds=1)


class _Limits(NamedTuple):
    max_bytes: int
    min_bytes: int
    max_wait: float
    read_committed: bool


class _Answer(NamedTuple):
    """One pass over the partitions: what each says, and how much there is."""

    rows: list[tuple[PartitionKey, PartitionData]]
    total_bytes: int
    has_errors: bool
    replicas: list[Replica]


async def fetch(ctx: RequestContext, body: memoryview) -> list[bytes | bytearray | memoryview]:
    """Answer one Fetch request."""
    request = codec.decode_request(1, ctx.api_version, body)
    try:
        wanted, session, is_incremental = _choose_partitions(ctx, request)
    except (
        FetchSessionNotFound,
        FetchSessionTopicIdMismatch,
        InvalidFetchSessionEpoch,
    ) as failure:
        return wire.encode(ctx.api_version, [], error_code=error_code(failure))
    limits = _Limits(
        min(request.max_bytes, ctx.broker.config.fetch_max_bytes),
        request.min_bytes,
        max(request.max_wait / _MILLISECOND, 0) / 1000,
        request.isolation_level == 1,
    )
    answer = await _read_until_enough(ctx, wanted, limits)
    throttle_ms = ctx.throttle("consumer_byte_rate", answer.total_bytes)
    rows: Iterable[tuple[PartitionKey, PartitionData]] = answer.rows
    if session is not None:
        news = [(key, data) for key, data in answer.rows if _is_news(session, key, data)]
        rows = news if is_incremental else answer.rows
    return wire.encode(
        ctx.api_version,
        _by_topic(rows),
        throttle_ms=throttle_ms,
        session_id=session.id if session is not None else 0,
    )


# --- which partitions -----------------------------------------------------------------------------


def _choose_partitions(
    ctx: RequestContext, request: Any
) -> tuple[OrderedDict[PartitionKey, WantedPartition], FetchSession | None, bool]:
    """(partitions to read, the session they belong to, whether only changes are answered)."""
    named = OrderedDict(
        (
            (_topic_key(topic), part.partition),
            WantedPartition(
                part.fetch_offset,
                part.partition_max_bytes,
                getattr(part, "current_leader_epoch", -1),
                getattr(part, "last_fetched_epoch", -1),
            ),
        )
        for topic in request.topics
        for part in topic.partitions
    )
    session_id = getattr(request, "session_id", 0)
    epoch = getattr(request, "session_epoch", FINAL_EPOCH)
    sessions = ctx.broker.sessions
    by_id = ctx.api_version >= 13
    if epoch == FINAL_EPOCH:
        sessions.close(session_id)
        return named, None, False
    if epoch == INITIAL_EPOCH:
        if not named:
            return named, None, False
        return named, sessions.begin(session_id, named, by_id=by_id), False
    forgotten = [
        (_topic_key(topic), partition)
        for topic in getattr(request, "forgotten_topics_data", ())
        for partition in topic.partitions
    ]
    session = sessions.resume(session_id, epoch, named, forgotten, by_id=by_id)
    if session is None:
        return named, None, False
    return session.partitions, session, True


def _topic_key(topic: Any) -> TopicKey:
    name = getattr(topic, "topic", None)
    if name is not None:
        return str(name)
    return topic.topic_id if topic.topic_id is not None else _NIL


def _is_news(session: FetchSession, key: PartitionKey, data: PartitionData) -> bool:
    told = (data.high_watermark, data.last_stable_offset, data.start_offset)
    return session.is_news(key, data.error_code, len(data.records), told)


def _by_topic(
    rows: Iterable[tuple[PartitionKey, PartitionData]],
) -> Sequence[tuple[TopicKey, list[PartitionData]]]:
    topics: dict[TopicKey, list[PartitionData]] = {}
    for (topic, _), data in rows:
        topics.setdefault(topic, []).append(data)
    return list(topics.items())


# --- reading --------------------------------------------------------------------------------------


async def _read_until_enough(
    ctx: RequestContext,
    wanted: OrderedDict[PartitionKey, WantedPartition],
    limits: _Limits,
) -> _Answer:
    answer = await _read_all(ctx, wanted, limits)
    if _is_enough(answer, limits):
        return answer
    watched = answer.replicas
    moved = asyncio.Event()
    for replica in watched:
        replica.watch(moved)
    if _has_moved(answer):
        moved.set()  # while the reading waited for a disk, and nobody watched yet
    late = False

    def expire() -> None:
        nonlocal late
        late = True
        moved.set()

    timer = asyncio.get_running_loop().call_later(limits.max_wait, expire)
    try:
        while not late and not _is_enough(answer, limits):
            await moved.wait()
            moved.clear()
            answer = await _read_all(ctx, wanted, limits)
    finally:
        timer.cancel()
        for replica in watched:
            replica.unwatch(moved)
    return answer


def _has_moved(answer: _Answer) -> bool:
    """Whether a partition is no longer as the answer says; it has a row for each of them."""
    return any(
        data.high_watermark != replica.high_watermark
        or data.last_stable_offset != replica.last_stable_offset
        or data.start_offset != replica.log.start_offset
        for replica, (_, data) in zip(answer.replicas, answer.rows, strict=True)
    )


def _is_enough(answer: _Answer, limits: _Limits) -> bool:
    return (
        answer.total_bytes >= limits.min_bytes
        or answer.has_errors
        or limits.max_wait <= 0
        or not answer.rows
    )


async def _read_all(
    ctx: RequestContext,
    wanted: OrderedDict[PartitionKey, WantedPartition],
    limits: _Limits,
) -> _Answer:
    """One pass, with as many bytes as there is room for: slow readers may hold the rest."""
    asked = min(limits.max_bytes, sum(want.max_bytes for want in wanted.values()))
    granted = ctx.room.reserve(max(asked, 0))
    try:
        if granted < asked:
            limits = limits._replace(max_bytes=granted)
        return await _read_each(ctx, wanted, limits)
    finally:
        ctx.room.release(granted)


async def _read_each(
    ctx: RequestContext,
    wanted: OrderedDict[PartitionKey, WantedPartition],
    limits: _Limits,
) -> _Answer:
    rows: list[tuple[PartitionKey, PartitionData]] = []
    replicas: list[Replica] = []
    total = 0
    has_errors = False
    for key, want in list(wanted.items()):
        try:
            replica = await _find(ctx, key)
            data = await _read_one(replica, key[1], want, limits, total)
            replicas.append(replica)
        except BrokerError as failure:
            data = PartitionData(key[1], error_code(failure))
            has_errors = True
        total += len(data.records)
        has_errors = has_errors or data.diverging is not None
        rows.append((key, data))
    return _Answer(rows, total, has_errors, replicas)


async def _find(ctx: RequestContext, key: PartitionKey) -> Replica:
    topic, partition = key
    if isinstance(topic, UUID):
        known = ctx.broker.topics.by_id(topic)
        if known is None:
            raise UnknownTopicId(f"no topic has the id {topic}")
        topic = known.name
    if not ctx.allow("Read", "Topic", topic):
        raise AccessDenied(f"may not read {topic}", "topic")
    replica = ctx.broker.partitions.find(topic, partition)
    return replica or await ctx.broker.partitions.replica(topic, partition)


async def _read_one(
    replica: Replica, partition: int, want: WantedPartition, limits: _Limits, total: int
) -> PartitionData:
    replica.check_epoch(want.current_leader_epoch)
    diverging = _diverging(replica, want)
    if diverging is not None:
        return PartitionData(
            partition,
            0,
            replica.high_watermark,
            replica.last_stable_offset,
            replica.log.start_offset,
            diverging=diverging,
        )
    room = limits.max_bytes - total
    # Once there is something in the response, what does not fit waits for the next one; the first
    # batch is sent whatever its size, or its reader would never get past it (KIP-74).
    chunk = await replica.read(
        want.fetch_offset,
        max(0, min(want.max_bytes, room)),
        read_committed=limits.read_committed,
        min_one=total == 0 and limits.max_bytes >= 0,
    )
    aborted: list[tuple[int, int]] | None = None
    if limits.read_committed:
        aborted = []
        if chunk.data:
            aborted = [
                (each.producer_id, each.first_offset)
                for each in replica.log.aborted_between(want.fetch_offset, chunk.next_offset)
            ]
    return PartitionData(
        partition,
        0,
        replica.high_watermark,
        replica.last_stable_offset,
        replica.log.start_offset,
        aborted,
        chunk.data,
    )


def _diverging(replica: Replica, want: WantedPartition) -> tuple[int, int] | None:
    """Where the client's history parts from the log's, if it does (KIP-595)."""
    if want.last_fetched_epoch < 0:
        return None
    epoch, end_offset = replica.log.end_offset_for_epoch(want.last_fetched_epoch)
    if epoch < 0:
        raise OffsetOutOfRange(f"epoch {want.last_fetched_epoch} is not in the history of the log")
    if epoch == want.last_fetched_epoch and want.fetch_offset <= end_offset:
        return None
    return epoch, end_offset
