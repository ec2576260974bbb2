"""Produce: the way of a message from a client's bytes to the log.

Two phases. In the first, every partition of the request is appended, in order, before the next
request of the connection begins. In the second, the request waits until what it appended is safe;
meanwhile the connection goes on, so that one sync serves many requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from penstock.errors import (
    AccessDenied,
    BrokerError,
    InvalidRecord,
    InvalidRequest,
    InvalidRequiredAcks,
    InvalidTopicName,
    RequestTimedOut,
    UnknownTopicId,
    UnsupportedCompression,
)
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import NONE, error_code
from penstock.model import compression
from penstock.model.batch import HEADER_BYTES, TRANSACTIONAL_FLAG, read_header
from penstock.model.ids import TopicPartition
from penstock.model.topic import is_internal
from penstock.services.replica import NO_GUARD, Appended, Replica
from penstock.wire.kafka import produce as wire
from penstock.wire.kafka.produce import PartitionResult

Outcome = tuple[Replica, Appended] | BrokerError


class _Target(NamedTuple):
    """One partition of the request, found; or the reason why not."""

    partition: int
    records: memoryview | None
    replica: Replica | None
    refusal: BrokerError | None


async def produce(
    ctx: RequestContext, body: memoryview
) -> list[bytes | bytearray | memoryview] | None:
    """Answer one Produce request; None when the client wants no answer (acks=0)."""
    request = wire.decode(body, ctx.api_version)
    now_ms = ctx.broker.clock.now_ms()
    found = [
        (
            topic.topic,
            [await _find(ctx, request.acks, topic.topic, data) for data in topic.partitions],
        )
        for topic in request.topics
    ]
    guards = await _admit_transaction(ctx, request.transactional_id, found, now_ms)
    outcomes = [
        (
            topic,
            [(target, _append(ctx, target, request.acks, guards, now_ms)) for target in targets],
        )
        for topic, targets in found
    ]
    # Counted before the next request may begin: a client that pipelines must feel its quota too.
    throttle_ms = ctx.throttle("producer_byte_rate", len(body))
    ctx.release(throttle_ms)
    if request.acks == 0:
        for _, rows in outcomes:
            for _, outcome in rows:
                if isinstance(outcome, BrokerError):
                    raise outcome  # closes the connection: the client has no other way to learn
        return None
    responses = await _when_safe(request.timeout_ms, outcomes)
    return [wire.encode(ctx.api_version, responses, throttle_ms)]


async def _find(
    ctx: RequestContext, acks: int, topic: str | UUID, data: wire.PartitionRecords
) -> _Target:
    try:
        if acks not in (-1, 0, 1):
            raise InvalidRequiredAcks(f"acks must be -1, 0 or 1, not {acks}")
        if isinstance(topic, UUID):
            known = ctx.broker.topics.by_id(topic)
            if known is None:
                raise UnknownTopicId(f"no topic has the id {topic}")
            topic = known.name
        if is_internal(topic):
            raise InvalidTopicName(f"{topic} is the broker's own: clients may only read it")
        if not ctx.allow("Write", "Topic", topic):
            raise AccessDenied(f"may not write to {topic}", "topic")
        partitions = ctx.broker.partitions
        replica = partitions.find(topic, data.partition)
        if replica is None:
            replica = await partitions.replica(topic, data.partition)
        if data.records is None or len(data.records) < HEADER_BYTES:
            raise InvalidRecord("a partition without a record batch")
        return _Target(data.partition, data.records, replica, None)
    except BrokerError as refusal:
        return _Target(data.partition, None, None, refusal)


async def _admit_transaction(
    ctx: RequestContext,
    transactional_id: str | None,
    found: Sequence[tuple[str | UUID, list[_Target]]],
    now_ms: int,
) -> dict[Replica, int | BrokerError]:
    """For the first transactional batch in a partition, ask the coordinator (KIP-890).

    From version 12 on that also adds the partition to the transaction.
    """
    guards: dict[Replica, int] = {}
    answers: dict[Replica, int | BrokerError] = {}
    producer: tuple[int, int] | None = None
    for _, targets in found:
        for target in targets:
            if target.records is None or target.replica is None:
                continue
            header = read_header(target.records)
            if not header.attributes & TRANSACTIONAL_FLAG:
                continue
            who = (header.producer_id, header.producer_epoch)
            try:
                if transactional_id is None:
                    raise AccessDenied("transactional records need their id", "transactional_id")
                if producer not in (None, who):
                    raise InvalidRequest("a request holds the transaction of one producer")
                guard = target.replica.producers.begin_verification(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    now_ms,
                    starts_at_zero=ctx.api_version >= 12,
                )
            except BrokerError as refusal:
                answers[target.replica] = refusal
                continue
            if guard != NO_GUARD:
                producer = who
                guards[target.replica] = guard
    if producer is None:
        return answers
    verdicts = await ctx.broker.transactions.admit(
        transactional_id or "",  # guards are empty without one
        *producer,
        [TopicPartition(replica.topic, replica.partition) for replica in guards],
        add=ctx.api_version >= 12,
        abortable=ctx.api_version >= 11,
    )
    for replica, guard in guards.items():
        verdict = verdicts[TopicPartition(replica.topic, replica.partition)]
        answers[replica] = guard if verdict is None else verdict
    return answers


def _append(
    ctx: RequestContext,
    target: _Target,
    acks: int,
    guards: dict[Replica, int | BrokerError],
    now_ms: int,
) -> Outcome:
    if target.replica is None or target.records is None:
        assert target.refusal is not None
        return target.refusal
    guard = guards.get(target.replica, NO_GUARD)
    if isinstance(guard, BrokerError):
        return guard
    try:
        codec = target.records[22] & 0x07
        if codec == compression.ZSTD and ctx.api_version < 7:
            raise UnsupportedCompression("zstd needs Produce version 7 (KIP-110)")
        return target.replica, target.replica.append(target.records, now_ms, acks=acks, guard=guard)
    except BrokerError as refusal:
        return refusal


async def _when_safe(
    timeout_ms: int,
    outcomes: Sequence[tuple[str | UUID, Sequence[tuple[_Target, Outcome]]]],
) -> list[tuple[str | UUID, list[PartitionResult]]]:
    waits = [
        waiter
        for _, rows in outcomes
        for _, outcome in rows
        if not isinstance(outcome, BrokerError)
        and (waiter := outcome[0].when_safe(outcome[1].end_offset)) is not None
    ]
    if waits:
        timer: asyncio.TimerHandle | None = None
        if timeout_ms > 0:
            loop = asyncio.get_running_loop()
            timer = loop.call_later(timeout_ms / 1000, _give_up, waits)
        try:
            await (waits[0] if len(waits) == 1 else asyncio.gather(*waits))
        finally:
            if timer is not None:
                timer.cancel()
    return [
        (topic, [_result(target, outcome) for target, outcome in rows]) for topic, rows in outcomes
    ]


def _give_up(waits: list[asyncio.Future[None]]) -> None:
    """Out of time: whether each is safe by now is asked of its partition."""
    for waiter in waits:
        if not waiter.done():
            waiter.set_result(None)


def _result(target: _Target, outcome: Outcome) -> PartitionResult:
    if isinstance(outcome, BrokerError):
        return PartitionResult(
            target.partition,
            error_code(outcome),
            record_errors=outcome.record_errors if isinstance(outcome, InvalidRecord) else (),
            error_message=str(outcome),
        )
    replica, appended = outcome
    if replica.high_watermark < appended.end_offset:
        timed_out = RequestTimedOut("the disk did not confirm in time")
        return PartitionResult(
            target.partition, error_code(timed_out), error_message=str(timed_out)
        )
    return PartitionResult(
        target.partition,
        NONE,
        appended.base_offset,
        appended.append_time_ms,
        replica.log.start_offset,
    )
