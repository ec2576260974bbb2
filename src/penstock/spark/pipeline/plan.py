"""A pipeline as Spark queries: what the definition says, built step by step as DataFrames.

Bad rows (undecodable, or failing a rule) keep their original record and gain headers that say why,
and go to the quarantine topic. With a topic as the sink, good and bad rows are one query: a batch
becomes visible in both topics in one transaction. With a table as the sink they are two queries
over the same source, each exactly once by itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline import letters
from penstock.spark.pipeline.aggregate import aggregated
from penstock.spark.pipeline.building import interval, local
from penstock.spark.pipeline.definition import RECORD, Decode, Pipeline, Sink, Source, Stream
from penstock.spark.pipeline.figures import QUALITY
from penstock.spark.pipeline.letters import HEADERS, header_of, without_ours
from penstock.spark.pipeline.steps import stepped
from penstock.spark.pipeline.work import told_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REASON = "_reason"
UNDECODABLE = "value is not {format} of the schema"


class Output(NamedTuple):
    """One query to start: rows, format, options, and the directory of its checkpoint."""

    frame: DataFrame
    format: str
    options: dict[str, str]
    checkpoint: str


def source_frame(spark: SparkSession, source: Source, *, batch: bool = False) -> DataFrame:
    """The records, with headers."""
    reader: Any = spark.read if batch else spark.readStream
    options = {
        "kafka.bootstrap.servers": source.bootstrap,
        "includeHeaders": "true",
        "startingOffsets": "earliest" if batch and source.start == "latest" else source.start,
        **(
            {"subscribe": source.topic}
            if source.topic
            else {"subscribePattern": f"^(?:{source.pattern})$"}
        ),
    }
    if source.group:
        options["kafka.group.id" if batch else "commitGroup"] = source.group
    if source.max_rows_per_batch and not batch:
        options["maxOffsetsPerTrigger"] = str(source.max_rows_per_batch)
    frame: DataFrame = reader.format("penstock").options(**{**options, **source.options}).load()
    return frame


def judged_frame(pipeline: Pipeline, records: DataFrame) -> DataFrame:
    """Records decoded, with `_record` (what came) and `_reason` (null when the row is good)."""
    from pyspark.sql import functions as f

    record = f.struct(*[f.col(name) for name in RECORD]).alias("_record")
    decode = pipeline.decode
    reason = f.lit(None).cast("string")
    if decode is None or decode.format == "string":
        columns = [f.col(name) for name in RECORD]
        if decode is not None:
            columns[0] = f.col("key").cast("string").alias("key")
            columns[1] = f.col("value").cast("string").alias("value")
        frame = records.select(record, *columns)
    else:
        with told_at("decode.schema"):
            frame = records.select(record, parsed_column(decode).alias("_parsed"))
        frame = frame.select("_record", "_parsed.*", *_kept(decode))
        if decode.on_error != "fail":
            broken = f.col("_corrupt").isNotNull() | f.col("_record.value").isNull()
            if decode.on_error == "drop":
                frame = frame.where(~broken)
            elif decode.on_error == "quarantine":
                why = UNDECODABLE.format(format=decode.format)
                reason = f.when(broken, f.lit(why))
    for at, (name, rule) in enumerate(rules_of(pipeline)):
        _check_rule(frame, at, rule)
        failed = ~f.coalesce(f.expr(rule), f.lit(False))
        reason = f.coalesce(reason, f.when(failed, f.lit(name)))
    frame = frame.withColumn(REASON, reason).drop("_corrupt")
    if pipeline.quarantine is None:
        return frame
    counted = [
        f.count(f.when(f.col(REASON) == why, 1)).alias(f"bad{at}")
        for at, why in enumerate(reasons_of(pipeline))
    ]
    rows, bad = f.count(f.lit(1)).alias("rows"), f.count(REASON).alias("bad")
    return frame.observe(QUALITY, rows, bad, *counted)


def _check_rule(frame: DataFrame, at: int, rule: str) -> None:
    from pyspark.sql import functions as f

    where = f"quality.{at}.rule"
    with told_at(where):
        kind = frame.select(f.expr(rule)).schema[0].dataType.simpleString()
    if kind != "boolean":
        raise SparkConnectorError(f"{where}: {rule!r} is {kind}, neither true nor false")


def _check_ddl(text: str) -> None:
    """Say what is wrong with a schema: Spark's own way tries another grammar then, and complains
    about that one."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is not None and hasattr(session, "_jvm"):
        session._jvm.org.apache.spark.sql.types.StructType.fromDDL(text)


def parsed_column(decode: Decode) -> Any:
    """The value as a struct, with `_corrupt` unless a bad value is to stop the query."""
    from pyspark.sql import functions as f

    text, schema = f.col("value").cast("string"), decode.schema
    if decode.format == "avro":
        from penstock.spark.pipeline.avro import avro_as_json, avro_schema

        text, schema = avro_as_json(decode.schema)(f.col("value")), avro_schema(decode.schema)
    _check_ddl(schema)
    if decode.on_error == "fail":
        return f.from_json(text, schema, {"mode": "FAILFAST"})
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
    return f.from_json(text, f"{schema}, _corrupt STRING", options)


def _kept(decode: Decode) -> list[Any]:
    from pyspark.sql import functions as f

    return [
        f.col(f"_record.{name}").cast("string").alias(name)
        if name in ("key", "value")
        else f.col(f"_record.{name}").alias(name)
        for name in decode.keep
    ]


def rules_of(pipeline: Pipeline) -> list[tuple[str, str]]:
    """(name, predicate) of every rule."""
    return [
        (rule.name or f"rule {at + 1}: {rule.rule}", rule.rule)
        for at, rule in enumerate(pipeline.quality)
    ]


def reasons_of(pipeline: Pipeline) -> list[str]:
    """Every reason that a row may have, in the order of its counter."""
    decode = pipeline.decode
    made = [UNDECODABLE.format(format=decode.format)] if decode is not None else []
    return made + [name for name, _ in rules_of(pipeline)]


def good_frame(spark: SparkSession, pipeline: Pipeline, judged: DataFrame) -> DataFrame:
    """Good rows, with watermark, once, after all steps and the aggregate."""
    kept = judged.where(f"{REASON} IS NULL").drop(REASON, "_record")
    with told_at("watermark"):
        kept = watermarked(kept, pipeline.watermark)
    if pipeline.dedup:
        # A batch (a dry run) has no watermark and takes plain duplicates away instead.
        once = kept.dropDuplicatesWithinWatermark if kept.isStreaming else kept.dropDuplicates
        with told_at("dedup"):
            kept = once(pipeline.dedup)
    for at, stream in enumerate(pipeline.streams):
        with told_at(f"streams.{at}"):
            other = stream_frame(spark, pipeline.source, stream, batch=not judged.isStreaming)
            other.createOrReplaceTempView(stream.name)
    for at, step in enumerate(pipeline.steps):
        with told_at(f"steps.{at}"):
            kept = stepped(spark, step, kept)
    if pipeline.aggregate is not None:
        with told_at("aggregate"):
            kept = aggregated(pipeline.aggregate, kept)
    twice = [name for name, count in Counter(kept.columns).items() if count > 1]
    if twice:
        raise SparkConnectorError(f"two columns are called {twice[0]!r}; rename one in a step")
    return kept


def watermarked(frame: DataFrame, text: str) -> DataFrame:
    """`event_time 10 minutes`: how late a row may come."""
    if not text:
        return frame
    column, delay = text.split(None, 1)
    return frame.withWatermark(column, interval(delay))


def stream_frame(
    spark: SparkSession, first: Source, stream: Stream, *, batch: bool = False
) -> DataFrame:
    """Another topic's rows; what cannot be decoded is left out."""
    source = Source(stream.topic, "", stream.bootstrap or first.bootstrap, stream.start)
    decode = Decode("json", stream.schema, "drop")
    records = source_frame(spark, source, batch=batch)
    rows = records.select(parsed_column(decode).alias("_parsed")).select("_parsed.*")
    return watermarked(rows.where("_corrupt IS NULL").drop("_corrupt"), stream.watermark)


def record_frame(sink: Sink, good: DataFrame) -> DataFrame:
    """Rows as key and value for the target topic."""
    from pyspark.sql import functions as f

    names = set(good.columns)
    key = sink.key or ("key" if "key" in names else "null")
    value = sink.value
    if not value and "value" in names:
        # A record's own value, or one that a step made; not just any column of that name.
        text = good.schema["value"].dataType.simpleString() in ("string", "binary")
        value = "value" if text or names <= {"key", "value", "headers"} else ""
    headers = f.col("headers") if "headers" in names else f.lit(None)
    return good.select(
        f.lit(sink.topic).alias("topic"),
        _at("sink.key", good, key).alias("key"),
        _at("sink.value", good, value or "struct(*)").alias("value"),
        headers.cast(HEADERS).alias("headers"),
    )


def _at(where: str, rows: DataFrame, sql: str) -> Any:
    with told_at(where):
        return as_bytes(rows, sql)


def as_bytes(rows: DataFrame, sql: str) -> Any:
    """As a record has it: text and bytes as they are, numbers as text, the rest as JSON."""
    from pyspark.sql import functions as f

    kind = rows.select(f.expr(sql).alias("_")).schema[0].dataType.simpleString()
    column = f.expr(sql)
    if kind.startswith(("struct", "array", "map", "variant")):
        column = f.to_json(column)
    return column if kind == "binary" else column.cast("string").cast("binary")


def quarantine_frame(pipeline: Pipeline, judged: DataFrame) -> DataFrame:
    """Bad records as they came, with headers that say why and from where."""
    from pyspark.sql import functions as f

    assert pipeline.quarantine is not None

    why = f.array(
        header_of(letters.REASON, f.col(REASON)),
        header_of(letters.PIPELINE, f.lit(pipeline.name)),
        header_of(letters.TOPIC, f.col("_record.topic")),
        header_of(letters.PARTITION, f.col("_record.partition")),
        header_of(letters.OFFSET, f.col("_record.offset")),
    )
    # What an earlier quarantine wrote is of an earlier try; only their number stays.
    old = without_ours(f.col("_record.headers"), keep_attempts=True)
    return judged.where(f"{REASON} IS NOT NULL").select(
        f.lit(pipeline.quarantine.topic).alias("topic"),
        f.col("_record.key").alias("key"),
        f.col("_record.value").alias("value"),
        f.concat(old, why).alias("headers"),
    )


def outputs(spark: SparkSession, pipeline: Pipeline) -> list[Output]:
    """Every query of the pipeline, ready to be started."""
    sink, checkpoint = pipeline.sink, local(pipeline.checkpoint)
    judged = judged_frame(pipeline, source_frame(spark, pipeline.source))
    good = good_frame(spark, pipeline, judged)
    brokers = {"kafka.bootstrap.servers": sink.bootstrap or pipeline.source.bootstrap}
    if sink.kind == "topic":
        rows = record_frame(sink, good)
        if pipeline.quarantine is not None:
            rows = rows.unionByName(quarantine_frame(pipeline, judged))
        return [Output(rows, "penstock", {**brokers, **sink.options}, checkpoint)]
    made = [Output(good, "penstock_lake", table_options(sink), checkpoint)]
    if pipeline.quarantine is not None:
        # A query of its own reads the source again; the group shows the progress of the first.
        again = source_frame(spark, replace(pipeline.source, group=""))
        bad = quarantine_frame(pipeline, judged_frame(pipeline, again))
        made.append(Output(bad, "penstock", brokers, f"{checkpoint}.quarantine"))
    return made


def table_options(sink: Sink) -> dict[str, str]:
    """A table as the options of `penstock_lake`."""
    options = {
        "tableFormat": sink.kind,
        "path": local(sink.path),
        "partitionBy": ",".join(sink.partition_by),
        "targetFileBytes": str(sink.target_file_bytes),
    }
    if sink.table:
        options["table"] = sink.table
    if sink.mode == "upsert":
        options["keys"] = ",".join(sink.keys)
        if sink.order_by:
            options["orderBy"] = sink.order_by
    return {**options, **sink.options}
