"""Writing topics with Spark.

Streams are exactly-once unless told otherwise: tasks only stage, and the driver's commit writes the
whole batch and its entry in the ledger in one transaction. Whatever dies, a batch is visible whole
or not at all, and a batch that Spark repeats is found in the ledger and left alone. Batch queries
send directly, at least once, as Spark's own connector does; `delivery=exactly-once` makes a job's
output appear at once or not at all.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.spark.cluster import Cluster, shared_cluster
from penstock.spark.errors import OptionError, SparkConnectorError
from penstock.spark.options import (
    Connect,
    Options,
    choice,
    connect_options,
    number,
    optional_number,
)
from penstock.spark.schema import HEADERS
from penstock.spark.workers import Delivered, keep_what_is_loaded

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.staging import Staged

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# What a task may carry along in its result. Results meet in the driver, whose share of them is
# bounded (spark.driver.maxResultSize, 1 GiB): so the first tasks carry much, all others little.
INLINE_BYTES = 8 << 20
INLINE_TASKS, INLINE_BYTES_OF_OTHERS = 32, 64 << 10
TRANSACTION_TIMEOUT_MS = 5 * 60_000  # a driver that dies holds back readers no longer than this
SWEEP_EVERY = 100  # batches
_IGNORED = ("offset", "timestampType")  # what a read has and a write does not need
_ACKS = {"all": -1, "-1": -1, "1": 1, "0": 1}
_TYPES: dict[str, tuple[DataType, ...]] = {
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS,),
    "timestamp": (TimestampType(),),
}


class WriteOptions(NamedTuple):
    """Everything a write was told, checked."""

    connect: Connect
    topic: str | None
    delivery: str
    codec: str
    transaction_timeout_ms: int
    inline_bytes: int
    sink_id: str | None
    batch_id: int | None
    acks: int
    batch_bytes: int | None

    @property
    def cluster(self) -> Cluster:
        return shared_cluster(*self.connect)


def write_options(options: Options, schema: StructType, default_delivery: str) -> WriteOptions:
    """Check options and columns together, as Spark's Kafka sink does."""
    topic = options.get("topic")
    names = {field.name: field.dataType for field in schema}
    if topic is None and "topic" not in names:
        raise OptionError("the option 'topic' is required when there is no column 'topic'")
    if "value" not in names:
        raise OptionError("the column 'value' is required")
    names = {name: kind for name, kind in names.items() if name not in _IGNORED}
    unknown = [name for name in names if name not in _TYPES]
    if unknown:
        raise OptionError(f"columns {unknown} cannot be written; known are {', '.join(_TYPES)}")
    for name, kind in names.items():
        if not any(_fits(kind, one) for one in _TYPES[name]):
            valid = " or ".join(one.simpleString() for one in _TYPES[name])
            raise OptionError(f"the column {name!r} is {kind.simpleString()}; it must be {valid}")
    return WriteOptions(
        connect_options(options),
        topic,
        choice(options, "delivery", default_delivery, (EXACTLY_ONCE, AT_LEAST_ONCE)),
        choice(options, "kafka.compression.type", "none", CODECS),
        number(options, "kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS, least=1),
        number(options, "stageInlineBytes", INLINE_BYTES),
        options.get("sinkId"),
        _batch_id(options),
        _ACKS[choice(options, "kafka.acks", "all", tuple(_ACKS))],
        optional_number(options, "kafka.batch.size"),
    )


def _fits(kind: DataType, wanted: DataType) -> bool:
    """Of headers all counts but what may be null; of strings, their length does not."""
    if isinstance(wanted, StringType):
        return isinstance(kind, StringType)
    return bool(kind.simpleString() == wanted.simpleString())


def _batch_id(options: Options) -> int | None:
    """Of a batch query: with `sinkId`, which batch of that sink it is; none is its first."""
    if options.get("sinkId") is None:
        if options.get("batchId") is not None:
            raise OptionError("batchId needs sinkId: it is the number of a batch of that sink")
        return None
    return number(options, "batchId", 0)


@dataclass
class TaskOutput(WriterCommitMessage):
    """What a task tells the driver."""

    staged: Staged | None
    rows: int
    sink: str = ""
    query: str = ""


def _write(said: WriteOptions, sink: str, iterator: Iterator[pa.RecordBatch]) -> TaskOutput:
    from penstock.spark.encoding import Encoder
    from penstock.spark.producing import Producer
    from penstock.spark.staging import Stage

    encoder = Encoder(said.cluster, said.topic, said.codec, said.batch_bytes)

    def batches() -> Iterator[Any]:
        for rows in iterator:
            yield from encoder.add(rows)
        yield from encoder.finish()

    if said.delivery == AT_LEAST_ONCE:
        Producer(said.cluster, acks=said.acks).send(batches())
        keep_what_is_loaded()
        return TaskOutput(None, encoder.rows)
    context = TaskContext.get()
    inline_bytes = said.inline_bytes
    if context is not None and context.partitionId() >= INLINE_TASKS:
        inline_bytes = min(inline_bytes, INLINE_BYTES_OF_OTHERS)
    stage = Stage(said.cluster, sink, uuid.uuid4().hex, inline_bytes)
    for batch in batches():
        stage.add(batch)
    staged = stage.finish(encoder.rows)
    keep_what_is_loaded()
    return TaskOutput(staged, encoder.rows)


def _commit(
    said: WriteOptions, sink: str, tasks: list[Any], batch_id: int | None, query: str = ""
) -> bool:
    """One transaction for everything the tasks staged. False when the batch was there already."""
    from penstock.spark import ledger
    from penstock.spark.producing import Producer
    from penstock.spark.staging import (
        DAY_MS,
        check_complete,
        interleaved,
        sweep,
        sweep_orphans,
        unstage,
    )

    cluster = said.cluster
    staged = check_complete([None if task is None else task.staged for task in tasks])
    # Taking the id over comes first: it ends whatever an earlier driver left open, so that the
    # ledger read after it is final.
    producer = Producer(cluster, f"penstock-spark-{sink}", said.transaction_timeout_ms)
    if batch_id is not None and ledger.is_done(cluster, sink, batch_id, query):
        sweep(cluster, staged)
        return False
    try:
        rows = producer.send(interleaved(unstage(cluster, staged)))
        if batch_id is not None:
            now_ms = time.time_ns() // 1_000_000
            place = ledger.partition_of(cluster, sink)
            producer.send([ledger.entry(place, sink, batch_id, rows, query, now_ms)])
    except BaseException:
        producer.end(commit=False)
        raise
    producer.end(commit=True)  # the batch becomes visible here, and only here
    sweep(cluster, staged)
    if batch_id is not None and batch_id % SWEEP_EVERY == 0:
        a_day_ago = time.time_ns() // 1_000_000 - DAY_MS
        sweep_orphans(cluster, {sink} | ledger.active_since(cluster, a_day_ago))
    return True


class TopicWriter(Delivered, DataSourceArrowWriter):
    """A batch query's output."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a topic cannot be overwritten; use mode('append')")
        self._said = write_options(options, schema, AT_LEAST_ONCE)
        self._job = self._said.sink_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._said, self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._said.delivery == EXACTLY_ONCE:
            # With a sinkId the job is one batch of that sink: repeating it writes nothing.
            _commit(self._said, self._job, messages, self._said.batch_id)
            self._drop()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing that was staged is visible; what was sent directly cannot be taken back."""
        if self._said.delivery == EXACTLY_ONCE:
            self._drop()

    def _drop(self) -> None:
        from penstock.spark.staging import drop

        drop(self._said.cluster, self._job)


class TopicStreamWriter(Delivered, DataSourceStreamArrowWriter):
    """A streaming query's output. Made anew for every commit, so it keeps nothing."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._said = write_options(options, schema, EXACTLY_ONCE)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context else None
        sink = self._said.sink_id or query
        if not sink:
            raise SparkConnectorError("Spark does not tell the query's id; give the option sinkId")
        output = _write(self._said, sink, iterator)
        output.sink, output.query = sink, query or ""
        return output

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self._said.delivery == AT_LEAST_ONCE:
            return
        outputs = [message for message in messages if isinstance(message, TaskOutput)]
        if outputs:
            first = outputs[0]
            _commit(self._said, first.sink, list(messages), batchId, first.query)
            keep_what_is_loaded()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Spark may call this for a batch that was committed, so it must undo nothing."""
