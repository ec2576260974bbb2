"""Idempotent producers and transactions: from InitProducerId to EndTxn.

What people ask about transactions is in `transaction_views`. Two rules of the versions are here:
clients that do not know PRODUCER_FENCED are told INVALID_PRODUCER_EPOCH, and EndTxn 5, Produce 12
and TxnOffsetCommit 5 are the signs of transactions v2 (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.errors import (
    AccessDenied,
    BrokerError,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidGroupId,
    InvalidProducerEpoch,
    InvalidRequest,
    NotEnoughReplicas,
    ProducerFenced,
    UnknownTopicOrPartition,
)
from penstock.kafka.context import RequestContext
from penstock.kafka.errors import NONE, OPERATION_NOT_ATTEMPTED, error_code
from penstock.kafka.handlers.access import require_cluster, require_group, require_topic
from penstock.kafka.handlers.groups import milliseconds
from penstock.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from penstock.model.topic import is_internal
from penstock.services.group_offsets import Commit, PartitionCommit
from penstock.services.transactions import CLASSIC, EPOCH_PER_TRANSACTION

# The first version of each request whose client knows PRODUCER_FENCED.
_KNOWS_FENCED = {"init": 4, "add_partitions": 2, "add_offsets": 2, "end": 2}


def _require_id(ctx: RequestContext, operation: str, transactional_id: str) -> None:
    if not ctx.allow(operation, "TransactionalId", transactional_id):
        raise AccessDenied(
            f"not allowed to {operation} transactional id {transactional_id}", "transactional_id"
        )


def _code(ctx: RequestContext, request: str, refusal: BrokerError) -> int:
    if isinstance(refusal, ProducerFenced) and ctx.api_version < _KNOWS_FENCED[request]:
        return error_code(InvalidProducerEpoch(""))
    return error_code(refusal)


# --- producers ------------------------------------------------------------------------------------


async def init_producer_id(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Who a producer is; with a transactional id, this fences whoever was it before."""
    try:
        producer_id = getattr(request, "producer_id", NO_PRODUCER_ID)
        epoch = getattr(request, "producer_epoch", NO_PRODUCER_EPOCH)
        if request.transactional_id is None:
            require_cluster(ctx, "IdempotentWrite")
        else:
            _require_id(ctx, "Write", request.transactional_id)
        if (producer_id == NO_PRODUCER_ID) != (epoch == NO_PRODUCER_EPOCH):
            raise InvalidRequest("a producer id comes with an epoch, and an epoch with an id")
        identity = await ctx.broker.transactions.init_producer_id(
            request.transactional_id, milliseconds(request.transaction_timeout), producer_id, epoch
        )
    except BrokerError as refusal:
        code = _code(ctx, "init", refusal)
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    return {
        "error_code": NONE,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
    }


# --- what is part of a transaction ----------------------------------------------------------------


async def add_partitions_to_txn(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """One transaction of a client; from version 4 on a batch of them, from other brokers."""
    if ctx.api_version < 4:
        codes = await _add_partitions(
            ctx,
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            _places(request.v3_and_below_topics),
        )
        topics = _by_topic(request.v3_and_below_topics, codes)
        return {"results_by_topic_v3_and_below": topics}
    try:
        require_cluster(ctx, "ClusterAction")
    except BrokerError as refusal:
        return {"error_code": error_code(refusal)}
    results = []
    for one in request.transactions:
        codes = await _add_partitions(
            ctx,
            one.transactional_id,
            one.producer_id,
            one.producer_epoch,
            _places(one.topics),
            verify_only=one.verify_only,
        )
        topics = _by_topic(one.topics, codes)
        results.append({"transactional_id": one.transactional_id, "topic_results": topics})
    return {"error_code": NONE, "results_by_transaction": results}


async def _add_partitions(
    ctx: RequestContext,
    transactional_id: str,
    producer_id: int,
    epoch: int,
    places: Sequence[TopicPartition],
    *,
    verify_only: bool = False,
) -> Mapping[TopicPartition, int]:
    transactions = ctx.broker.transactions
    who = (transactional_id, producer_id, epoch)
    try:
        if ctx.api_version < 4:
            _require_id(ctx, "Write", transactional_id)
        refused = {place: code for place in places if (code := _refused(ctx, place)) != NONE}
        if refused:  # all or none
            return {place: refused.get(place, OPERATION_NOT_ATTEMPTED) for place in places}
        if verify_only:
            found = await transactions.verify_partitions(*who, places)
            return {
                place: NONE if refusal is None else error_code(refusal)
                for place, refusal in found.items()
            }
        version = EPOCH_PER_TRANSACTION if ctx.api_version >= 4 else CLASSIC
        await transactions.add_partitions(*who, places, client_version=version)
    except BrokerError as refusal:
        return dict.fromkeys(places, _code(ctx, "add_partitions", refusal))
    return dict.fromkeys(places, NONE)


def _refused(ctx: RequestContext, place: TopicPartition) -> int:
    """Why a partition cannot be part of the caller's transaction, as a code."""
    try:
        if ctx.api_version < 4:
            if is_internal(place.topic):
                raise AccessDenied(f"{place.topic} is the broker's own", "topic")
            require_topic(ctx, "Write", place.topic)
        topic = ctx.broker.topics.find(place.topic)
        if topic is None or not topic.has_partition(place.partition):
            raise UnknownTopicOrPartition(f"there is no {place}")
    except BrokerError as refusal:
        return error_code(refusal)
    return NONE


def _places(topics: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]


def _by_topic(topics: Iterable[Any], codes: Mapping[TopicPartition, int]) -> list[dict[str, Any]]:
    return [
        {
            "name": topic.name,
            "results_by_partition": [
                {
                    "partition_index": index,
                    "partition_error_code": codes[TopicPartition(topic.name, index)],
                }
                for index in topic.partitions
            ],
        }
        for topic in topics
    ]


async def add_offsets_to_txn(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """The offsets of a group will be committed with the transaction."""
    try:
        _require_id(ctx, "Write", request.transactional_id)
        require_group(ctx, "Read", request.group_id)
        await ctx.broker.transactions.add_offsets(
            request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
        )
    except BrokerError as refusal:
        return {"error_code": _code(ctx, "add_offsets", refusal)}
    return {"error_code": NONE}


# --- offsets inside a transaction -----------------------------------------------------------------


async def txn_offset_commit(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Offsets that count when the transaction commits. Version 5 also adds them to it."""
    codes: dict[TopicPartition, int] = {}
    commits: list[PartitionCommit] = []
    for topic in request.topics:
        for part in topic.partitions:
            place = TopicPartition(topic.name, part.partition_index)
            codes[place] = _unreadable(ctx, place)
            if codes[place] == NONE:
                commits.append(_partition_commit(topic.name, part))
    try:
        _require_id(ctx, "Write", request.transactional_id)
        require_group(ctx, "Read", request.group_id)
        if commits:
            for place, refused in await _commit(ctx, request, commits):
                codes[place] = NONE if refused is None else error_code(refused)
    except BrokerError as refusal:
        code = _offsets_code(ctx, refusal)
        codes = {place: code if old == NONE else old for place, old in codes.items()}
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": part.partition_index,
                        "error_code": codes[TopicPartition(topic.name, part.partition_index)],
                    }
                    for part in topic.partitions
                ],
            }
            for topic in request.topics
        ]
    }


def _unreadable(ctx: RequestContext, place: TopicPartition) -> int:
    try:
        require_topic(ctx, "Read", place.topic)
        topic = ctx.broker.topics.find(place.topic)
        if topic is None or not topic.has_partition(place.partition):
            raise UnknownTopicOrPartition(f"there is no {place}")
    except BrokerError as refusal:
        return error_code(refusal)
    return NONE


def _partition_commit(topic: str, part: Any) -> PartitionCommit:
    return PartitionCommit(
        topic,
        part.partition_index,
        part.committed_offset,
        getattr(part, "committed_leader_epoch", -1),
        part.committed_metadata,
    )


async def _commit(
    ctx: RequestContext, request: Any, commits: Sequence[PartitionCommit]
) -> Iterable[tuple[TopicPartition, BrokerError | None]]:
    if not request.group_id:
        raise InvalidGroupId("a group id cannot be empty")
    await ctx.broker.transactions.admit_offsets(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        request.group_id,
        add=ctx.api_version >= 5,
        abortable=ctx.api_version >= 4,
    )
    commit = Commit(
        request.group_id,
        getattr(request, "member_id", ""),
        getattr(request, "group_instance_id", None),
        getattr(request, "generation_id", -1),
        commits,
    )
    return await ctx.broker.groups.offsets.commit_in_transaction(
        commit, producer_id=request.producer_id, producer_epoch=request.producer_epoch
    )


def _offsets_code(ctx: RequestContext, refusal: BrokerError) -> int:
    if isinstance(refusal, NotEnoughReplicas):
        refusal = CoordinatorNotAvailable(str(refusal))
    if isinstance(refusal, CoordinatorLoading) and ctx.api_version < 2:
        refusal = CoordinatorNotAvailable(str(refusal))  # KAFKA-7296: they could crash on the other
    return error_code(refusal)


# --- the end --------------------------------------------------------------------------------------


async def end_txn(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """Commit or abort. From version 5 on the answer holds the producer's next epoch."""
    try:
        _require_id(ctx, "Write", request.transactional_id)
        identity = await ctx.broker.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            commit=request.committed,
            client_version=EPOCH_PER_TRANSACTION if ctx.api_version >= 5 else CLASSIC,
        )
    except BrokerError as refusal:
        code = _code(ctx, "end", refusal)
        return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
    return {
        "error_code": NONE,
        "producer_id": identity.producer_id,
        "producer_epoch": identity.producer_epoch,
    }


async def write_txn_markers(ctx: RequestContext, request: Any) -> Mapping[str, Any]:
    """End a transaction in single partitions, past the coordinator: to abort one that hangs."""
    return {"markers": [await _write_marker(ctx, marker) for marker in request.markers]}


async def _write_marker(ctx: RequestContext, marker: Any) -> dict[str, Any]:
    topics = []
    for topic in marker.topics:
        rows = []
        for index in topic.partition_indexes:
            try:
                await _write_one_marker(ctx, marker, topic.name, index)
                code = NONE
            except BrokerError as refusal:
                code = error_code(refusal)
            rows.append({"partition_index": index, "error_code": code})
        topics.append({"name": topic.name, "partitions": rows})
    return {"producer_id": marker.producer_id, "topics": topics}


async def _write_one_marker(ctx: RequestContext, marker: Any, topic: str, partition: int) -> None:
    require_cluster(ctx, "Alter")
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        raise InvalidRequest("a marker needs a producer id and an epoch")
    await ctx.broker.partitions.write_marker(
        topic,
        partition,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        commit=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
    )
