"""Dead-letter redrive: records go back to where they died, chosen by reason, time, key or SQL.

Runs over what the dead-letter topic holds now, then ends; its checkpoint remembers how far it has
looked, and every letter is sent back exactly once. A letter carries how often it was redriven, so
one that dies again and again is left alone after `max_attempts`, and nothing is ever sent to the
topic it is read from: no loop, whatever the rest of the system does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.pipeline import letters
from penstock.spark.pipeline.building import (
    Need,
    check_bootstrap,
    check_span,
    default_bootstrap,
    local,
)
from penstock.spark.pipeline.definition import Source
from penstock.spark.pipeline.figures import Figures, figures_of, offsets_in
from penstock.spark.pipeline.flow import raise_failure, stop_after_batch
from penstock.spark.pipeline.state import Running
from penstock.spark.pipeline.work import closing_cluster, patiently, spark_for, told_at, working

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERDICTS = ("redriven", "not chosen", "worn out", "homeless", "loop")
COUNTS = "verdicts"


@dataclass(frozen=True)
class Redrive:
    """What goes back where."""

    name: str
    topic: str  # of the dead letters
    checkpoint: str
    bootstrap: str = field(default_factory=default_bootstrap)
    to: str = ""  # a topic for all; else where each letter died
    reasons: list[str] = field(default_factory=list)  # one of these; % and _ as in SQL's LIKE
    keys: list[str] = field(default_factory=list)
    since: str = ""  # died at or after: 2026-11-15T10:00:00Z
    until: str = ""  # died before
    where: str = ""  # SQL over key, value, reason, origin, attempts, died, headers
    value: str = ""  # SQL that mends the value
    max_attempts: int = 3
    parked: str = ""  # a topic for letters that had all their attempts
    rate: int = 0  # letters a second; 0: as fast as it goes
    settings: dict[str, str] = field(default_factory=dict)


class Redriven(NamedTuple):
    """How many letters were looked at, and what became of them."""

    read: int
    redriven: int
    not_chosen: int
    worn_out: int
    homeless: int
    loop: int


def check(said: Redrive, need: Need) -> None:
    """What must fit together."""
    need(said.to != said.topic, ("to",), "is the topic that is read: the letters would go round")
    need(not said.parked or said.parked not in (said.topic, said.to), ("parked",),
         "must be another topic")  # fmt: skip
    need(said.max_attempts >= 1, ("max_attempts",), "is at least 1")
    need(said.rate >= 0, ("rate",), "cannot be negative")
    check_bootstrap(said.bootstrap, ("bootstrap",), need)
    check_span(said.since, said.until, need)


def run(said: Redrive, **how: Any) -> Redriven:
    """Send letters back until the end that the topic has now."""
    from penstock.spark.cluster import READ_COMMITTED, Cluster, TopicPartition
    from penstock.spark.offsets import latest

    with working(said, **how) as (running, spark):
        cluster = Cluster(said.bootstrap, patience_s=20)
        with closing_cluster(cluster):
            found = cluster.topics([said.topic]).get(said.topic, [])
            for name in filter(None, (said.to, said.parked)):
                if not cluster.topics([name]):
                    cluster.create_topic(name, max(len(found), 1), {})
            ends = latest(cluster, [TopicPartition(said.topic, p) for p in found], READ_COMMITTED)
        counts = dict.fromkeys(VERDICTS, 0)
        goal = {(tp.topic, str(tp.partition)): end for tp, end in ends.items()}

        def drive() -> None:
            query = _start(spark, said)
            try:
                running.begun()
                _watch(query, goal, counts, running)
            finally:
                query.stop()

        patiently(drive)
    return Redriven(running.rows, *counts.values())


def _start(spark: SparkSession, said: Redrive) -> Any:
    options = {"maxOffsetsPerTrigger": str(said.rate)} if said.rate else {}
    records = _records(spark, said, options)
    judged = judged_frame(said, records)
    writer = going_frame(said, judged).writeStream.format("penstock")
    writer = writer.option("kafka.bootstrap.servers", said.bootstrap)
    writer = writer.option("checkpointLocation", local(said.checkpoint)).queryName(said.name)
    # A stream has no rate of its own: a batch each second of so many letters makes one.
    pace = {"processingTime": "1 second"} if said.rate else {"availableNow": True}
    return writer.trigger(**pace).start()


def _watch(
    query: Any, ends: dict[tuple[str, str], int], counts: dict[str, int], running: Running
) -> None:
    last, done = -1, False
    while True:
        active = query.isActive
        for progress in query.recentProgress:
            figures, verdicts, done = _figures(progress, ends)
            if figures.batch > last and figures.rows:
                last = figures.batch
                for verdict, count in verdicts.items():
                    counts[verdict] += count
                running.add(figures)
        if not active or done or running.stop.is_set():
            break
        running.stop.wait(0.1)
    stop_after_batch([query])
    raise_failure([query])


def _figures(
    progress: Any, ends: dict[tuple[str, str], int]
) -> tuple[Figures, dict[str, int], bool]:
    figures = figures_of(progress)
    said = json.loads(progress.json)
    counted = said.get("observedMetrics", {}).get(COUNTS, {})
    verdicts = {verdict: counted.get(f"v{at}", 0) for at, verdict in enumerate(VERDICTS)}
    reached = offsets_in(said["sources"][0].get("endOffset"))
    done = bool(reached) and all(reached.get(tp, 0) >= end for tp, end in ends.items())
    return figures, verdicts, done


def _records(
    spark: SparkSession, said: Redrive, options: dict[str, str], *, batch: bool = False
) -> DataFrame:
    from penstock.spark.pipeline.plan import source_frame

    source = Source(topic=said.topic, bootstrap=said.bootstrap, options=options)
    return letters.letters_frame(source_frame(spark, source, batch=batch))


def judged_frame(said: Redrive, found: DataFrame) -> DataFrame:
    """Letters with `target` and `verdict`."""
    from pyspark.sql import functions as f

    # The bytes are kept beside the text: what is not UTF-8 would not survive the way and back.
    rows = found.withColumn("raw_key", f.col("key")).withColumn("raw_value", f.col("value"))
    rows = rows.withColumn("key", f.col("key").cast("string"))
    rows = rows.withColumn("value", f.col("value").cast("string"))
    chosen = f.lit(True)
    if said.reasons:
        likes = [f.col("reason").like(pattern) for pattern in said.reasons]
        chosen = chosen & f.coalesce(f.greatest(*likes, f.lit(False)), f.lit(False))
    if said.keys:
        chosen = chosen & f.coalesce(f.col("key").isin(said.keys), f.lit(False))
    if said.since:
        chosen = chosen & (f.col("died") >= f.to_timestamp(f.lit(said.since)))
    if said.until:
        chosen = chosen & (f.col("died") < f.to_timestamp(f.lit(said.until)))
    if said.where:
        with told_at("where"):
            rows.where(said.where)
        chosen = chosen & f.coalesce(f.expr(said.where), f.lit(False))
    target = f.lit(said.to) if said.to else f.col("origin")
    verdict = (
        f.when(~chosen, "not chosen")
        .when(target.isNull(), "homeless")
        .when(target == f.lit(said.topic), "loop")
        .when(f.col("attempts") >= said.max_attempts, "worn out")
        .otherwise("redriven")
    )
    judged = rows.withColumn("target", target).withColumn("verdict", verdict)
    counted = [
        f.count(f.when(f.col("verdict") == one, 1)).alias(f"v{at}")
        for at, one in enumerate(VERDICTS)
    ]
    return judged.observe(COUNTS, *counted)


def going_frame(said: Redrive, judged: DataFrame) -> DataFrame:
    """The records that leave: back to a target with one more attempt, or parked as they are."""
    from pyspark.sql import functions as f

    from penstock.spark.pipeline.plan import as_bytes

    tries = letters.header_of(letters.ATTEMPTS, f.col("attempts") + 1)
    bare = letters.without_ours(f.col("headers"), keep_attempts=False)
    back = f.col("verdict") == "redriven"
    with told_at("value"):
        mended = as_bytes(judged, said.value or "raw_value")
    going = judged.where(back | (f.col("verdict") == "worn out") if said.parked else back)
    return going.select(
        f.when(back, f.col("target")).otherwise(f.lit(said.parked)).alias("topic"),
        f.col("raw_key").alias("key"),
        (
            f.when(back, mended).otherwise(f.col("raw_value")) if said.value else f.col("raw_value")
        ).alias("value"),
        f.when(back, f.concat(bare, f.array(tries))).otherwise(f.col("headers")).alias("headers"),
    )


def dry_run(said: Redrive, spark: SparkSession | None = None) -> dict[str, Any]:
    """How many letters would go where, and ten of them."""
    from pyspark.sql import functions as f

    spark = spark or spark_for(said)
    judged = judged_frame(said, _records(spark, said, {}, batch=True)).cache()
    counts = {row["verdict"]: row["count"] for row in judged.groupBy("verdict").count().collect()}
    columns = ["partition", "offset", "died", "key", "reason", "attempts", "target", "value"]
    sample = judged.where(f.col("verdict") == "redriven").select(*columns).limit(10).collect()
    judged.unpersist()
    return {
        "verdicts": {verdict: counts.get(verdict, 0) for verdict in VERDICTS},
        "sample": [{**row.asDict(), "died": str(row["died"])} for row in sample],
    }
