"""Running a pipeline: start its queries, show progress, stop after the batch that is running.

    from penstock.spark.pipeline import load, run
    run(load(Path("orders.toml")))

Figures of each batch go to a callback and to the state file. The first query that fails stops the
others, and its error is raised.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline.building import interval, local
from penstock.spark.pipeline.definition import Pipeline
from penstock.spark.pipeline.figures import Figures, figures_of
from penstock.spark.pipeline.plan import (
    REASON,
    Output,
    good_frame,
    judged_frame,
    outputs,
    reasons_of,
    record_frame,
    source_frame,
)
from penstock.spark.pipeline.state import Running
from penstock.spark.pipeline.work import (
    closing_cluster,
    first_cause,
    is_busy,
    patiently,
    reached,
    spark_for,
    working,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class TooManyBadRows(SparkConnectorError):
    """More rows went to quarantine than the pipeline allows."""


def run(pipeline: Pipeline, **how: Any) -> int:
    """Until it is done or asked to stop; returns how many rows were read.

    `how`: see `penstock.spark.pipeline.work.working`.
    """
    with working(pipeline, **how) as (running, spark):
        queries: list[Any] = []
        try:
            _create_topics(pipeline)
            starters = patiently(lambda: _starters(spark, pipeline))
            queries = [patiently(start) for start in starters]
            running.begun()
            _watch(pipeline, queries, starters, running)
            _commit_last(pipeline)
        finally:
            for query in queries:
                query.stop()
    return running.rows


def _watch(
    pipeline: Pipeline, queries: list[Any], starters: list[Callable[[], Any]], running: Running
) -> None:
    """Until all queries are done; a stop lets the batch that is running finish."""
    report = Report(pipeline, running)
    restarts = pipeline.restarts
    while any(query.isActive for query in queries) and not running.stop.is_set():
        report.look(queries[0])
        if all(query.isActive for query in queries):
            running.stop.wait(0.2)
        else:
            restarts -= _revive(queries, starters, restarts)
            running.stop.wait(0.1)
    if running.stop.is_set():
        running.stopping()
        stop_after_batch(queries)
    report.look(queries[0])
    raise_failure(queries)


def changes_to(output: Output) -> Callable[[Any, int], None]:
    """Write a batch of changed groups: Spark lets a Python sink only append, but any batch query
    inside a stream may write, and with the query's id and the batch's number it writes once."""

    def write(rows: Any, batch_id: int) -> None:
        query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        if not query:
            raise SparkConnectorError("Spark does not tell the query's id")
        said = {"sinkId": query, "batchId": str(batch_id), **output.options}
        said.setdefault("delivery", "exactly-once")
        said["checkpointLocation"] = output.checkpoint
        rows.write.format(output.format).mode("append").options(**said).save()

    return write


def _commit_last(pipeline: Pipeline) -> None:
    """Spark tells a source that a batch is done when the next one begins; the last has no next."""
    from penstock.spark.cluster import Cluster
    from penstock.spark.offsets import from_json

    source = pipeline.source
    done = from_json(reached(Path(local(pipeline.checkpoint)))) if source.group else {}
    if done:
        cluster = Cluster(source.bootstrap, patience_s=20)
        with closing_cluster(cluster):
            cluster.commit(source.group, done)


class Report:
    """Shows each batch once, and refuses to go on when too much of one was bad."""

    def __init__(self, pipeline: Pipeline, running: Running) -> None:
        self._quarantine = pipeline.quarantine
        self._reasons = reasons_of(pipeline)
        self._running = running
        self._last = -1

    def look(self, query: Any) -> None:
        for progress in query.recentProgress:
            figures = figures_of(progress, self._reasons)
            if figures.batch > self._last and figures.rows:
                self._last = figures.batch
                self._running.add(figures)
                self._check(figures)

    def _check(self, figures: Figures) -> None:
        if self._quarantine is None or not figures.bad:
            return
        share = figures.bad / figures.rows
        if share > self._quarantine.stop_above:
            why = ", ".join(f"{count:,} {reason}" for reason, count in figures.reasons.items())
            raise TooManyBadRows(
                f"{share:.1%} of the rows of batch {figures.batch} were bad and went to "
                f"{self._quarantine.topic} ({why}); stop_above allows "
                f"{self._quarantine.stop_above:.1%}"
            )


def _starters(session: SparkSession, pipeline: Pipeline) -> list[Callable[[], Any]]:
    starters = []
    for at, output in enumerate(outputs(session, pipeline)):
        writer = output.frame.writeStream
        if at or pipeline.output == "append":
            writer = writer.format(output.format).options(**output.options)
        else:
            writer = writer.outputMode(pipeline.output).foreachBatch(changes_to(output))
        writer = writer.option("checkpointLocation", output.checkpoint)
        writer = writer.queryName(f"{pipeline.name}{'' if not at else '-quarantine'}")
        if pipeline.trigger.available_now:
            writer = writer.trigger(availableNow=True)
        elif pipeline.trigger.every:
            writer = writer.trigger(processingTime=interval(pipeline.trigger.every))
        starters.append(writer.start)
    return starters


def raise_failure(queries: list[Any]) -> None:
    for query in queries:
        failure = None if query.isActive else query.exception()
        if failure is not None:
            raise SparkConnectorError(first_cause(str(failure)))


def _revive(queries: list[Any], starters: list[Callable[[], Any]], left: int) -> int:
    """Start queries that fell again, from their checkpoints; how many there were.

    Only what Spark itself could not do is worth repeating, such as a worker that did not come up
    in time; what our own code refused (lost data, a bad option) would be refused again.
    """
    revived = 0
    for at, query in enumerate(queries):
        failure = None if query.isActive else query.exception()
        if failure is None:
            continue
        busy = is_busy(failure)
        if "penstock.spark.errors." in str(failure) or (revived >= left and not busy):
            raise_failure([query])
        log.warning("starting again after: %s", first_cause(str(failure)))
        queries[at] = patiently(starters[at])
        revived += not busy
    return revived


def stop_after_batch(queries: list[Any], patience_s: float = 600.0) -> None:
    """Let a batch that is being written finish, and begin no other.

    A query that waits is in no trigger; one with much to read is in the next as soon as one ends,
    so what counts there is that another batch has been reported.
    """
    deadline = time.monotonic() + patience_s
    at = [_batches(query) for query in queries]
    for query, before in zip(queries, at, strict=True):
        while query.isActive and query.status["isTriggerActive"] and _batches(query) == before:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        query.stop()


def _batches(query: Any) -> int:
    progress = query.lastProgress
    return -1 if progress is None else int(progress.batchId)


def _create_topics(pipeline: Pipeline) -> None:
    """The topics written to, when they are not there, with as many partitions as the source."""
    from penstock.spark.cluster import Cluster

    source = Cluster(pipeline.source.bootstrap, patience_s=20)
    partitions = -1
    if pipeline.source.topic:
        with closing_cluster(source):
            found = source.topics(pipeline.source.topic.split(","))
        partitions = max((len(parts) for parts in found.values()), default=-1)
    target = Cluster(pipeline.sink.bootstrap or pipeline.source.bootstrap, patience_s=20)
    wanted = [pipeline.sink.topic] if pipeline.sink.kind == "topic" else []
    wanted += [pipeline.quarantine.topic] if pipeline.quarantine else []
    with closing_cluster(target):
        have = target.topics(wanted) if wanted else {}
        for name in wanted:
            if name not in have:
                settings = pipeline.sink.topic_settings if name == pipeline.sink.topic else {}
                target.create_topic(name, partitions, settings)


def dry_run(
    pipeline: Pipeline, spark: SparkSession | None = None, rows: int = 10
) -> dict[str, Any]:
    """Schema, plan and sample rows, over what the source holds now; nothing is written."""
    from pyspark.sql import functions as f

    spark = spark or spark_for(pipeline)
    records = source_frame(spark, pipeline.source, batch=True).limit(1000)
    judged = judged_frame(pipeline, records).cache()
    good = good_frame(spark, pipeline, judged)
    if pipeline.sink.kind == "topic":
        good = record_frame(pipeline.sink, good)
    columns = [
        f.col(name).cast("string").alias(name) if kind == "binary" else f.col(name)
        for name, kind in good.dtypes
    ]
    shown = good.limit(rows).select(f.to_json(f.struct(*columns)).alias("row")).collect()
    sample = [json.loads(row["row"]) for row in shown]
    reasons = {row[REASON]: row["count"] for row in judged.groupBy(REASON).count().collect()}
    plan = good._jdf.queryExecution().simpleString()
    judged.unpersist()
    return {
        "schema": [f"{field.name} {field.dataType.simpleString()}" for field in good.schema],
        "sample": sample,
        "good": reasons.pop(None, 0),
        "bad": reasons,
        "plan": plan,
    }
