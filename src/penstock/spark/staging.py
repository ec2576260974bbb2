"""What a task has written and nobody may see yet.

Executors encode rows into record batches; the driver's commit writes them all in one transaction.
In between, a small output travels inside the task's commit message; a large one is parked in a
topic of the sink, `__penstock_staging.<sink>`, each batch as the value of one record. The driver
reads it back, and after the commit lets the broker drop everything parked so far. What a failed
attempt parked is swept by the next commit, or by the topic's retention of a day. The topic of a
batch job goes with the job; those that nobody has used for a day are removed by other sinks.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from penstock.spark.cluster import EARLIEST, LATEST, READ_UNCOMMITTED, Cluster, TopicPartition
from penstock.spark.decoding import batches_of
from penstock.spark.encoding import NO_LIMIT, Encoded
from penstock.spark.errors import SparkConnectorError
from penstock.spark.fetching import FetchSettings, Range, fetch_range
from penstock.spark.producing import Producer

INLINE_BYTES = 4 << 20
PREFIX = "__penstock_staging."
DAY_MS = 86_400_000
_TOPIC_SETTINGS = {"retention.ms": str(DAY_MS), "cleanup.policy": "delete"}


class Staged(NamedTuple):
    """One task's output: batches in hand, or where they are parked."""

    batches: tuple[Encoded, ...]
    parked: tuple[tuple[TopicPartition, int, int, str], ...]  # partition, first, end, attempt
    rows: int


def staging_topic(sink: str) -> str:
    """The topic where this sink parks."""
    return f"{PREFIX}{hashlib.sha256(sink.encode()).hexdigest()[:24]}"


class Stage:
    """Collects the batches of one task; parks them once they are too many to carry along."""

    def __init__(
        self, cluster: Cluster, sink: str, attempt: str, inline_bytes: int = INLINE_BYTES
    ) -> None:
        self._cluster = cluster
        self._topic = staging_topic(sink)
        self._attempt = attempt
        self._inline_bytes = inline_bytes
        self._held: list[Encoded] = []
        self._held_bytes = 0
        self._producer: Producer | None = None
        self._partition = TopicPartition(self._topic, 0)
        self._first: int | None = None

    def add(self, batch: Encoded) -> None:
        self._held.append(batch)
        self._held_bytes += len(batch.records)
        if self._held_bytes >= self._inline_bytes:
            self._park()

    def _park(self) -> None:
        if self._producer is None:
            self._cluster.create_topic(self._topic, 1, _TOPIC_SETTINGS)
            self._producer = Producer(self._cluster)
            ends = self._cluster.offsets_at({self._partition: LATEST}, READ_UNCOMMITTED)
            self._first = ends[self._partition].offset
        self._producer.send(self._parcel(batch) for batch in self._held)
        self._held, self._held_bytes = [], 0

    def _parcel(self, batch: Encoded) -> Encoded:
        label = json.dumps([self._attempt, *batch.partition, batch.rows]).encode()
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, NO_LIMIT)
        # The time counts: retention would take a record of 1970 at once.
        builder.append(0, time.time_ns() // 1_000_000, label, batch.records, [])
        return Encoded(self._partition, bytes(builder.build()), 1)

    def finish(self, rows: int) -> Staged:
        """What the commit needs to find everything."""
        if self._producer is None:
            return Staged(tuple(self._held), (), rows)
        if self._held:
            self._park()
        assert self._first is not None
        end = self._cluster.offsets_at({self._partition: LATEST}, READ_UNCOMMITTED)
        parked = (self._partition, self._first, end[self._partition].offset, self._attempt)
        return Staged((), (parked,), rows)


def unstage(cluster: Cluster, staged: list[Staged]) -> Iterator[Encoded]:
    """Every batch of the tasks, in the order each task made them."""
    for task in staged:
        yield from task.batches
        for partition, first, end, attempt in task.parked:
            yield from _fetch_parked(cluster, Range(partition, first, end), attempt)


def _fetch_parked(cluster: Cluster, wanted: Range, attempt: str) -> Iterator[Encoded]:
    for piece in fetch_range(cluster, wanted, FetchSettings(READ_UNCOMMITTED, True)):
        for batch, _ in batches_of(piece.records):
            for record in DefaultRecordBatch(batch):
                owner, topic, partition, count = json.loads(record.key)
                if owner == attempt and wanted.start <= record.offset < wanted.end:
                    yield Encoded(TopicPartition(topic, partition), record.value, count)


def sweep(cluster: Cluster, staged: list[Staged]) -> None:
    """Drop what is parked up to the end of this commit; it can no longer be needed."""
    ends: dict[TopicPartition, int] = {}
    for task in staged:
        for partition, _, end, _ in task.parked:
            ends[partition] = max(end, ends.get(partition, 0))
    if ends:
        cluster.delete_records(ends)


def drop(cluster: Cluster, sink: str) -> None:
    """Remove the topic of a job that is over, if it parked anything."""
    topic = staging_topic(sink)
    if cluster.topics([topic]):
        cluster.delete_topics([topic])


def sweep_orphans(cluster: Cluster, living: Iterable[str]) -> list[str]:
    """Remove empty staging topics of sinks that are not among the living; returns their names.

    Empty, but once used: what was parked is swept or a day old. A sink that is about to park for
    the first time has an end of zero and is left alone.
    """
    keep = {staging_topic(sink) for sink in living}
    found = [name for name in cluster.topics() if name.startswith(PREFIX) and name not in keep]
    parts = [TopicPartition(name, 0) for name in found]
    first = cluster.offsets_at(dict.fromkeys(parts, EARLIEST))
    end = cluster.offsets_at(dict.fromkeys(parts, LATEST))
    dead = [tp.topic for tp in parts if 0 < end[tp].offset == first[tp].offset]
    cluster.delete_topics(dead)
    return dead


def interleaved(batches: Iterator[Encoded], window: int = 16) -> Iterator[Encoded]:
    """The same batches with partitions taking turns, within a window, so that one request can
    carry a batch of each; the order within a partition stays."""
    queues: dict[TopicPartition, list[Encoded]] = {}
    held = 0
    for batch in batches:
        queues.setdefault(batch.partition, []).append(batch)
        held += 1
        if held >= window:
            yield from _turns(queues)
            queues, held = {}, 0
    yield from _turns(queues)


def _turns(queues: dict[TopicPartition, list[Encoded]]) -> Iterator[Encoded]:
    while queues:
        for partition in list(queues):
            yield queues[partition].pop(0)
            if not queues[partition]:
                del queues[partition]


def check_complete(staged: list[Staged | None]) -> list[Staged]:
    """Spark passes None for a task that failed; such a batch must not be committed."""
    if any(task is None for task in staged):
        raise SparkConnectorError("a task of this batch has no result; nothing is committed")
    return [task for task in staged if task is not None]
