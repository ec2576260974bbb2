"""Which batches of which sinks are done: a compacted topic, written in the batch's transaction.

    __penstock_sinks   key: sink id   value: {"batch": 41, "rows": 1000, "query": "..."}

The record that says "batch 41 is done" and the rows of batch 41 are one Kafka transaction, so one
is there exactly when the other is. A replayed batch finds its number here and is left alone. A
committed consumer offset would do the same, but expires after a week without commits.
"""

from __future__ import annotations

import json
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from penstock.spark.cluster import EARLIEST, LATEST, READ_COMMITTED, Cluster, TopicPartition
from penstock.spark.decoding import visible_batches
from penstock.spark.encoding import NO_LIMIT, Encoded
from penstock.spark.errors import SparkConnectorError
from penstock.spark.fetching import FetchSettings, Range, fetch_range

TOPIC = "__penstock_sinks"
PARTITIONS = 8
# Small segments, so that compaction keeps what a starting sink has to read small.
_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(8 << 20),
    "min.cleanable.dirty.ratio": "0.2",
}

# Where this process has read each partition of the ledger to, and the newest entry of each sink.
_read_to: dict[tuple[str, TopicPartition], int] = {}
_newest: dict[tuple[str, str], dict[str, Any]] = {}


def partition_of(cluster: Cluster, sink: str) -> TopicPartition:
    """Where a sink's entries are; the topic is made when it is not there."""
    found = cluster.topics([TOPIC]).get(TOPIC)
    if not found:
        cluster.create_topic(TOPIC, PARTITIONS, _SETTINGS)
        found = cluster.topics([TOPIC]).get(TOPIC) or list(range(PARTITIONS))
    # Not more than at the beginning: a sink must not move when somebody adds partitions.
    return TopicPartition(TOPIC, sum(sink.encode()) % min(PARTITIONS, len(found)))


def last_batch(cluster: Cluster, sink: str) -> int:
    """The newest batch of `sink` that is committed; -1 before the first."""
    _catch_up(cluster, partition_of(cluster, sink))
    entry = _newest.get((cluster.servers, sink))
    return -1 if entry is None else int(entry["batch"])


def is_done(cluster: Cluster, sink: str, batch_id: int, query: str) -> bool:
    """Whether `sink` has this batch. A query with other checkpoints counts from zero again, so its
    numbers mean nothing here: it is refused, or its first batches would be taken for repeats.

    Call it after the sink's transactional id was taken over: then nothing of an earlier owner is
    still in flight, and what is stable now is all there will be.
    """
    _catch_up(cluster, partition_of(cluster, sink))
    entry = _newest.get((cluster.servers, sink))
    if entry is None:
        return False
    if entry.get("query", query) != query:
        raise SparkConnectorError(
            f"sinkId {sink!r} belongs to a query with another checkpoint, which has written up to "
            f"batch {entry['batch']}; go on from that checkpoint, or choose another sinkId"
        )
    return int(entry["batch"]) >= batch_id


def active_since(cluster: Cluster, time_ms: int) -> set[str]:
    """The sinks that have committed a batch since then."""
    for partition in cluster.topics([TOPIC]).get(TOPIC, ()):
        _catch_up(cluster, TopicPartition(TOPIC, partition))
    return {
        sink
        for (servers, sink), entry in _newest.items()
        if servers == cluster.servers and entry["at"] >= time_ms
    }


def _catch_up(cluster: Cluster, partition: TopicPartition) -> None:
    """Read what was written to the ledger since this process looked last."""
    ends = cluster.offsets_at({partition: LATEST}, READ_COMMITTED)
    first = cluster.offsets_at({partition: EARLIEST})[partition].offset
    end = ends[partition].offset
    start = _read_to.get((cluster.servers, partition), 0)
    if start > end:  # another topic of the same name: nothing known of it
        start = 0
        _newest.clear()
    wanted = Range(partition, max(start, first), end)
    for piece in fetch_range(cluster, wanted, FetchSettings(READ_COMMITTED, False)):
        for batch, _ in visible_batches(piece):
            for record in DefaultRecordBatch(batch):
                if record.value is not None and record.offset < end:
                    found = {**json.loads(record.value), "at": record.timestamp}
                    _newest[cluster.servers, record.key.decode()] = found
    _read_to[cluster.servers, partition] = end


def entry(
    partition: TopicPartition, sink: str, batch_id: int, rows: int, query: str, now_ms: int
) -> Encoded:
    """The record that says so."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, NO_LIMIT)
    value = json.dumps({"batch": batch_id, "rows": rows, "query": query}).encode()
    builder.append(0, now_ms, sink.encode(), value, [])
    return Encoded(partition, bytes(builder.build()), 1)
