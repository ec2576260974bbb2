"""Running a pipeline: start its queries, show progress, stop after the batch that is running.

    from penstock.spark.pipeline.run import run
    run(load(Path("orders.toml")))

Figures of each batch go to a callback and to the state file. The first query that fails stops the
others, and its error is raised.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline.definition import Pipeline
from penstock.spark.pipeline.plan import (
    QUALITY,
    REASON,
    good_frame,
    judged_frame,
    outputs,
    record_frame,
    source_frame,
)
from penstock.spark.pipeline.state import RunState, started_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


class Figures(NamedTuple):
    """One batch, for people."""

    batch: int
    rows: int
    rows_per_s: float
    seconds: float
    lag: int
    bad: int = 0


class TooManyBadRows(SparkConnectorError):
    """More rows went to quarantine than the pipeline allows."""


def spark_for(pipeline: Pipeline, master: str | None = None) -> SparkSession:
    """A session with the pipeline's own settings."""
    from penstock.spark.launch import session

    return session(pipeline.name, master, dict(pipeline.settings))


def figures_of(progress: Any) -> Figures:
    """From Spark's progress: lag is the ends of the topics minus what is read."""
    said = json.loads(progress.json)
    lag = 0
    for source in said["sources"]:
        latest, end = (_offsets(source.get(name)) for name in ("latestOffset", "endOffset"))
        lag += sum(max(0, offset - end.get(tp, 0)) for tp, offset in latest.items())
    seconds = said.get("durationMs", {}).get("triggerExecution", 0) / 1000
    counted = said.get("observedMetrics", {}).get(QUALITY, {})
    rows = counted.get("rows", said["numInputRows"])
    pace = rows / seconds if seconds else 0.0
    return Figures(said["batchId"], rows, pace, seconds, lag, counted.get("bad", 0))


def _offsets(text: Any) -> dict[tuple[str, str], int]:
    nested = (json.loads(text) if isinstance(text, str) else text) or {}
    return {
        (topic, partition): offset
        for topic, parts in nested.items()
        if not topic.startswith("@")
        for partition, offset in parts.items()
    }


def run(
    pipeline: Pipeline,
    *,
    master: str | None = None,
    show: Callable[[Figures], None] = lambda figures: None,
    spark: SparkSession | None = None,
    stop: threading.Event | None = None,
) -> int:
    """Until it is done or `stop` is set; returns how many rows were read."""
    stop = stop or threading.Event()
    state = RunState(pipeline.name)
    own = {"pid": os.getpid(), "started": started_at(os.getpid()), "since": time.time()}
    state.write(state="starting", **own)
    session = spark or spark_for(pipeline, master)
    queries: list[Any] = []
    total, ending = 0, "failed"
    try:
        _create_topics(pipeline)
        starters = _starters(session, pipeline)
        queries = [start() for start in starters]
        restarts = pipeline.restarts
        seen: dict[str, float] = {}
        while any(query.isActive for query in queries) and not stop.is_set():
            total += _report(queries[0], seen, show, state, own, total)
            _check_quality(pipeline, seen)
            if all(query.isActive for query in queries):
                stop.wait(0.2)
            else:
                restarts -= _revive(queries, starters, restarts)
                stop.wait(0.1)
        if stop.is_set():
            state.write(state="stopping", rows=total, **own)
            _stop_after_batch(queries)
        total += _report(queries[0], seen, show, state, own, total)
        _check_quality(pipeline, seen)
        _raise_failure(queries)
        ending = "stopped" if stop.is_set() else "finished"
    finally:
        for query in queries:
            query.stop()
        state.write(state=ending, rows=total, ended=time.time(), **own)
        if spark is None:
            session.stop()
    return total


def _starters(session: SparkSession, pipeline: Pipeline) -> list[Callable[[], Any]]:
    starters = []
    for at, output in enumerate(outputs(session, pipeline)):
        writer = output.frame.writeStream.format(output.format).options(**output.options)
        writer = writer.option("checkpointLocation", output.checkpoint)
        writer = writer.queryName(f"{pipeline.name}{'' if not at else '-quarantine'}")
        if not at:
            writer = writer.outputMode(pipeline.output)
            if output.format == "parquet" and pipeline.sink.partition_by:
                writer = writer.partitionBy(*pipeline.sink.partition_by)
        if pipeline.trigger.available_now:
            writer = writer.trigger(availableNow=True)
        elif pipeline.trigger.every:
            writer = writer.trigger(processingTime=interval(pipeline.trigger.every))
        starters.append(writer.start)
    return starters


def interval(text: str) -> str:
    """A duration in the words that Spark's intervals know: `200 ms` is `200 milliseconds`."""
    found = re.fullmatch(r"(\d+) ?([a-z]+)", text)
    assert found is not None, "checked with the definition"
    units = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}
    return f"{found[1]} {units.get(found[2], found[2])}"


def _report(
    query: Any,
    seen: dict[str, float],
    show: Callable[[Figures], None],
    state: RunState,
    own: dict[str, Any],
    before: int,
) -> int:
    """Show batches that were not shown; the rows they read."""
    rows = 0
    for progress in query.recentProgress:
        figures = figures_of(progress)
        if figures.batch > seen.get("batch", -1) and figures.rows:
            seen["batch"] = figures.batch
            seen["worst"] = max(seen.get("worst", 0), figures.bad / figures.rows)
            rows += figures.rows
            show(figures)
            state.write(state="running", rows=before + rows, figures=figures._asdict(), **own)
    return rows


def _check_quality(pipeline: Pipeline, seen: dict[str, float]) -> None:
    """Stop, after the batch, when a larger share of rows was bad than the pipeline allows."""
    worst = seen.get("worst", 0.0)
    if pipeline.quarantine is not None and worst > pipeline.quarantine.stop_above:
        raise TooManyBadRows(
            f"{worst:.1%} of the rows of a batch were bad and went to {pipeline.quarantine.topic}; "
            f"stop_above allows {pipeline.quarantine.stop_above:.1%}"
        )


def _raise_failure(queries: list[Any]) -> None:
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
        if "penstock.spark.errors." in str(failure) or revived >= left:
            _raise_failure([query])
        log.warning("starting again after: %s", first_cause(str(failure)))
        queries[at] = starters[at]()
        revived += 1
    return revived


def first_cause(text: str) -> str:
    """The sentence in the middle of Spark's long error that says what happened."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("penstock.spark.")]
    return ours[-1].partition(": ")[2] if ours else lines[0][:500]


def _stop_after_batch(queries: list[Any], patience_s: float = 60.0) -> None:
    """Let a batch that is being written finish: a query between batches is not in a trigger."""
    deadline = time.monotonic() + patience_s
    for query in queries:
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
            time.sleep(0.02)
        query.stop()


def _create_topics(pipeline: Pipeline) -> None:
    """The topics written to, when they are not there, with as many partitions as the source."""
    from penstock.spark.cluster import Cluster

    source = Cluster(pipeline.source.bootstrap, patience_s=20)
    partitions = -1
    if pipeline.source.topic:
        found = source.topics(pipeline.source.topic.split(","))
        partitions = max((len(parts) for parts in found.values()), default=-1)
    target = Cluster(pipeline.sink.bootstrap or pipeline.source.bootstrap, patience_s=20)
    wanted = [pipeline.sink.topic] if pipeline.sink.kind == "topic" else []
    wanted += [pipeline.quarantine.topic] if pipeline.quarantine else []
    have = target.topics(wanted) if wanted else {}
    for name in wanted:
        if name not in have:
            target.create_topic(name, partitions, {})
    source.forget()
    target.forget()


def dry_run(pipeline: Pipeline, spark: SparkSession, rows: int = 10) -> dict[str, Any]:
    """Schema, plan and sample rows, over what the source holds now; nothing is written."""
    from pyspark.sql import functions as f

    records = source_frame(spark, pipeline.source, batch=True).limit(1000)
    judged = judged_frame(pipeline, records).cache()
    good = good_frame(spark, pipeline, judged)
    if pipeline.sink.kind == "topic":
        good = record_frame(pipeline, good)
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


def stop_on_signals(stop: threading.Event) -> None:
    """Ctrl-C and SIGTERM ask for a stop after the batch; a second one ends at once."""

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
