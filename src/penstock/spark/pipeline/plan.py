"""A pipeline as Spark queries: what the definition says, built step by step as DataFrames.

Bad rows (undecodable, or failing a rule) keep their original record and gain headers that say why,
and go to the quarantine topic. With a topic as the sink, good and bad rows are one query: a batch
becomes visible in both topics in one transaction. With a table as the sink they are two queries
over the same source, each exactly once by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.pipeline.definition import Pipeline, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
REASON = "_reason"
QUALITY = "quality"  # the name of the counters of good and bad rows


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
        ("subscribe" if source.topic else "subscribePattern"): source.topic or source.pattern,
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
        mode = "FAILFAST" if decode.on_error == "fail" else "PERMISSIVE"
        schema = decode.schema + (", _corrupt STRING" if mode == "PERMISSIVE" else "")
        parsed = f.from_json(
            f.col("value").cast("string"),
            schema,
            {"mode": mode, "columnNameOfCorruptRecord": "_corrupt"},
        )
        frame = records.select(record, parsed.alias("_parsed")).select("_record", "_parsed.*")
        if mode == "PERMISSIVE":
            broken = f.col("_corrupt").isNotNull() | f.col("_record.value").isNull()
            if decode.on_error == "drop":
                frame = frame.where(~broken)
            elif decode.on_error == "quarantine":
                reason = f.when(broken, f.lit("value is not json of the schema"))
    for at, rule in enumerate(pipeline.quality):
        name = rule.name or f"rule {at + 1}: {rule.rule}"
        failed = ~f.coalesce(f.expr(rule.rule), f.lit(False))
        reason = f.coalesce(reason, f.when(failed, f.lit(name)))
    frame = frame.withColumn(REASON, reason).drop("_corrupt")
    if pipeline.quarantine is None:
        return frame
    rows, bad = f.count(f.lit(1)).alias("rows"), f.count(REASON).alias("bad")
    return frame.observe(QUALITY, rows, bad)


def good_frame(spark: SparkSession, pipeline: Pipeline, judged: DataFrame) -> DataFrame:
    """Good rows after all steps."""
    frame = judged.where(f"{REASON} IS NULL").drop(REASON)
    kept = frame.drop("_record")
    if pipeline.watermark:
        column, delay = pipeline.watermark.split(None, 1)
        kept = kept.withWatermark(column, delay)
    for step in pipeline.steps:
        if step.table:
            table = spark.read.format(step.format).load(step.path)
            table.createOrReplaceTempView(step.table)
        else:
            kept.createOrReplaceTempView("input")
            kept = spark.sql(step.sql)
    return kept


def record_frame(pipeline: Pipeline, good: DataFrame) -> DataFrame:
    """Rows as key and value for the target topic."""
    from pyspark.sql import functions as f

    sink = pipeline.sink
    if sink.value:
        value = f.expr(sink.value)
    elif "value" in good.columns:
        value = f.col("value")
    else:
        value = f.to_json(f.struct(*[f.col(name) for name in good.columns]))
    if sink.key:
        key = f.expr(sink.key)
    elif "key" in good.columns:
        key = f.col("key")
    else:
        key = f.lit(None)
    headers = f.col("headers") if "headers" in good.columns else f.lit(None)
    return good.select(
        f.lit(sink.topic).alias("topic"),
        key.cast("string" if sink.key else "binary").cast("binary").alias("key"),
        value.cast("binary").alias("value"),
        headers.cast("array<struct<key:string,value:binary>>").alias("headers"),
    )


def quarantine_frame(pipeline: Pipeline, judged: DataFrame) -> DataFrame:
    """Bad records as they came, with headers that say why and from where."""
    from pyspark.sql import functions as f

    assert pipeline.quarantine is not None

    def header(name: str, value: Any) -> Any:
        return f.struct(
            f.lit(name).alias("key"), value.cast("string").cast("binary").alias("value")
        )

    why = f.array(
        header("penstock.reason", f.col(REASON)),
        header("penstock.pipeline", f.lit(pipeline.name)),
        header("penstock.topic", f.col("_record.topic")),
        header("penstock.partition", f.col("_record.partition")),
        header("penstock.offset", f.col("_record.offset")),
    )
    old = f.coalesce(
        f.col("_record.headers"), f.array().cast("array<struct<key:string,value:binary>>")
    )
    return judged.where(f"{REASON} IS NOT NULL").select(
        f.lit(pipeline.quarantine.topic).alias("topic"),
        f.col("_record.key").alias("key"),
        f.col("_record.value").alias("value"),
        f.concat(old, why).alias("headers"),
    )


def outputs(spark: SparkSession, pipeline: Pipeline) -> list[Output]:
    """Every query of the pipeline, ready to be started."""
    sink, checkpoint = pipeline.sink, pipeline.checkpoint
    judged = judged_frame(pipeline, source_frame(spark, pipeline.source))
    good = good_frame(spark, pipeline, judged)
    brokers = {"kafka.bootstrap.servers": sink.bootstrap or pipeline.source.bootstrap}
    if sink.kind == "topic":
        rows = record_frame(pipeline, good)
        if pipeline.quarantine is not None:
            rows = rows.unionByName(quarantine_frame(pipeline, judged))
        return [Output(rows, "penstock", {**brokers, **sink.options}, checkpoint)]
    made = [Output(good, *_table_sink(pipeline), checkpoint)]
    if pipeline.quarantine is not None:
        # A query of its own reads the source again; the group shows the progress of the first.
        again = source_frame(spark, replace(pipeline.source, group=""))
        bad = quarantine_frame(pipeline, judged_frame(pipeline, again))
        made.append(Output(bad, "penstock", brokers, f"{checkpoint}.quarantine"))
    return made


def _table_sink(pipeline: Pipeline) -> tuple[str, dict[str, str]]:
    sink = pipeline.sink
    if sink.kind == "parquet":
        return "parquet", {"path": sink.path, **sink.options}
    options = {
        "tableFormat": sink.kind,
        "path": sink.path,
        "partitionBy": ",".join(sink.partition_by),
        "targetFileBytes": str(sink.target_file_bytes),
    }
    if sink.table:
        options["table"] = sink.table
    if sink.mode == "upsert":
        options["keys"] = ",".join(sink.keys)
        if sink.order_by:
            options["orderBy"] = sink.order_by
    return "penstock_lake", {**options, **sink.options}
