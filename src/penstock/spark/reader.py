"""Reading topics with Spark: one plan for batch and stream, one read on the executors.

The driver asks the brokers for offsets and hands out ranges; an executor fetches its range and
turns it into Arrow. Nothing of a reader changes after it is made, but the stream's own clock for
`minOffsetsPerTrigger` and the end that `Trigger.AvailableNow` fixed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

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
from penstock.spark.cluster import Cluster, shared_cluster
from penstock.spark.errors import OptionError
from penstock.spark.fetching import Range, fetch_range, sample
from penstock.spark.offsets import FROM, UNSTARTED, Positions
from penstock.spark.options import (
    Bound,
    Connect,
    Options,
    Subscription,
    bound,
    choice,
    connect_options,
    duration_ms,
    flag,
    isolation,
    number,
    optional_number,
    subscription,
)
from penstock.spark.shaping import Shape, shape_of

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
SAMPLE_BYTES = 64 * 1024


class ReadOptions(NamedTuple):
    """Everything a read was told, checked."""

    connect: Connect
    wanted: Subscription
    start: Bound
    end: Bound
    when_none_later: str
    isolation: int
    fail_on_data_loss: bool
    poll_timeout_s: float
    check_crcs: bool
    min_partitions: int | None
    max_records: int | None
    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    max_delay_s: float
    group: str | None
    commit_group: str | None
    shape: Shape

    @property
    def cluster(self) -> Cluster:
        return shared_cluster(*self.connect)


def read_options(options: Options, *, streaming: bool) -> ReadOptions:
    """Check all of them together; batch and stream differ in defaults and in what they refuse."""
    start = bound(options, "starting", "latest" if streaming else "earliest")
    end = bound(options, "ending", "latest")
    _check_bounds(options, start, end, streaming)
    commit_group = options.get("commitGroup")
    group = options.get("kafka.group.id") or commit_group
    if start.kind == "group" and not group:
        raise OptionError("startingOffsets=group needs kafka.group.id or commitGroup")
    strategy = choice(options, "startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
    most, least = (
        optional_number(options, name) for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger")
    )
    if most is not None and least is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}")
    return ReadOptions(
        connect_options(options),
        subscription(options),
        start,
        end,
        strategy,
        isolation(options),
        flag(options, "failOnDataLoss", True),
        number(options, "kafkaConsumer.pollTimeoutMs", 120_000, least=1) / 1000,
        flag(options, "kafka.check.crcs", True),
        optional_number(options, "minPartitions"),
        optional_number(options, "maxRecordsPerPartition"),
        most,
        optional_number(options, "maxBytesPerTrigger"),
        least,
        duration_ms(options, "maxTriggerDelay", 15 * 60_000) / 1000,
        group,
        commit_group,
        shape_of(options),
    )


def _check_bounds(options: Options, start: Bound, end: Bound, streaming: bool) -> None:
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if options.get(name) is not None:
                raise OptionError(f"{name} is not valid in a streaming query")
        return
    if start.kind == "latest":
        raise OptionError("startingOffsets=latest is not valid in a batch query")
    if start.kind == "offsets" and any(offset == -1 for _, offset in start.offsets):
        raise OptionError("startingOffsets -1 (latest) is not valid in a batch query")
    if end.kind == "earliest":
        raise OptionError("endingOffsets=earliest is not valid in a batch query")
    if end.kind == "group":
        raise OptionError("endingOffsets=group is not valid")
    if end.kind == "offsets" and any(offset == -2 for _, offset in end.offsets):
        raise OptionError("endingOffsets -2 (earliest) is not valid in a batch query")


class RangePartition(InputPartition):
    """One task: a range of one partition."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(tuple(wanted))
        self.wanted = wanted


def read_range(said: ReadOptions, schema: StructType, wanted: Range) -> Iterator[pa.RecordBatch]:
    """On an executor: fetch, decode, shape."""
    from penstock.spark.decoding import decode  # numpy, Arrow and the codec: not for the driver

    fetched = fetch_range(
        said.cluster,
        wanted,
        isolation=said.isolation,
        fail_on_data_loss=said.fail_on_data_loss,
        poll_timeout_s=said.poll_timeout_s,
    )
    rows = decode(fetched, wanted, said.shape.raw_arrow_schema(), check_crcs=said.check_crcs)
    return said.shape.apply(rows, schema, said.connect)


def _tasks(said: ReadOptions, ranges: list[Range]) -> list[InputPartition]:
    pieces = planning.split(
        ranges, min_partitions=said.min_partitions, max_records=said.max_records
    )
    return [RangePartition(piece) for piece in pieces]


class TopicReader(DataSourceReader):
    """A batch query: both bounds are resolved when the plan is made."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._said = read_options(options, streaming=False)
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        said, cluster = self._said, self._said.cluster
        partitions = at.partitions_of(cluster, said.wanted)
        start = self._resolve(said.start, partitions)
        end = self._resolve(said.end, partitions, ending=True)
        first = at.earliest(cluster, partitions)
        for loss in at.check_loss(start, first, end, said.fail_on_data_loss):
            log.warning("%s", loss)
        start = {tp: max(offset, first[tp]) for tp, offset in start.items()}
        return _tasks(said, planning.ranges_between(start, end))

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
        assert isinstance(partition, RangePartition)
        return read_range(self._said, self._schema, partition.wanted)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query: lives in the driver's planner process as long as the query runs."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._said = read_options(options, streaming=True)
        self._schema = schema
        self._fixed_end: Positions | None = None
        self._last_trigger = time.monotonic()
        self._seen_end: Positions = {}

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
        return answer

    def _situation(self, start: dict[str, Any]) -> tuple[Positions, Positions, Positions]:
        """(where known partitions stand, where new ones begin, the end of all)."""
        said, cluster = self._said, self._said.cluster
        partitions = at.partitions_of(cluster, said.wanted)
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
            first = at.earliest(cluster, partitions)
            begun = {tp: first[tp] for tp in end if tp not in known}
            self._check_loss(known, first, end)
            known = {tp: max(offset, first[tp]) for tp, offset in known.items() if tp in end}
        # Offsets never go back: an end below the start is loss, reported above.
        whole = {tp: max(end[tp], {**begun, **known}.get(tp, 0)) for tp in end}
        return known, {tp: begun[tp] for tp in begun if tp in whole}, whole

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
                count, size = sample(said.cluster, wanted, said.isolation, SAMPLE_BYTES)
                weights[wanted.partition] = size / count if count else 1.0
            end = planning.limit_bytes(start, end, said.max_bytes, weights)
        return end

    def reportLatestOffset(self) -> dict[str, Any]:
        """Shown as `latestOffset` in the query's progress: minus `endOffset` it is the lag."""
        return at.to_json(self._seen_end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        known = {} if start == UNSTARTED else at.from_json(start)
        begun = at.from_json(end.get(FROM, {}))
        return _tasks(self._said, planning.ranges_between({**begun, **known}, at.from_json(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        return read_range(self._said, self._schema, partition.wanted)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has the batch for good: show it as a consumer group's progress, when asked to."""
        positions = at.from_json(end)
        if self._said.commit_group and positions:
            self._said.cluster.commit(self._said.commit_group, positions)

    def stop(self) -> None:
        self._said.cluster.forget()
