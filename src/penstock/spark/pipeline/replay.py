"""Replay and backfill: a range of a topic, or a table, written to another topic or table, checked.

The range is fixed before anything is read. What was written is then read back and compared with
what was read, by count and by checksum, and a difference is an error. The same range to the same
target is written once, however often the pipeline runs; `once = false` writes it again.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline.building import (
    Need,
    check_bootstrap,
    default_bootstrap,
    local,
    time_of,
)
from penstock.spark.pipeline.definition import SINKS, Decode, Sink, check_decode
from penstock.spark.pipeline.figures import Figures
from penstock.spark.pipeline.work import closing_cluster, patiently, spark_for, told_at, working

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.cluster import Cluster
    from penstock.spark.offsets import Positions

WHOLE = ("key", "value", "headers", "timestamp")  # of a record, for the checksum


@dataclass(frozen=True)
class Range:
    """What is read: a topic between two places, or a table."""

    topic: str = ""
    bootstrap: str = field(default_factory=default_bootstrap)
    start: str = "earliest"  # or a time, or {"topic":{"0":17}}
    end: str = "latest"  # or a time, or offsets; exclusive
    table: str = ""  # a directory; of an Iceberg warehouse, DIRECTORY#name
    format: str = "delta"  # of the table
    where: str = ""  # SQL; only these rows


@dataclass(frozen=True)
class Replay:
    """From where to where."""

    name: str
    source: Range
    sink: Sink
    decode: Decode | None = None  # a topic's values as columns, for a table
    once: bool = True
    keep_partitions: bool = False  # a topic's records keep their partition in the other topic
    settings: dict[str, str] = field(default_factory=dict)


class Sum(NamedTuple):
    """A count, and a sum over the hashes of all rows: the same in any order."""

    rows: int
    checksum: str


class Replayed(NamedTuple):
    """What was read, what is in the target of it, and whether it was there before."""

    read: Sum
    written: Sum
    already: bool


class NotTheSame(SparkConnectorError):
    """What was read back is not what was written."""


def check(said: Replay, need: Need) -> None:
    """What must fit together."""
    source, sink = said.source, said.sink
    need(bool(source.topic) != bool(source.table), ("source",), "give topic or table, one of")
    need(sink.kind in SINKS, ("sink", "kind"), f"{sink.kind!r} is none of {', '.join(SINKS)}")
    need(sink.kind != "topic" or bool(sink.topic), ("sink",), "topic is missing")
    need(sink.kind == "topic" or bool(sink.path), ("sink",), "path is missing")
    need(sink.mode == "append", ("sink", "mode"), "is append: an upsert cannot be counted after")
    need(not source.table or said.decode is None, ("decode",), "is for a topic")
    check_decode(said.decode, need)
    if said.decode is not None and said.decode.format != "string":
        settled = said.decode.on_error != "quarantine"
        need(settled, ("decode",), "a replay has no quarantine: on_error is fail, null or drop")
    need(not said.keep_partitions or bool(source.topic), ("keep_partitions",), "is for a topic")
    for name in ("start", "end"):
        text = getattr(source, name)
        need(_is_place(text), ("source", name), "is earliest, latest, a time, or JSON of offsets")
    check_bootstrap(source.bootstrap, ("source", "bootstrap"), need)
    to_topic = sink.kind == "topic"
    need(not said.keep_partitions or to_topic, ("keep_partitions",), "is for a topic as the sink")
    need(source.start != "latest", ("source", "start"), "is the end: there is nothing after it")
    need(source.end != "earliest", ("source", "end"), "is the start: there is nothing before it")
    first, last = time_of(source.start), time_of(source.end)
    need(first is None or last is None or first < last, ("source", "end"), "is not after start")
    same = source.topic and source.topic == sink.topic
    need(not same or bool(sink.bootstrap), ("sink", "topic"), "is the topic that is read")


def _is_place(text: str) -> bool:
    if text in ("earliest", "latest") or text.startswith("{"):
        return True
    return time_of(text) is not None


def run(said: Replay, **how: Any) -> Replayed:
    """Write the range, read it back, compare."""
    with working(said, **how) as (running, spark):
        rows, place = patiently(lambda: source_rows(spark, said))
        columns = list(rows.columns)
        identity = json.dumps([said.source.topic or said.source.table, place, said.source.where])
        target = [said.sink.bootstrap, said.sink.topic, said.sink.path, said.sink.table]
        sink_id = f"replay-{_digest(identity + json.dumps(target))}"
        writer = rows.write.mode("append")
        if said.once:
            writer = writer.option("sinkId", sink_id)
        to = _to_topic if said.sink.kind == "topic" else _to_table
        read = sum_of(rows, columns)
        written, already = to(spark, said, writer, columns, sink_id)
        if not already and written != read:
            raise NotTheSame(
                f"read {read.rows:,} rows ({read.checksum}), but {written.rows:,} "
                f"({written.checksum}) came into the target; did somebody else write to it?"
            )
        running.add(Figures(batch=0, rows=read.rows))
    return Replayed(read, read if already else written, already)


def source_rows(spark: SparkSession, said: Replay) -> tuple[DataFrame, Any]:
    """The rows as they will be written, and where they come from in numbers."""
    from penstock.spark.pipeline.plan import record_frame
    from penstock.spark.pipeline.steps import table_frame

    source, sink = said.source, said.sink
    if source.table:
        frame = table_frame(spark, source.format, source.table)
        place: Any = [source.table, source.format, frame.schema.json()]
        place.append(_version(source))
    else:
        frame, place = _range_frame(spark, said)
    if source.where:
        with told_at("source.where"):
            frame = frame.where(source.where)
    if source.table and sink.kind == "topic":
        frame = record_frame(sink, frame).drop("topic", "headers")
    elif sink.kind == "topic":
        kept = [*WHOLE, *(["partition"] if said.keep_partitions else [])]
        frame = frame.select(*kept)
    return frame, place


def _range_frame(spark: SparkSession, said: Replay) -> tuple[DataFrame, Any]:
    from penstock.spark.cluster import Cluster
    from penstock.spark.offsets import check_order, to_json
    from penstock.spark.pipeline.plan import parsed_column

    source = said.source
    cluster = Cluster(source.bootstrap, patience_s=20)
    with closing_cluster(cluster):
        low, high = (_resolve(cluster, source, name) for name in ("start", "end"))
    if source.start.startswith("{"):
        check_order(low, high)
    high = {tp: max(end, low[tp]) for tp, end in high.items()}
    bounds = {
        "startingOffsets": json.dumps(to_json(low)), "endingOffsets": json.dumps(to_json(high)),
    }  # fmt: skip
    frame = _topic_frame(spark, source.bootstrap, source.topic, bounds)
    if said.decode is not None and said.decode.format != "string":
        from pyspark.sql import functions as f

        if said.decode.on_error == "drop":  # no value is no row, as in a flow
            frame = frame.where("value IS NOT NULL")
        parsed = frame.select(parsed_column(said.decode).alias("_p"), *said.decode.keep)
        frame = parsed.select("_p.*", *[f.col(name) for name in said.decode.keep])
        if "_corrupt" in frame.columns:
            frame = frame.where("_corrupt IS NULL") if said.decode.on_error == "drop" else frame
            frame = frame.drop("_corrupt")
    return frame, [to_json(low), to_json(high)]


def _resolve(cluster: Cluster, source: Range, name: str) -> Positions:
    from penstock.spark import offsets
    from penstock.spark.cluster import READ_COMMITTED
    from penstock.spark.options import bound, subscription

    text, prefix = getattr(source, name), "starting" if name == "start" else "ending"
    options = {"subscribe": source.topic}
    if text in ("earliest", "latest") or text.startswith("{"):
        options[f"{prefix}Offsets"] = text
    else:
        when = time_of(text)
        assert when is not None, "checked with the definition"
        options[f"{prefix}Timestamp"] = str(int(when.timestamp() * 1000))
    partitions = offsets.partitions_of(cluster, subscription(options))
    return offsets.resolve(
        cluster, bound(options, prefix, text), partitions, isolation=READ_COMMITTED,
        when_none_later="latest", group=None,
    )  # fmt: skip


def _topic_frame(
    spark: SparkSession, bootstrap: str, topic: str, bounds: dict[str, str]
) -> DataFrame:
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "includeHeaders": "true"}
    return spark.read.format("penstock").options(**options, **bounds).load()


def _version(source: Range) -> int:
    """Of the table, so that a later version is another range."""
    from penstock.spark.lake.table import DeltaLake, IcebergLake

    path, _, name = source.table.partition("#")
    path = local(path)
    if source.format == "delta":
        return int(DeltaLake(path).open().version())
    if source.format == "iceberg":
        snapshot = IcebergLake(path, name).open().current_snapshot()
        return int(snapshot.snapshot_id) if snapshot is not None else 0
    return 0


def _to_topic(
    spark: SparkSession, said: Replay, writer: Any, columns: list[str], sink_id: str
) -> tuple[Sum, bool]:
    from penstock.spark import ledger
    from penstock.spark.cluster import READ_UNCOMMITTED, Cluster, TopicPartition
    from penstock.spark.offsets import latest, to_json

    sink = said.sink
    bootstrap = sink.bootstrap or said.source.bootstrap
    cluster = Cluster(bootstrap, patience_s=20)
    with closing_cluster(cluster):
        _create_like(cluster, said)
        if said.once and ledger.last_batch(cluster, sink_id) >= 0:
            return Sum(0, "0"), True
        found = cluster.topics([sink.topic])[sink.topic]
        partitions = [TopicPartition(sink.topic, number) for number in found]
        before = latest(cluster, partitions, READ_UNCOMMITTED)
        options = {"kafka.bootstrap.servers": bootstrap, "topic": sink.topic, **sink.options}
        options.setdefault("delivery", "exactly-once")
        patiently(writer.format("penstock").options(**options).save)
        after = latest(cluster, partitions, READ_UNCOMMITTED)
    bounds = {
        "startingOffsets": json.dumps(to_json(before)), "endingOffsets": json.dumps(to_json(after)),
    }  # fmt: skip
    return sum_of(_topic_frame(spark, bootstrap, sink.topic, bounds), columns), False


def _create_like(target: Cluster, said: Replay) -> None:
    """The topic written to, with as many partitions as the one that is read."""
    from penstock.spark.cluster import Cluster

    if said.sink.topic in target.topics([said.sink.topic]):
        return
    count = -1
    if said.source.topic:
        source = Cluster(said.source.bootstrap, patience_s=20)
        with closing_cluster(source):
            count = len(source.topics([said.source.topic]).get(said.source.topic, ())) or -1
    target.create_topic(said.sink.topic, count, said.sink.topic_settings)


def _to_table(
    spark: SparkSession, said: Replay, writer: Any, columns: list[str], sink_id: str
) -> tuple[Sum, bool]:
    from penstock.spark.lake.table import open_table
    from penstock.spark.pipeline.plan import table_options

    sink = said.sink
    options = table_options(sink)
    name = sink.table or sink.path.rstrip("/").rpartition("/")[2]
    table = open_table(sink.kind, local(sink.path), name, tuple(sink.partition_by))
    if said.once and table.last_batch(sink_id) >= 0:
        return Sum(0, "0"), True
    before = _table_sum(spark, sink, name, columns)
    patiently(writer.format("penstock_lake").options(**options).save)
    after = _table_sum(spark, sink, name, columns)
    gained = int(after.checksum) - int(before.checksum)
    return Sum(after.rows - before.rows, str(gained)), False


def _table_sum(spark: SparkSession, sink: Sink, name: str, columns: list[str]) -> Sum:
    from penstock.spark.pipeline.steps import table_frame

    try:
        frame = patiently(lambda: table_frame(spark, sink.kind, sink.path, name))
    except Exception as failure:  # Spark wraps whatever a data source raises
        if "there is no" in str(failure) or "PATH_NOT_FOUND" in str(failure):
            return Sum(0, "0")
        raise
    return sum_of(frame, [column for column in columns if column in frame.columns])


def sum_of(rows: DataFrame, columns: list[str]) -> Sum:
    """Count and checksum over the rows as JSON, where a null is as good as no column."""
    from pyspark.sql import functions as f

    text = [f.to_json(f.struct(*[f.col(name) for name in sorted(columns)]))]
    found = rows.select(f.xxhash64(*text).cast("decimal(38,0)").alias("h")).agg(
        f.count(f.lit(1)).alias("rows"), f.coalesce(f.sum("h"), f.lit(0)).alias("checksum")
    )
    row = patiently(found.first)
    assert row is not None
    return Sum(row["rows"], str(int(row["checksum"])))


def dry_run(said: Replay, spark: SparkSession | None = None) -> dict[str, Any]:
    """What would be written: where from, how many rows, ten of them."""
    from pyspark.sql import functions as f

    spark = spark or spark_for(said)
    rows, place = source_rows(spark, said)
    found = sum_of(rows, list(rows.columns))
    texts = [
        f.col(name).cast("string").alias(name) if kind == "binary" else f.col(name)
        for name, kind in rows.dtypes
    ]
    sample = rows.limit(10).select(f.to_json(f.struct(*texts)).alias("row")).collect()
    return {
        "range": place, "rows": found.rows, "checksum": found.checksum,
        "sample": [json.loads(row["row"]) for row in sample],
    }  # fmt: skip


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
