"""Fetch requests written by hand, for tests that look at bytes and at the small print."""

from __future__ import annotations

from typing import Any

from support.wire import Wire


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    partition: int = 0,
    max_wait: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    partition_max_bytes: int = 10 << 20,
    isolation: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    leader_epoch: int = -1,
    topic_id: object = None,
) -> dict[str, Any]:
    """The values of a Fetch for one partition (session_epoch -1: without a session)."""
    asked = {
        "partition": partition,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": offset,
        "partition_max_bytes": partition_max_bytes,
    }
    return {
        "replica_id": -1,
        "max_wait": max_wait,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": [{"topic": topic, "topic_id": topic_id, "partitions": [asked]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


def fetch(wire: Wire, topic: str, offset: int = 0, *, version: int = 12, **options: Any) -> Any:
    """The partition of the answer."""
    answer = wire.call("fetch", version, fetch_request(topic, offset, **options))
    (found,) = answer.responses
    (partition,) = found.partitions
    return partition


def fetch_bytes(wire: Wire, topic: str, offset: int = 0, **options: Any) -> bytes:
    return bytes(fetch(wire, topic, offset, **options).records or b"")
