"""What people ask about transactions: DescribeTransactions, ListTransactions, DescribeProducers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.errors import AccessDenied, BrokerError
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import NONE, error_code
from penstock.kafka.handlers.access import require_topic
from penstock.model.ids import TopicPartition
from penstock.model.pattern import pattern
from penstock.model.transaction_topic import TransactionChanged, TransactionStatus

_BY_LABEL = {status.label: status for status in TransactionStatus}


async def describe_transactions(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """The state of the transactional ids that the request names."""
    return {"transaction_states": [_describe(ctx, name) for name in request.transactional_ids]}


def _describe(ctx: RequestContext, transactional_id: str) -> dict[str, Any]:
    try:
        if not ctx.allow("Describe", "TransactionalId", transactional_id):
            raise AccessDenied(f"not allowed to Describe {transactional_id}", "transactional_id")
        state = ctx.broker.transactions.describe(transactional_id)
    except BrokerError as refusal:
        return {"error_code": error_code(refusal), "transactional_id": transactional_id}
    return {
        "error_code": NONE,
        "transactional_id": transactional_id,
        "transaction_state": state.status.label,
        "transaction_timeout": state.timeout_ms,
        "transaction_start_time": state.started_at_ms,
        "producer_id": state.producer_id,
        "producer_epoch": state.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": partitions}
            for topic, partitions in _by_topic(state.partitions)
            if ctx.allow("Describe", "Topic", topic)
        ],
    }


def _by_topic(places: Iterable[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in places:
        topics.setdefault(topic, []).append(partition)
    return topics.items()


async def list_transactions(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Transactional ids that pass every filter; a filter that is empty lets all pass."""
    unknown = [label for label in request.state_filters if label not in _BY_LABEL]
    try:
        passes = _filter(request, ctx.broker.clock.now_ms())
    except BrokerError as refusal:  # the pattern
        return {"error_code": error_code(refusal), "unknown_state_filters": unknown}
    return {
        "error_code": NONE,
        "unknown_state_filters": unknown,
        "transaction_states": [
            {
                "transactional_id": name,
                "producer_id": state.producer_id,
                "transaction_state": state.status.label,
            }
            for name, state in ctx.broker.transactions.list()
            if passes(name, state) and ctx.allow("Describe", "TransactionalId", name)
        ],
    }


def _filter(request: Any, now_ms: int) -> Callable[[str, TransactionChanged], bool]:
    statuses = [_BY_LABEL[label] for label in request.state_filters if label in _BY_LABEL]
    producer_ids = frozenset(request.producer_id_filters)
    duration_ms = getattr(request, "duration_filter", -1)  # since version 1 (KIP-994)
    text = getattr(request, "transactional_id_pattern", None)  # since version 2 (KIP-1152)
    wanted = pattern(text) if text else None

    def passes(name: str, state: TransactionChanged) -> bool:
        return (
            (not request.state_filters or state.status in statuses)
            and (not producer_ids or state.producer_id in producer_ids)
            and (duration_ms < 0 or now_ms - state.started_at_ms > duration_ms)
            and (wanted is None or wanted.matches(name))
        )

    return passes


async def describe_producers(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """The producers that partitions remember, with the transactions that are open there."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    await _describe_partition(ctx, topic.name, index)
                    for index in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ]
    }


async def _describe_partition(ctx: RequestContext, topic: str, index: int) -> dict[str, Any]:
    try:
        require_topic(ctx, "Read", topic)
        replica = await ctx.broker.partitions.replica(topic, index)
    except BrokerError as refusal:
        code = error_code(refusal)
        return {"partition_index": index, "error_code": code, "error_message": str(refusal)}
    return {
        "partition_index": index,
        "error_code": NONE,
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.transaction_offset,
            }
            for producer in replica.producers.describe()
        ],
    }
