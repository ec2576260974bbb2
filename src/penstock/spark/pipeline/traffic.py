"""Traffic report: what went through the topics, from the log itself.

Per topic and stretch of time: records and bytes; per consumer group: how far it was behind, and how
long after its timestamp a record was committed as read; dead letters by origin and reason. Written
as CSV tables, PNG plots and one HTML page that needs nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.pipeline import commits, letters
from penstock.spark.pipeline.building import (
    DURATION,
    NOT_A_DURATION,
    Need,
    check_bootstrap,
    check_span,
    default_bootstrap,
    interval,
    is_pattern,
    seconds_of,
    time_of,
)
from penstock.spark.pipeline.figures import Figures
from penstock.spark.pipeline.work import closing_cluster, patiently, spark_for, working

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Traffic:
    """What is reported, and where to."""

    name: str
    report: str  # a directory
    bootstrap: str = field(default_factory=default_bootstrap)
    topics: str = ".*"  # a regular expression; topics that begin with __ are left out
    since: str = ""  # 2026-11-15T10:00:00Z; the beginning of the log if not given
    until: str = ""
    bucket: str = "1 minute"
    settings: dict[str, str] = field(default_factory=dict)


class Tables(NamedTuple):
    """The figures: one row for each stretch of time and topic, or group and topic."""

    throughput: pd.DataFrame  # time, topic, records, bytes, largest
    latency: pd.DataFrame  # time, group, topic, commits, p50_ms, p99_ms, most_ms
    lag: pd.DataFrame  # time, group, topic, lag
    dead_letters: pd.DataFrame  # time, topic, origin, reason, records


class Reported(NamedTuple):
    """What was counted, and the files that say it."""

    records: int
    topics: int
    groups: int
    dead_letters: int
    files: list[str]


def check(said: Traffic, need: Need) -> None:
    """What must fit together."""
    need(bool(DURATION.match(said.bucket)), ("bucket",), NOT_A_DURATION)
    need(seconds_of(said.bucket) > 0, ("bucket",), "is not a stretch of time")
    need(bool(said.report), ("report",), "is a directory to write to")
    need(is_pattern(said.topics), ("topics",), "is no regular expression")
    check_bootstrap(said.bootstrap, ("bootstrap",), need)
    check_span(said.since, said.until, need)


def run(said: Traffic, **how: Any) -> Reported:
    """Read, count, draw."""
    from penstock.spark.pipeline.report import write_report

    with working(said, **how) as (running, spark):
        found = patiently(lambda: tables(spark, said))
        files = write_report(Path(said.report), said, found)
        count = int(found.throughput["records"].sum())
        running.add(Figures(0, count))
    return Reported(
        count,
        found.throughput["topic"].nunique(),
        found.lag["group"].nunique(),
        int(found.dead_letters["records"].sum()),
        [str(path) for path in files],
    )


def tables(spark: SparkSession, said: Traffic) -> Tables:
    """All figures, as pandas tables."""
    from penstock.spark.cluster import Cluster

    records = _records(spark, said).cache()
    cluster = Cluster(said.bootstrap, patience_s=20)
    with closing_cluster(cluster):
        committed = bool(cluster.topics([commits.TOPIC]))
    if committed:
        seen = commits.commits_frame(_raw(spark, said, "subscribe", commits.TOPIC))
    else:  # nobody has ever committed anything
        seen = spark.createDataFrame([], commits.COLUMNS.replace("at BIGINT", "at TIMESTAMP"))
    seen = seen.join(records.select("topic").distinct(), "topic", "left_semi").cache()
    found = Tables(
        _throughput(said, records), _latency(said, records, seen),
        _lag(said, records, seen), _dead(said, records),
    )  # fmt: skip
    seen.unpersist()
    records.unpersist()
    return found


def _raw(spark: SparkSession, said: Traffic, how: str, what: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": said.bootstrap, "includeHeaders": "true", how: what}
    options["startingOffsetsByTimestampStrategy"] = "latest"
    if how != "subscribe":
        for name, option in (("since", "startingTimestamp"), ("until", "endingTimestamp")):
            if when := time_of(getattr(said, name)):
                options[option] = str(int(when.timestamp() * 1000))
    return spark.read.format("penstock").options(**options).load()


def _records(spark: SparkSession, said: Traffic) -> DataFrame:
    """Sizes, times and what dead letters say; the values themselves are left behind."""
    from pyspark.sql import functions as f

    raw = _raw(spark, said, "subscribePattern", f"^(?!__)(?:{said.topics})$")
    size = sum(
        (f.coalesce(f.octet_length(f.col(name)), f.lit(0)) for name in ("key", "value")), f.lit(0)
    )
    extra = f.aggregate(
        f.coalesce(f.col("headers"), f.array().cast(letters.HEADERS)),
        f.lit(0),
        lambda sum_, h: (
            sum_ + f.octet_length(h["key"]) + f.coalesce(f.octet_length(h["value"]), f.lit(0))
        ),
    )
    named = letters.letters_frame(raw.withColumn("bytes", (size + extra).cast("bigint")))
    dead = f.col("reason").isNotNull() | letters.header(letters.SOURCE).isNotNull()
    return named.select(
        "topic", "partition", "offset", f.col("died").alias("time"), "bytes", "origin",
        f.coalesce("reason", f.lit("dead letter of a queue")).alias("reason"), dead.alias("dead"),
    )  # fmt: skip


def _bucket(said: Traffic, column: str) -> Any:
    from pyspark.sql import functions as f

    return f.window(f.col(column), interval(said.bucket))["start"].alias("time")


def _throughput(said: Traffic, records: DataFrame) -> pd.DataFrame:
    from pyspark.sql import functions as f

    return (
        records.groupBy(_bucket(said, "time"), "topic")
        .agg(
            f.count(f.lit(1)).alias("records"),
            f.sum("bytes").alias("bytes"),
            f.max("bytes").alias("largest"),
        )
        .orderBy("time", "topic")
        .toPandas()
    )


def _dead(said: Traffic, records: DataFrame) -> pd.DataFrame:
    from pyspark.sql import functions as f

    dead = records.where("dead")
    counted = dead.groupBy(_bucket(said, "time"), "topic", "origin", "reason")
    return counted.agg(f.count(f.lit(1)).alias("records")).orderBy("time", "topic").toPandas()


def _latency(said: Traffic, records: DataFrame, seen: DataFrame) -> pd.DataFrame:
    """From a record's timestamp to the commit of the offset behind it."""
    from pyspark.sql import functions as f

    last = records.select("topic", "partition", (f.col("offset") + 1).alias("offset"), "time")
    both = seen.join(last, ["topic", "partition", "offset"])
    late = (f.unix_millis("at") - f.unix_millis("time")).alias("ms")
    rows = both.select("group", "topic", "at", late).where("ms >= 0")
    return (
        rows.groupBy(_bucket(said, "at"), "group", "topic")
        .agg(
            f.count(f.lit(1)).alias("commits"),
            f.percentile_approx("ms", 0.5).alias("p50_ms"),
            f.percentile_approx("ms", 0.99).alias("p99_ms"),
            f.max("ms").alias("most_ms"),
        )
        .orderBy("time", "group", "topic")
        .toPandas()
    )


def _lag(said: Traffic, records: DataFrame, seen: DataFrame) -> pd.DataFrame:
    """At the end of each stretch: the end of the log then, minus what was committed by then."""
    import pandas as pd
    from pyspark.sql import functions as f

    where = ["topic", "partition"]
    ends = records.groupBy(_bucket(said, "time"), *where).agg(
        (f.max("offset") + 1).alias("end"), f.min("offset").alias("begin")
    )
    done = seen.groupBy(_bucket(said, "at"), "group", *where).agg(f.max("offset").alias("done"))
    written, read = ends.toPandas(), done.toPandas()
    if written.empty or read.empty:
        return pd.DataFrame(columns=["time", "group", "topic", "lag"])
    low = min(written["time"].min(), read["time"].min())
    high = max(written["time"].max(), read["time"].max())
    step = max(seconds_of(said.bucket), (high - low).total_seconds() / 2000)
    times = pd.date_range(low, high, freq=pd.Timedelta(seconds=step), name="time")
    # The log only grows, and so does what is read: the largest so far stands for what is missing.
    grown = _over_time(written, where, "end", times)
    begun = written.groupby(where)["begin"].min()
    parts = []
    for group, mine in read.groupby("group"):
        reached = _over_time(mine, where, "done", times)
        shared = [column for column in grown.columns if column in set(reached.columns)]
        start = [begun[column] for column in shared]
        behind = grown[shared].fillna(dict(zip(shared, start, strict=True)))
        behind = (behind - reached[shared]).clip(lower=0)
        by_topic = behind.T.groupby(level=0).sum(min_count=1).T
        told = by_topic.stack().rename("lag").reset_index().rename(columns={"level_1": "topic"})
        parts.append(told.assign(group=group)[["time", "group", "topic", "lag"]])
    return pd.concat(parts, ignore_index=True)


def _over_time(table: pd.DataFrame, where: list[str], value: str, times: Any) -> pd.DataFrame:
    """A column for each partition, a row for each time, the largest value so far."""
    wide = table.pivot_table(index="time", columns=where, values=value, aggfunc="max")
    return wide.reindex(wide.index.union(times)).cummax().ffill().reindex(times)


def dry_run(said: Traffic, spark: SparkSession | None = None) -> dict[str, Any]:
    """Which topics would be read."""
    found = _records(spark or spark_for(said), said).groupBy("topic").count().orderBy("topic")
    return {"topics": {row["topic"]: row["count"] for row in found.collect()}}
