"""Dead letters as rows: what a quarantined record says about itself in its headers.

Written by `quarantine_frame`, by the source's `onError=dlq:`, and by queues; read by the redrive
and by the traffic report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HEADERS = "array<struct<key:string,value:binary>>"
OURS = "penstock."  # how the headers of a dead letter begin
REASON, PIPELINE, TOPIC = "penstock.reason", "penstock.pipeline", "penstock.topic"
PARTITION, OFFSET = "penstock.partition", "penstock.offset"
SOURCE = "penstock.source"  # of a dead letter of a queue: <topic>/<offset>/<topic id>
ATTEMPTS = "penstock.attempts"  # how often a record was redriven; stays with it


def header(name: str, headers: Any = None) -> Any:
    """The text of the last header of this name, or null."""
    from pyspark.sql import functions as f

    column = f.col("headers") if headers is None else headers
    found = f.filter(column, lambda h: h["key"] == name)
    return f.get(f.reverse(found), f.lit(0))["value"].cast("string")


def header_of(name: str, value: Any) -> Any:
    """A header with the text of a column."""
    from pyspark.sql import functions as f

    return f.struct(f.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))


def without_ours(headers: Any, *, keep_attempts: bool) -> Any:
    """The headers that the record had before it died."""
    from pyspark.sql import functions as f

    def theirs(h: Any) -> Any:
        return ~h["key"].startswith(OURS) | (f.lit(keep_attempts) & (h["key"] == ATTEMPTS))

    return f.filter(f.coalesce(headers, f.array().cast(HEADERS)), theirs)


def letters_frame(records: DataFrame) -> DataFrame:
    """Records of a dead-letter topic with `reason`, `origin`, `attempts`, `died`."""
    from pyspark.sql import functions as f

    by_queue = f.regexp_extract(header(SOURCE), r"^([A-Za-z0-9._-]+)/\d+(/[A-Za-z0-9_-]+)?$", 1)
    return (
        records.withColumn("reason", header(REASON))
        .withColumn("origin", f.coalesce(header(TOPIC), f.when(by_queue != "", by_queue)))
        .withColumn("attempts", f.coalesce(header(ATTEMPTS).try_cast("int"), f.lit(0)))
        .withColumnRenamed("timestamp", "died")
    )
