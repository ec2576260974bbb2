"""Questions about a partition's log: ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from penstock.errors import (
    AccessDenied,
    BrokerError,
    InvalidTopicName,
    PolicyViolation,
    UnsupportedVersion,
)
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import INVALID_REQUEST, NONE, error_code
from penstock.model.ids import NO_EPOCH, NO_TIMESTAMP
from penstock.model.topic import is_internal
from penstock.services.replica import Replica

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = range(-1, -7, -1)
# The version from which each special timestamp is known: an older request gets an error.
_KNOWN_FROM = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}

Found = tuple[int, int, int]  # offset, timestamp, leader epoch
_NOT_FOUND: Found = (-1, NO_TIMESTAMP, NO_EPOCH)


async def _replica(ctx: RequestContext, topic: str, partition: int, operation: str) -> Replica:
    if not ctx.allow(operation, "Topic", topic):
        raise AccessDenied(f"may not {operation.lower()} {topic}", "topic")
    return await ctx.broker.partitions.replica(topic, partition)


async def list_offsets(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Offsets by timestamp, or at the special places below zero.

    A partition asked for twice is answered once, with an error: nobody could tell which is which.
    """
    read_committed = getattr(request, "isolation_level", 0) == 1
    asked = Counter(
        (topic.name, part.partition_index) for topic in request.topics for part in topic.partitions
    )
    topics: dict[str, dict[int, dict[str, Any]]] = {}
    for topic in request.topics:
        rows = topics.setdefault(topic.name, {})
        for part in topic.partitions:
            index = part.partition_index
            rows[index] = {
                "partition_index": index,
                "offset": -1,
                "timestamp": -1,
                "leader_epoch": -1,
                "error_code": INVALID_REQUEST,
            }
            if asked[topic.name, index] == 1:
                rows[index].update(await _look_up(ctx, topic.name, part, read_committed))
    return {
        "topics": [
            {"name": name, "partitions": list(rows.values())} for name, rows in topics.items()
        ]
    }


async def _look_up(
    ctx: RequestContext, topic: str, part: Any, read_committed: bool
) -> dict[str, Any]:
    try:
        replica = await _replica(ctx, topic, part.partition_index, "Describe")
        replica.check_epoch(getattr(part, "current_leader_epoch", -1))
        timestamp = part.timestamp
        if timestamp < EARLIEST_PENDING or ctx.api_version < _KNOWN_FROM.get(timestamp, 0):
            raise UnsupportedVersion(f"timestamp {timestamp} needs a newer ListOffsets")
        offset, found_at, epoch = await _find(replica, timestamp, read_committed)
    except BrokerError as failure:
        return {"error_code": error_code(failure)}
    return {"offset": offset, "timestamp": found_at, "leader_epoch": epoch, "error_code": NONE}


async def _find(replica: Replica, timestamp: int, read_committed: bool) -> Found:
    log = replica.log
    if timestamp == LATEST:
        return replica.visible_end(read_committed), NO_TIMESTAMP, replica.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.start_offset, NO_TIMESTAMP, replica.leader_epoch
    if timestamp == MAX_TIMESTAMP:
        found = await log.max_timestamp()
        return found if found and found[0] < replica.visible_end(read_committed) else _NOT_FOUND
    if timestamp < 0:  # there is no tiered storage: nothing is in it, nothing waits for it
        return _NOT_FOUND
    upper = replica.visible_end(read_committed)
    return await log.find_timestamp(timestamp, upper_offset=upper) or _NOT_FOUND


async def offset_for_leader_epoch(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Where an epoch ended: how clients and followers find out what was cut off."""
    topics = []
    for topic in request.topics:
        rows = []
        for part in topic.partitions:
            row: dict[str, Any] = {"partition": part.partition}
            try:
                replica = await _replica(ctx, topic.topic, part.partition, "Describe")
                replica.check_epoch(getattr(part, "current_leader_epoch", -1))
                epoch, end_offset = replica.log.end_offset_for_epoch(part.leader_epoch)
                if epoch == replica.leader_epoch or part.leader_epoch == replica.leader_epoch:
                    epoch, end_offset = part.leader_epoch, replica.high_watermark
                row.update(leader_epoch=epoch, end_offset=end_offset, error_code=0)
            except BrokerError as failure:
                row.update(leader_epoch=-1, end_offset=-1, error_code=error_code(failure))
            rows.append(row)
        topics.append({"topic": topic.topic, "partitions": rows})
    return {"topics": topics}


async def delete_records(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Move the start of logs forward; what is before it is gone."""
    topics = []
    for topic in request.topics:
        rows = []
        for part in topic.partitions:
            row: dict[str, Any] = {"partition_index": part.partition_index, "low_watermark": -1}
            try:
                if is_internal(topic.name):
                    raise InvalidTopicName(f"{topic.name} is the broker's own")
                replica = await _replica(ctx, topic.name, part.partition_index, "Delete")
                if "delete" not in replica.settings.cleanup_policy:
                    raise PolicyViolation(f"{topic.name} is compacted only: cleanup.policy")
                row.update(low_watermark=replica.delete_before(part.offset), error_code=0)
            except BrokerError as failure:
                row["error_code"] = error_code(failure)
            rows.append(row)
        topics.append({"name": topic.name, "partitions": rows})
    return {"topics": topics}
