"""Reading topics with Spark: one plan for batch and stream, one read on the executors.

The driver asks the brokers for offsets and hands out ranges; an executor fetches its range and
turns it into Arrow. Nothing of a reader changes after it is made, but the stream's own clock for
`minOffsetsPerTrigger` and the end that `Trigger.AvailableNow` fixed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.spark import offsets as at
from penstock.spark import planning
from penstock.spark.cluster import TopicPartition
from penstock.spark.errors import SparkConnectorError
from penstock.spark.fetching import Range, fetch_range, sample
from penstock.spark.offsets import BEGAN, FROM, UNSTARTED, Positions
from penstock.spark.options import Bound, Options
from penstock.spark.read_options import ReadOptions, read_options
from penstock.spark.workers import Delivered, keep_what_is_loaded

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class RangePartition(InputPartition):
    """One task: a range of one partition. `began` is where the query began to read a queue."""

    def __init__(self, wanted: Range, began: int | None = None) -> None:
        super().__init__((*wanted, began))
        self.wanted = wanted
        self.began = began


def read_range(
    said: ReadOptions, schema: StructType, task: InputPartition
) -> Iterator[pa.RecordBatch]:
    """On an executor: fetch, decode, shape."""
    if not isinstance(task, RangePartition):  # Spark's way of running a plan without tasks
        return iter(())
    from penstock.spark.decoding import decode  # numpy, Arrow and the codec: not for the driver

    rows = decode(
        fetch_range(said.cluster, task.wanted, said.fetch),
        task.wanted,
        said.shape.raw_arrow_schema(),
        check_crcs=said.check_crcs,
        queue_began=task.began,
    )
    return _to_the_end(said.shape.apply(rows, schema, said.connect))


def _to_the_end(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from rows
    keep_what_is_loaded()


def _tasks(said: ReadOptions, ranges: list[Range], began: Positions) -> list[InputPartition]:
    pieces = planning.split(
        ranges, min_partitions=said.min_partitions, max_records=said.max_records
    )
    return [
        RangePartition(piece, began.get(piece.partition, piece.start) if said.is_queue else None)
        for piece in pieces
    ]


class TopicReader(Delivered, DataSourceReader):
    """A batch query: both bounds are resolved when the plan is made."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._said = read_options(options, streaming=False)
        self._said.shape.check(schema)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        said, cluster = self._said, self._said.cluster
        partitions = at.partitions_of(cluster, said.wanted)
        start = self._resolve(said.start, partitions)
        end = self._resolve(said.end, partitions, ending=True)
        if said.start.kind != "group":  # what others committed may be older than the topic
            at.check_order(start, end)
        first = at.earliest(cluster, partitions)
        for loss in at.check_loss(start, first, end, said.fail_on_data_loss):
            log.warning("%s", loss)
        start = {tp: max(offset, first[tp]) for tp, offset in start.items()}
        return _tasks(said, planning.ranges_between(start, end), start)

    def _resolve(self, where: Bound, partitions: Any, *, ending: bool = False) -> Positions:
        return at.resolve(
            self._said.cluster,
            where,
            partitions,
            isolation=self._said.isolation,
            # A time after the last record ends a read at the last record, in Spark's source too.
            when_none_later="latest" if ending else self._said.when_none_later,
            group=self._said.group,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._said, self._schema, partition)


class TopicStreamReader(Delivered, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query: lives in the driver's planner process as long as the query runs."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._said = read_options(options, streaming=True)
        self._said.shape.check(schema)
        self._schema = schema
        self._fixed_end: Positions | None = None
        self._last_trigger = float("-inf")  # a query that starts again does not wait
        self._seen_end: Positions = {}
        self._partitions: list[TopicPartition] = []
        self._asked_at = float("-inf")

    def initialOffset(self) -> dict[str, Any]:
        return UNSTARTED

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._said.max_offsets is not None:
            return ReadMaxRows(self._said.max_offsets)
        if self._said.max_bytes is not None:
            return ReadMaxBytes(self._said.max_bytes)
        if self._said.min_offsets is not None:
            return ReadMinRows(self._said.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        said = self._said
        partitions = at.partitions_of(said.cluster, said.wanted)
        self._fixed_end = at.latest(said.cluster, partitions, said.isolation)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch goes. Returns `start` itself when there is nothing to do."""
        known, begun, end = self._situation(start)
        from_here = {**begun, **known}
        if not isinstance(limit, ReadAllAvailable):
            if known and self._should_wait(from_here, end):
                return start
            end = self._limited(from_here, end)
        if known and not begun and all(end[tp] == known.get(tp) for tp in end):
            return start
        self._last_trigger = time.monotonic()
        answer = at.to_json(end)
        if begun:
            answer[FROM] = at.to_json(begun)
        if self._said.is_queue:
            answer[BEGAN] = at.to_json({**begun, **at.from_json(start.get(BEGAN, {}))})
        return answer

    def _situation(self, start: dict[str, Any]) -> tuple[Positions, Positions, Positions]:
        """(where known partitions stand, where new ones begin, the end of all)."""
        said, cluster = self._said, self._said.cluster
        partitions = self._subscribed()
        end = at.latest(cluster, partitions, said.isolation)
        self._seen_end = dict(end)
        if self._fixed_end is not None:
            end = {tp: min(offset, end[tp]) for tp, offset in self._fixed_end.items() if tp in end}
        if start == UNSTARTED:
            begun = at.resolve(
                cluster,
                said.start,
                partitions,
                isolation=said.isolation,
                when_none_later=said.when_none_later,
                group=said.group,
            )
            known: Positions = {}
        else:
            known = at.from_json(start)
            if said.ignore_deleted_topics:
                there = {tp.topic for tp in partitions}
                known = {tp: offset for tp, offset in known.items() if tp.topic in there}
            first = at.earliest(cluster, partitions)
            begun = {tp: first[tp] for tp in end if tp not in known}
            self._check_loss(known, first, end)
            known = {tp: max(offset, first[tp]) for tp, offset in known.items() if tp in end}
        # Offsets never go back: an end below the start is loss, reported above.
        whole = {tp: max(end[tp], {**begun, **known}.get(tp, 0)) for tp in end}
        return known, {tp: begun[tp] for tp in begun if tp in whole}, whole

    def _subscribed(self) -> list[TopicPartition]:
        """Asked at every trigger, or as seldom as partition.metadata.cache.ttl.ms says."""
        now = time.monotonic()
        if now - self._asked_at >= self._said.metadata_ttl_s:
            self._partitions = at.partitions_of(self._said.cluster, self._said.wanted)
            self._asked_at = now
        return self._partitions

    def _check_loss(self, known: Positions, first: Positions, end: Positions) -> None:
        for loss in at.check_loss(known, first, end, self._said.fail_on_data_loss):
            log.warning("%s", loss)

    def _should_wait(self, start: Positions, end: Positions) -> bool:
        """Whether minOffsetsPerTrigger is not reached and maxTriggerDelay has not passed."""
        if self._said.min_offsets is None or self._fixed_end is not None:
            return False
        waiting = sum(wanted.size for wanted in planning.ranges_between(start, end))
        waited_s = time.monotonic() - self._last_trigger
        return waiting < self._said.min_offsets and waited_s < self._said.max_delay_s

    def _limited(self, start: Positions, end: Positions) -> Positions:
        said = self._said
        if said.max_offsets is not None:
            end = planning.limit_rows(start, end, said.max_offsets)
        if said.max_bytes is not None:
            weights = {}
            for wanted in planning.ranges_between(start, end):
                count, size = sample(said.cluster, wanted, said.fetch)
                weights[wanted.partition] = size / count if count else 1.0
            end = planning.limit_bytes(start, end, said.max_bytes, weights)
        return end

    def reportLatestOffset(self) -> dict[str, Any]:
        """Shown as `latestOffset` in the query's progress: minus `endOffset` it is the lag."""
        return at.to_json(self._seen_end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        known = {} if start == UNSTARTED else at.from_json(start)
        begun = at.from_json(end.get(FROM, {}))
        ranges = planning.ranges_between({**begun, **known}, at.from_json(end))
        return _tasks(self._said, ranges, at.from_json(end.get(BEGAN, {})))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(self._said, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has the batch for good: show it as a consumer group's progress, when asked to."""
        positions = at.from_json(end)
        if self._said.commit_group and positions:
            self._said.cluster.commit(self._said.commit_group, positions)

    def stop(self) -> None:
        self._said.cluster.forget()


class Refused(DataSourceStreamReader):
    """Stands for a stream that cannot be: whatever it is asked, it says why."""

    def __init__(self, why: SparkConnectorError) -> None:
        self._why = why

    def getDefaultReadLimit(self) -> ReadLimit:
        raise self._why

    def initialOffset(self) -> dict[str, Any]:
        raise self._why

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self._why

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._why
