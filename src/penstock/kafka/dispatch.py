"""Which APIs this broker serves, in which versions, and which function answers each.

Only what works is in the table: clients switch features on by what they see here. The ranges and
their reasons are in docs/reference/kafka-apis.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from penstock.kafka.context import RequestContext
from penstock.kafka.handlers import (
    api_versions,
    cluster,
    configs,
    consumer_groups,
    fetch,
    groups,
    log,
    offsets,
    produce,
    quotas,
    share_fetch,
    share_groups,
    topics,
    transaction_views,
    transactions,
)
from penstock.wire.kafka import codec

Handler = Callable[[RequestContext, Any], Awaitable[Mapping[str, Any]]]
Buffers = list[bytes | bytearray | memoryview]

PRODUCE, FETCH, SHARE_FETCH = 0, 1, 78


class Api(NamedTuple):
    """One row: the versions advertised, the lowest really served, and the handler."""

    key: int
    name: str
    min_version: int
    max_version: int
    handler: Handler
    min_served: int | None = None

    def serves(self, version: int) -> bool:
        lowest = self.min_version if self.min_served is None else self.min_served
        return lowest <= version <= self.max_version


async def _by_hand(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    raise AssertionError("Produce and Fetch are answered by `answer` itself")


_ROWS = (
    # librdkafka up to 2.11.0 stops compressing unless Produce 0 is advertised (KAFKA-18659).
    Api(PRODUCE, "Produce", 0, 13, _by_hand, min_served=3),
    Api(FETCH, "Fetch", 4, 18, _by_hand),
    Api(2, "ListOffsets", 1, 11, log.list_offsets),
    Api(3, "Metadata", 0, 13, topics.metadata),
    Api(8, "OffsetCommit", 2, 10, offsets.offset_commit),
    Api(9, "OffsetFetch", 1, 10, offsets.offset_fetch),
    Api(10, "FindCoordinator", 0, 6, groups.find_coordinator),
    Api(11, "JoinGroup", 0, 9, groups.join_group),
    Api(12, "Heartbeat", 0, 4, groups.heartbeat),
    Api(13, "LeaveGroup", 0, 5, groups.leave_group),
    Api(14, "SyncGroup", 0, 5, groups.sync_group),
    Api(15, "DescribeGroups", 0, 6, groups.describe_groups),
    Api(16, "ListGroups", 0, 5, groups.list_groups),
    Api(18, "ApiVersions", 0, 4, api_versions.api_versions),
    Api(19, "CreateTopics", 2, 7, topics.create_topics),
    Api(20, "DeleteTopics", 1, 6, topics.delete_topics),
    Api(21, "DeleteRecords", 0, 2, log.delete_records),
    Api(22, "InitProducerId", 0, 5, transactions.init_producer_id),
    Api(23, "OffsetForLeaderEpoch", 2, 4, log.offset_for_leader_epoch),
    Api(24, "AddPartitionsToTxn", 0, 5, transactions.add_partitions_to_txn),
    Api(25, "AddOffsetsToTxn", 0, 4, transactions.add_offsets_to_txn),
    Api(26, "EndTxn", 0, 5, transactions.end_txn),
    Api(27, "WriteTxnMarkers", 1, 2, transactions.write_txn_markers),
    Api(28, "TxnOffsetCommit", 0, 5, transactions.txn_offset_commit),
    Api(32, "DescribeConfigs", 1, 4, configs.describe_configs),
    Api(33, "AlterConfigs", 0, 2, configs.alter_configs),
    Api(35, "DescribeLogDirs", 1, 5, cluster.describe_log_dirs),
    Api(37, "CreatePartitions", 0, 3, topics.create_partitions),
    Api(42, "DeleteGroups", 0, 2, groups.delete_groups),
    Api(43, "ElectLeaders", 0, 2, cluster.elect_leaders),
    Api(44, "IncrementalAlterConfigs", 0, 1, configs.incremental_alter_configs),
    Api(45, "AlterPartitionReassignments", 0, 1, cluster.alter_partition_reassignments),
    Api(46, "ListPartitionReassignments", 0, 0, cluster.list_partition_reassignments),
    Api(47, "OffsetDelete", 0, 0, offsets.offset_delete),
    Api(48, "DescribeClientQuotas", 0, 1, quotas.describe_client_quotas),
    Api(49, "AlterClientQuotas", 0, 1, quotas.alter_client_quotas),
    Api(60, "DescribeCluster", 0, 2, cluster.describe_cluster),
    Api(61, "DescribeProducers", 0, 0, transaction_views.describe_producers),
    Api(65, "DescribeTransactions", 0, 0, transaction_views.describe_transactions),
    Api(66, "ListTransactions", 0, 2, transaction_views.list_transactions),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, consumer_groups.consumer_group_heartbeat),
    Api(69, "ConsumerGroupDescribe", 0, 1, consumer_groups.consumer_group_describe),
    Api(74, "ListConfigResources", 0, 1, configs.list_config_resources),
    Api(75, "DescribeTopicPartitions", 0, 0, topics.describe_topic_partitions),
    Api(76, "ShareGroupHeartbeat", 1, 1, share_groups.share_group_heartbeat),
    Api(77, "ShareGroupDescribe", 1, 1, share_groups.share_group_describe),
    Api(SHARE_FETCH, "ShareFetch", 1, 2, share_fetch.share_fetch),
    Api(79, "ShareAcknowledge", 1, 2, share_fetch.share_acknowledge),
    Api(90, "DescribeShareGroupOffsets", 0, 1, share_groups.describe_share_group_offsets),
    Api(91, "AlterShareGroupOffsets", 0, 0, share_groups.alter_share_group_offsets),
    Api(92, "DeleteShareGroupOffsets", 0, 0, share_groups.delete_share_group_offsets),
)
APIS: Mapping[int, Api] = {row.key: row for row in _ROWS}
api_versions.advertise((row.key, row.min_version, row.max_version) for row in _ROWS)


# Produce and Fetch are known here so that the hot path need not wait for kio to be imported.
_FLEXIBLE_FROM = {PRODUCE: 9, FETCH: 12}


def api_name(key: int) -> str:
    """The name of an API, for people; its number if we do not serve it."""
    return APIS[key].name if key in APIS else str(key)


def is_flexible(api_key: int, version: int) -> bool:
    """Whether a version has tag sections (KIP-482), in its header too."""
    first = _FLEXIBLE_FROM.get(api_key)
    return version >= first if first is not None else codec.schema(api_key, version).flexible


async def answer(ctx: RequestContext, body: memoryview) -> Buffers | None:
    """The response body to one request, as buffers; None when no response is due (acks=0)."""
    if ctx.api_key == PRODUCE:
        return await produce.produce(ctx, body)
    if ctx.api_key == FETCH:
        return await fetch.fetch(ctx, body)
    request = codec.decode_request(ctx.api_key, ctx.api_version, body)
    payload = await APIS[ctx.api_key].handler(ctx, request)
    return [codec.encode_response(ctx.api_key, ctx.api_version, payload)]
