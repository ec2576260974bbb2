"""Mirror: topics of one cluster kept in another, for migration and for a second data centre.

Kafka's protocol on both sides: topics with their settings, every record with key, value, headers,
timestamp and partition, exactly once; offsets of consumer groups translated, so that a group that
moves goes on with the record it would have read next. Queues of any AMQP broker are moved message
by message with all properties, at least once (`shovel`). With `every` it goes on until stopped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from penstock.spark.pipeline.building import (
    DURATION,
    NOT_A_DURATION,
    Need,
    check_bootstrap,
    is_pattern,
    local,
    seconds_of,
)
from penstock.spark.pipeline.figures import figures_of
from penstock.spark.pipeline.flow import raise_failure, stop_after_batch
from penstock.spark.pipeline.state import Running
from penstock.spark.pipeline.work import patiently, reached, working

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Side:
    """One of the two clusters."""

    bootstrap: str = ""
    amqp: str = ""  # amqp://user:password@host:port/vhost
    options: dict[str, str] = field(default_factory=dict)  # kafka.security.protocol and so on


@dataclass(frozen=True)
class Mirror:
    """What is copied from where to where."""

    name: str
    source: Side
    target: Side
    checkpoint: str = ""
    topics: str = ""  # a regular expression
    groups: str = ".*"  # groups whose offsets are translated; "" for none
    queues: list[str] = field(default_factory=list)  # for AMQP
    prefix: str = ""  # before the name of each topic in the target
    every: str = ""  # go on, and look for new topics and offsets this often
    max_rows_per_batch: int = 0
    settings: dict[str, str] = field(default_factory=dict)


class Mirrored(NamedTuple):
    """What was done in all passes."""

    topics: list[str]
    rows: int
    groups: dict[str, int]  # how many partitions' offsets were translated
    left: dict[str, str]  # groups that were not, and why


def check(said: Mirror, need: Need) -> None:
    """What must fit together."""
    kafka = [bool(side.bootstrap) for side in (said.source, said.target)]
    amqp = [bool(side.amqp) for side in (said.source, said.target)]
    words = "both sides need bootstrap, or both amqp"
    need(kafka != amqp and kafka[0] == kafka[1] and amqp[0] == amqp[1], ("source",), words)
    if kafka[0]:
        need(bool(said.topics), ("topics",), "is missing: a regular expression of names")
        need(bool(said.checkpoint), ("checkpoint",), "is missing: where to keep progress")
        for name in ("topics", "groups"):
            need(is_pattern(getattr(said, name)), (name,), "is no regular expression")
        same = said.source.bootstrap == said.target.bootstrap
        need(not same or bool(said.prefix), ("target", "bootstrap"), "is the source; give prefix")
        need(not said.queues, ("queues",), "are of AMQP: give both sides amqp")
        legal = bool(re.fullmatch(r"[A-Za-z0-9._-]*", said.prefix))
        need(legal, ("prefix",), "may have letters, digits, '.', '_' and '-'")
        need(said.max_rows_per_batch >= 0, ("max_rows_per_batch",), "cannot be negative")
        for name in ("source", "target"):
            check_bootstrap(getattr(said, name).bootstrap, (name, "bootstrap"), need)
    else:
        need(bool(said.queues), ("queues",), "is missing")
        need(said.source.amqp != said.target.amqp, ("target", "amqp"), "is the source")
        need(not said.topics, ("topics",), "are of Kafka's protocol: give both sides bootstrap")
        for name in ("source", "target"):
            parts = urlsplit(getattr(said, name).amqp)
            good = parts.scheme in ("amqp", "amqps") and bool(parts.hostname)
            need(good, (name, "amqp"), "is not amqp://USER:PASSWORD@HOST:PORT/VHOST")
    need(not said.every or bool(DURATION.match(said.every)), ("every",), NOT_A_DURATION)


def run(said: Mirror, **how: Any) -> Mirrored:
    """Pass after pass: topics, records, then offsets; one pass without `every`."""
    if said.queues:
        from penstock.spark.pipeline.shovel import run_shovel

        return run_shovel(said, **how)
    from penstock.spark.pipeline.translate import Syncs, translate_groups
    from penstock.spark.pipeline.twins import Twins

    twins = Twins(said)
    syncs = Syncs(Path(said.checkpoint))
    moved: dict[str, int] = {}
    left: dict[str, str] = {}
    topics: list[str] = []
    with working(said, **how) as (running, spark):
        running.begun()
        while True:
            topics = twins.match_topics()
            if topics:
                syncs.begin(twins, topics)
                patiently(partial(_copy, spark, said, topics, running))
                syncs.add(reached(Path(said.checkpoint)), twins)
                if said.groups:
                    done, left = translate_groups(twins, syncs, said.groups)
                    for group, count in done.items():
                        moved[group] = moved.get(group, 0) + count
            if not said.every or running.stop.wait(seconds_of(said.every)):
                break
    return Mirrored(topics, running.rows, moved, left)


def _copy(spark: SparkSession, said: Mirror, topics: list[str], running: Running) -> None:
    """Everything that is there now, exactly once."""
    from pyspark.sql import functions as f

    options = {
        "kafka.bootstrap.servers": said.source.bootstrap,
        "subscribe": ",".join(topics),
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "ignoreDeletedTopics": "true",  # their copies stay, and the others go on
        **said.source.options,
    }
    if said.max_rows_per_batch:
        options["maxOffsetsPerTrigger"] = str(said.max_rows_per_batch)
    records = spark.readStream.format("penstock").options(**options).load()
    named = f.concat(f.lit(said.prefix), f.col("topic")).alias("topic")
    writer = (
        records.select(named, "partition", "key", "value", "headers", "timestamp")
        .writeStream.format("penstock")
        .option("kafka.bootstrap.servers", said.target.bootstrap)
        .options(**said.target.options)
        .option("checkpointLocation", local(said.checkpoint))
        .queryName(said.name)
    )
    query = writer.trigger(availableNow=True).start()
    last = -1
    try:
        while True:
            active = query.isActive
            for progress in query.recentProgress:
                figures = figures_of(progress)
                if figures.batch > last and figures.rows:
                    last = figures.batch
                    running.add(figures)
            if not active or running.stop.wait(0.1):
                break
        stop_after_batch([query])
        raise_failure([query])
    finally:
        query.stop()


def dry_run(said: Mirror, spark: SparkSession | None = None) -> dict[str, Any]:
    """Which topics with which settings, and how many records wait; nothing is created."""
    if said.queues:
        from penstock.spark.pipeline.shovel import waiting

        return {"queues": waiting(said)}
    from penstock.spark.pipeline.twins import Twins

    return Twins(said).survey(reached(Path(said.checkpoint)))
