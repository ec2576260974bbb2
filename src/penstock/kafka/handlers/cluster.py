"""Questions about the cluster: DescribeCluster, DescribeLogDirs, ElectLeaders, reassignments.

On one node every partition is where it belongs and its preferred leader leads, so elections are not
needed and no reassignment is ever under way; what cannot be done is refused as Kafka refuses it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import BrokerError, ElectionNotNeeded, UnknownTopicOrPartition
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import (
    INVALID_REQUEST,
    MISMATCHED_ENDPOINT_TYPE,
    NO_REASSIGNMENT_IN_PROGRESS,
    UNSUPPORTED_ENDPOINT_TYPE,
    error_code,
)
from penstock.kafka.handlers.access import NOT_ASKED, cluster_operations, require_cluster
from penstock.services.log_dirs import log_dir, partition_uses

Payload = dict[str, Any]

_BROKERS, _CONTROLLERS = 1, 2
_PREFERRED, _UNCLEAN = 0, 1


async def describe_cluster(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """The brokers and the controller. Only brokers answer here; there is no other endpoint."""
    endpoint = getattr(request, "endpoint_type", _BROKERS)
    if endpoint == _CONTROLLERS:
        return _refused(MISMATCHED_ENDPOINT_TYPE, "This endpoint is a broker's, not a controller's")
    if endpoint != _BROKERS:
        return _refused(UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {endpoint}")
    cluster = ctx.broker.cluster
    return {
        "throttle_time": ctx.throttle_ms,
        "error_code": 0,
        "endpoint_type": _BROKERS,
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "brokers": [
            {
                "broker_id": node.id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "is_fenced": False,
            }
            for node in cluster.nodes
        ],
        "cluster_authorized_operations": (
            cluster_operations(ctx) if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    }


def _refused(code: int, words: str) -> Payload:
    return {"error_code": code, "error_message": words, "brokers": ()}


async def describe_log_dirs(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """The data directory, and the bytes of the partitions asked for in it."""
    try:
        require_cluster(ctx, "Describe")
    except BrokerError as failure:
        return {"error_code": error_code(failure), "results": ()}
    services = ctx.broker
    if request.topics is None:
        uses = await partition_uses(
            services.topics, services.partitions, dict.fromkeys(services.topics.names())
        )
    else:
        wanted: dict[str, set[int]] = {}
        for topic in request.topics:
            wanted.setdefault(topic.topic, set()).update(topic.partitions)
        uses = await partition_uses(services.topics, services.partitions, wanted)
    directory = log_dir(services.config)
    result = {
        "error_code": 0,
        "log_dir": directory.path,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {
                        "partition_index": use.partition,
                        "partition_size": use.size_bytes,
                        "offset_lag": use.lag,
                        "is_future_key": False,
                    }
                    for use in rows
                ],
            }
            for name, rows in uses.items()
        ],
        "total_bytes": directory.total_bytes,
        "usable_bytes": directory.usable_bytes,
        "is_cordoned": False,
    }
    return {"throttle_time": ctx.throttle_ms, "error_code": 0, "results": [result]}


async def elect_leaders(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """No election is needed: the only replica leads. Asked for all partitions, none is named."""
    try:
        require_cluster(ctx, "Alter")
    except BrokerError as failure:
        return {"error_code": error_code(failure), "replica_election_results": ()}
    if getattr(request, "election_type", _PREFERRED) not in (_PREFERRED, _UNCLEAN):
        return {"error_code": INVALID_REQUEST, "replica_election_results": ()}
    results = []
    for wanted in request.topic_partitions or ():
        rows = []
        for partition in wanted.partitions:
            try:
                _check_partition(ctx, wanted.topic, partition)
                raise ElectionNotNeeded("Leader election not needed for topic partition.")
            except BrokerError as failure:
                rows.append(
                    {
                        "partition_id": partition,
                        "error_code": error_code(failure),
                        "error_message": str(failure),
                    }
                )
        results.append({"topic": wanted.topic, "partition_result": rows})
    return {
        "throttle_time": ctx.throttle_ms,
        "error_code": 0,
        "replica_election_results": results,
    }


async def list_partition_reassignments(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Those under way: on one node, none."""
    try:
        require_cluster(ctx, "Describe")
    except BrokerError as failure:
        return {"error_code": error_code(failure), "error_message": str(failure), "topics": ()}
    return {"throttle_time": ctx.throttle_ms, "error_code": 0, "topics": ()}


async def alter_partition_reassignments(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Moving a partition to where it already is succeeds; to anywhere else is impossible here."""
    try:
        require_cluster(ctx, "Alter")
    except BrokerError as failure:
        return {"error_code": error_code(failure), "error_message": str(failure), "responses": ()}
    responses = []
    for topic in request.topics:
        rows = []
        for part in topic.partitions:
            code, words = 0, None
            try:
                _check_partition(ctx, topic.name, part.partition_index)
                if part.replicas is None:
                    code = NO_REASSIGNMENT_IN_PROGRESS
                else:
                    ctx.broker.topics.check_replicas(part.partition_index, part.replicas)
            except BrokerError as failure:
                code, words = error_code(failure), str(failure)
            rows.append(
                {
                    "partition_index": part.partition_index,
                    "error_code": code,
                    "error_message": words,
                }
            )
        responses.append({"name": topic.name, "partitions": rows})
    return {
        "throttle_time": ctx.throttle_ms,
        "allow_replication_factor_change": getattr(
            request, "allow_replication_factor_change", True
        ),
        "error_code": 0,
        "error_message": None,
        "responses": responses,
    }


def _check_partition(ctx: RequestContext, topic: str, partition: int) -> None:
    if not ctx.broker.topics.get(topic).has_partition(partition):
        raise UnknownTopicOrPartition(f"No such partition as {topic}-{partition}")
