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
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.spark.cluster import Cluster, shared_cluster
from penstock.spark.errors import OptionError, SparkConnectorError
from penstock.spark.options import Connect, Options, choice, connect_options, number

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.spark.staging import Staged

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
INLINE_BYTES = 4 << 20
_TYPES: dict[str, tuple[Any, ...]] = {
    "key": (StringType, BinaryType),
    "value": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
    "timestamp": (TimestampType,),
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
    unknown = [name for name in names if name not in _TYPES]
    if unknown:
        raise OptionError(f"columns {unknown} cannot be written; known are {', '.join(_TYPES)}")
    for name, kind in names.items():
        if not isinstance(kind, _TYPES[name]):
            valid = " or ".join(str(one.typeName()) for one in _TYPES[name])
            raise OptionError(f"the column {name!r} is {kind.simpleString()}; it must be {valid}")
    return WriteOptions(
        connect_options(options),
        topic,
        choice(options, "delivery", default_delivery, (EXACTLY_ONCE, AT_LEAST_ONCE)),
        choice(options, "kafka.compression.type", "none", CODECS),
        number(options, "kafka.transaction.timeout.ms", 60_000, least=1),
        number(options, "stageInlineBytes", INLINE_BYTES),
        options.get("sinkId"),
    )


@dataclass
class TaskOutput(WriterCommitMessage):
    """What a task tells the driver."""

    staged: Staged | None
    rows: int
    query: str = ""


def _write(said: WriteOptions, sink: str, iterator: Iterator[pa.RecordBatch]) -> TaskOutput:
    from penstock.spark.encoding import Encoder
    from penstock.spark.producing import Producer
    from penstock.spark.staging import Stage

    encoder = Encoder(said.cluster, said.topic, said.codec)

    def batches() -> Iterator[Any]:
        for rows in iterator:
            yield from encoder.add(rows)
        yield from encoder.finish()

    if said.delivery == AT_LEAST_ONCE:
        Producer(said.cluster).send(batches())
        return TaskOutput(None, encoder.rows)
    stage = Stage(said.cluster, sink, uuid.uuid4().hex, said.inline_bytes)
    for batch in batches():
        stage.add(batch)
    return TaskOutput(stage.finish(encoder.rows), encoder.rows)


def _commit(said: WriteOptions, sink: str, tasks: list[Any], batch_id: int | None) -> bool:
    """One transaction for everything the tasks staged. False when the batch was there already."""
    from penstock.spark import ledger
    from penstock.spark.producing import Producer
    from penstock.spark.staging import check_complete, interleaved, sweep, unstage

    cluster = said.cluster
    staged = check_complete([None if task is None else task.staged for task in tasks])
    # Taking the id over comes first: it ends whatever an earlier driver left open, so that the
    # ledger read after it is final.
    producer = Producer(cluster, f"penstock-spark-{sink}", said.transaction_timeout_ms)
    if batch_id is not None and ledger.last_batch(cluster, sink) >= batch_id:
        sweep(cluster, staged)
        return False
    try:
        rows = producer.send(interleaved(unstage(cluster, staged)))
        if batch_id is not None:
            now_ms = time.time_ns() // 1_000_000
            place = ledger.partition_of(cluster, sink)
            producer.send([ledger.entry(place, sink, batch_id, rows, now_ms)])
    except BaseException:
        producer.end(commit=False)
        raise
    producer.end(commit=True)  # the batch becomes visible here, and only here
    sweep(cluster, staged)
    return True


class TopicWriter(DataSourceArrowWriter):
    """A batch query's output."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise OptionError("a topic cannot be overwritten; use mode('append')")
        self._said = write_options(options, schema, AT_LEAST_ONCE)
        self._job = uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _write(self._said, self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._said.delivery == EXACTLY_ONCE:
            _commit(self._said, self._job, messages, None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing that was staged is visible; what was sent directly cannot be taken back."""


class TopicStreamWriter(DataSourceStreamArrowWriter):
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
        output.query = sink
        return output

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if self._said.delivery == AT_LEAST_ONCE:
            return
        outputs = [message for message in messages if isinstance(message, TaskOutput)]
        if outputs:
            _commit(self._said, outputs[0].query, list(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Spark may call this for a batch that was committed, so it must undo nothing."""
