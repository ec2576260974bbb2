"""What a flow is: source, decode, steps, aggregate, quality, sink; each field declared once.

A flow is the pipeline that runs on and on: a topic's records become rows, rows are judged, changed
and counted, and go to a topic or a table. Nothing of Spark is imported here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from penstock.spark.pipeline.building import (
    DURATION,
    NOT_A_DURATION,
    Need,
    check_bootstrap,
    default_bootstrap,
    is_pattern,
    seconds_of,
)
from penstock.spark.pipeline.document import Where
from penstock.spark.pipeline.kinds import load as load

SINKS = ("topic", "parquet", "delta", "iceberg")
RECORD = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


@dataclass(frozen=True)
class Source:
    """Where rows come from."""

    topic: str = ""
    pattern: str = ""
    bootstrap: str = field(default_factory=default_bootstrap)
    start: str = "earliest"  # earliest, latest, group, or a JSON of offsets
    group: str = ""  # commit progress as this consumer group
    max_rows_per_batch: int = 0
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Decode:
    """How a value becomes columns."""

    format: str = "json"  # json, avro, string
    schema: str = ""  # Spark DDL: "id BIGINT, amount DOUBLE"; for avro, its schema
    on_error: str = "quarantine"  # fail, null, drop, quarantine
    keep: list[str] = field(default_factory=list)  # columns of the record to keep: key, timestamp


@dataclass(frozen=True)
class Stream:
    """Another topic, as a view of this name: join it in a step's SQL."""

    name: str
    topic: str
    schema: str
    watermark: str = ""
    start: str = "earliest"
    bootstrap: str = ""


@dataclass(frozen=True)
class Step:
    """One SQL query over `input`, the rows so far; or a Python function; or a static table."""

    sql: str = ""
    python: str = ""  # "file.py:function" or "module:function", from DataFrame to DataFrame
    table: str = ""  # register a static table under this name instead
    path: str = ""
    format: str = "parquet"  # parquet, delta, iceberg, csv, ...


@dataclass(frozen=True)
class Aggregate:
    """Rows into groups: by columns, by a window of event time, by session, or a few of these."""

    select: dict[str, str]  # {total = "sum(amount)"}
    by: list[str] = field(default_factory=list)
    time: str = ""  # the column of event time
    window: str = ""  # "10 minutes"
    slide: str = ""  # a window begins this often
    session: str = ""  # or: a group ends after a gap like this
    top: int = 0  # of each window only so many groups,
    rank_by: str = ""  # the greatest by this column


@dataclass(frozen=True)
class Rule:
    """What a good row satisfies."""

    rule: str
    name: str = ""


@dataclass(frozen=True)
class Quarantine:
    """Where bad rows go, and when there are too many."""

    topic: str
    stop_above: float = 1.0  # share of bad rows in a batch that stops the pipeline


@dataclass(frozen=True)
class Sink:
    """Where rows go."""

    kind: str
    topic: str = ""
    key: str = ""  # SQL for the record's key
    value: str = ""  # SQL for the record's value; without it all columns as JSON
    topic_settings: dict[str, str] = field(default_factory=dict)  # when the topic is created
    bootstrap: str = ""
    path: str = ""
    table: str = ""
    mode: str = "append"  # append, upsert
    keys: list[str] = field(default_factory=list)
    order_by: str = ""
    partition_by: list[str] = field(default_factory=list)
    target_file_bytes: int = 128 << 20
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Trigger:
    """When batches run: once over what is there, or every so often."""

    available_now: bool = False
    every: str = ""


@dataclass(frozen=True)
class Pipeline:
    """One flow, checked."""

    name: str
    source: Source
    sink: Sink
    decode: Decode | None = None
    streams: list[Stream] = field(default_factory=list)
    dedup: list[str] = field(default_factory=list)  # once per these columns, within the watermark
    steps: list[Step] = field(default_factory=list)
    aggregate: Aggregate | None = None
    quality: list[Rule] = field(default_factory=list)
    quarantine: Quarantine | None = None
    trigger: Trigger = field(default_factory=Trigger)
    checkpoint: str = ""
    watermark: str = ""  # "event_time 10 minutes"
    output: str = "append"  # append, update, complete
    restarts: int = 3  # times a query that Spark itself let fall is started again
    settings: dict[str, str] = field(default_factory=dict)  # Spark's own


def check(pipeline: Pipeline, need: Need) -> None:
    """What must fit together."""
    _check_source(pipeline.source, need)
    need(bool(pipeline.checkpoint), ("checkpoint",), "is missing: where to keep progress")
    check_sink(pipeline.sink, need)
    check_decode(pipeline.decode, need)
    _check_undecodable(pipeline, need)
    _check_quality(pipeline, need)
    _check_loop(pipeline, need)
    for at, step in enumerate(pipeline.steps):
        _check_step(step, ("steps", at), need)
    check_trigger(pipeline.trigger, need)
    _check_watermark(pipeline.watermark, ("watermark",), need)
    for at, stream in enumerate(pipeline.streams):
        _check_watermark(stream.watermark, ("streams", at, "watermark"), need)
        good = bool(re.fullmatch(r"[A-Za-z_]\w*", stream.name)) and stream.name != "input"
        need(good, ("streams", at, "name"), "is the name of a view in SQL, and not `input`")
    need(not pipeline.dedup or bool(pipeline.watermark), ("dedup",),
         "needs watermark: how long a repetition may come later")  # fmt: skip
    modes = ("append", "update", "complete")
    need(pipeline.output in modes, ("output",), f"is none of {', '.join(modes)}")
    need(pipeline.restarts >= 0, ("restarts",), "cannot be negative")
    if pipeline.aggregate is not None:
        _check_aggregate(pipeline.aggregate, pipeline.output, need)
        words = 'needs watermark, to know when a group is complete, or output = "update"'
        need(pipeline.output != "append" or _has_watermark(pipeline), ("aggregate",), words)


def _has_watermark(pipeline: Pipeline) -> bool:
    """Here or, as far as can be seen, in a step."""
    in_steps = any(step.python or "watermark" in step.sql.lower() for step in pipeline.steps)
    return bool(pipeline.watermark) or in_steps


def _check_source(source: Source, need: Need) -> None:
    need(bool(source.topic) != bool(source.pattern), ("source",), "give topic or pattern, one of")
    need(is_pattern(source.pattern), ("source", "pattern"), "is no regular expression")
    check_bootstrap(source.bootstrap, ("source", "bootstrap"), need)
    most = source.max_rows_per_batch
    need(most >= 0, ("source", "max_rows_per_batch"), "cannot be negative")
    known = source.start in ("earliest", "latest", "group") or source.start.startswith("{")
    need(known, ("source", "start"), "is earliest, latest, group, or JSON of offsets")
    group = bool(source.group) or "kafka.group.id" in source.options
    need(source.start != "group" or group, ("source", "start"), "group needs group: its name")


def _check_quality(pipeline: Pipeline, need: Need) -> None:
    quarantine = pipeline.quarantine
    if pipeline.quality:
        need(quarantine is not None, ("quality",), "needs [quarantine] for bad rows")
    names: set[str] = set()
    for at, rule in enumerate(pipeline.quality):
        need(bool(rule.rule.strip()), ("quality", at, "rule"), "is empty")
        name = rule.name or rule.rule
        need(name not in names, ("quality", at), f"{name!r} is there twice; give it a name")
        names.add(name)
    if quarantine is not None:
        need(bool(quarantine.topic), ("quarantine", "topic"), "is empty")
        good = 0 <= quarantine.stop_above <= 1
        need(good, ("quarantine", "stop_above"), "is a share between 0 and 1")


def _check_loop(pipeline: Pipeline, need: Need) -> None:
    """Nothing may be written to where it is read from, or bad rows to where good ones go."""
    source, sink, quarantine = pipeline.source, pipeline.sink, pipeline.quarantine
    here = sink.bootstrap in ("", source.bootstrap)
    words = "is read by this pipeline: the rows would go round"
    if sink.kind == "topic":
        need(not (here and _reads(source, sink.topic)), ("sink", "topic"), words)
    if quarantine is not None:
        need(not (here and _reads(source, quarantine.topic)), ("quarantine", "topic"), words)
        same = sink.kind == "topic" and sink.topic == quarantine.topic
        need(not same, ("quarantine", "topic"), "is the sink: good and bad rows need two topics")


def _reads(source: Source, topic: str) -> bool:
    if source.topic:
        return topic in [name.strip() for name in source.topic.split(",")]
    return bool(re.fullmatch(source.pattern, topic))


def _check_step(step: Step, where: Where, need: Need) -> None:
    said = [bool(step.sql), bool(step.table), bool(step.python)]
    need(said.count(True) == 1, where, "give sql or python or table, one of")
    need(not step.table or bool(step.path), where, "path of the table is missing")
    if step.python:
        need(":" in step.python, (*where, "python"), "is FILE:FUNCTION or MODULE:FUNCTION")
        file = step.python.rpartition(":")[0]
        there = not file.endswith(".py") or Path(file).is_file()
        need(there, (*where, "python"), f"there is no file {file}")


def check_trigger(trigger: Trigger, need: Need) -> None:
    """Once or every so often."""
    both = trigger.available_now and trigger.every
    need(not both, ("trigger",), "available_now or every, not both")
    good = not trigger.every or bool(DURATION.match(trigger.every))
    need(good, ("trigger", "every"), NOT_A_DURATION)


def _check_watermark(text: str, where: Where, need: Need) -> None:
    parts = text.split(None, 1)
    good = not text or (len(parts) == 2 and bool(DURATION.match(parts[1])))
    need(good, where, "is a column and a delay: 'event_time 10 minutes'")


def check_sink(sink: Sink, need: Need) -> None:
    """What a topic or a table must be told."""
    need(sink.kind in SINKS, ("sink", "kind"), f"{sink.kind!r} is none of {', '.join(SINKS)}")
    if sink.kind == "topic":
        need(bool(sink.topic), ("sink",), "topic is missing")
        compacted = "compact" in sink.topic_settings.get("cleanup.policy", "")
        need(not compacted or bool(sink.key), ("sink",), "a compacted topic needs key")
    else:
        need(bool(sink.path), ("sink",), "path is missing")
    if sink.bootstrap:
        check_bootstrap(sink.bootstrap, ("sink", "bootstrap"), need)
    need(sink.target_file_bytes > 0, ("sink", "target_file_bytes"), "is at least 1")
    need(sink.mode in ("append", "upsert"), ("sink", "mode"), "is append or upsert")
    if sink.mode == "upsert":
        need(sink.kind in ("delta", "iceberg"), ("sink", "mode"), "upsert needs delta or iceberg")
        need(bool(sink.keys), ("sink", "mode"), "upsert needs keys")
    for name in ("keys", "order_by"):
        used = sink.mode == "upsert" or not getattr(sink, name)
        need(used, ("sink", name), 'does nothing without mode = "upsert"')


def check_decode(decode: Decode | None, need: Need) -> None:
    """A format, and a schema that goes with it."""
    if decode is None:
        return
    formats = ("json", "avro", "string")
    need(decode.format in formats, ("decode", "format"), f"is none of {', '.join(formats)}")
    need(decode.format == "string" or bool(decode.schema), ("decode",), "schema is missing")
    if decode.format == "avro":
        words = "is no Avro schema of a record, in JSON"
        need(_is_record(decode.schema), ("decode", "schema"), words)
    ways = ("fail", "null", "drop", "quarantine")
    need(decode.on_error in ways, ("decode", "on_error"), f"is none of {', '.join(ways)}")
    ours = re.search(r"\b_(corrupt|record|reason|parsed)\b", decode.schema)
    need(not ours, ("decode", "schema"), f"{ours and ours[0]} is a name of the pipeline's own")
    for at, name in enumerate(decode.keep):
        need(name in RECORD, ("decode", "keep", at), f"{name!r} is none of {', '.join(RECORD)}")


def _check_undecodable(pipeline: Pipeline, need: Need) -> None:
    decode = pipeline.decode
    if decode is not None and decode.format != "string" and decode.on_error == "quarantine":
        there = pipeline.quarantine is not None
        need(there, ("decode",), "on_error=quarantine needs [quarantine]")


def _is_record(text: str) -> bool:
    try:
        said = json.loads(text)
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("type") == "record"


def _check_aggregate(aggregate: Aggregate, output: str, need: Need) -> None:
    need(bool(aggregate.select), ("aggregate", "select"), "is empty")
    need(
        not (aggregate.window and aggregate.session), ("aggregate",), "window or session, not both"
    )
    timed = bool(aggregate.window or aggregate.session)
    need(timed == bool(aggregate.time), ("aggregate",), "time and window (or session) go together")
    need(not aggregate.slide or bool(aggregate.window), ("aggregate", "slide"), "needs window")
    for name in ("window", "slide", "session"):
        text = getattr(aggregate, name)
        need(not text or bool(DURATION.match(text)), ("aggregate", name), NOT_A_DURATION)
    need(timed or bool(aggregate.by), ("aggregate",), "by or a window is missing")
    if aggregate.slide:
        good = 0 < seconds_of(aggregate.slide) <= seconds_of(aggregate.window)
        need(good, ("aggregate", "slide"), "is longer than the window, or nothing")
    taken = [*aggregate.by, *(("start", "end") if timed else ())]
    for name in aggregate.select:
        need(name not in taken, ("aggregate", "select"), f"{name!r} is a column of the group")
    need(aggregate.top >= 0, ("aggregate", "top"), "cannot be negative")
    need(not aggregate.rank_by or aggregate.top > 0, ("aggregate", "rank_by"), "needs top")
    if aggregate.top:
        final = output == "append"
        need(final, ("aggregate", "top"), 'is known when a window ends: output = "append"')
        need(bool(aggregate.window), ("aggregate", "top"), "is of each window: give window")
        good = aggregate.rank_by in (*aggregate.select, *aggregate.by)
        need(good, ("aggregate", "top"), "rank_by must name a column of select")
