"""What a pipeline is: source, decode, steps, quality, sink, trigger; each field declared once.

`load(path)` gives a checked `Pipeline` or raises `PipelineInvalid` with file and line. Nothing of
Spark is imported here, so `penstock pipeline list` and a wrong file answer at once.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from penstock.spark.pipeline.document import Document, Where, read_document

DURATION = re.compile(r"^\d+ ?(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?)$")
SINKS = ("topic", "parquet", "delta", "iceberg")


@dataclass(frozen=True)
class Source:
    """Where rows come from."""

    topic: str = ""
    pattern: str = ""
    bootstrap: str = "127.0.0.1:9092"
    start: str = "earliest"  # earliest, latest, group, or a JSON of offsets
    group: str = ""  # commit progress as this consumer group
    max_rows_per_batch: int = 0
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Decode:
    """How a value becomes columns."""

    format: str = "json"
    schema: str = ""  # Spark DDL: "id BIGINT, amount DOUBLE"
    on_error: str = "quarantine"  # fail, null, drop, quarantine


@dataclass(frozen=True)
class Step:
    """One SQL query over `input`, the rows so far; or a join table to name in it."""

    sql: str = ""
    table: str = ""  # register a static table under this name instead
    path: str = ""
    format: str = "parquet"


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
    """One pipeline, checked."""

    name: str
    source: Source
    sink: Sink
    decode: Decode | None = None
    steps: list[Step] = field(default_factory=list)
    quality: list[Rule] = field(default_factory=list)
    quarantine: Quarantine | None = None
    trigger: Trigger = field(default_factory=Trigger)
    checkpoint: str = ""
    watermark: str = ""  # "event_time 10 minutes"
    output: str = "append"  # append, update, complete
    restarts: int = 3  # times a query that Spark itself let fall is started again
    settings: dict[str, str] = field(default_factory=dict)  # Spark's own


def load(path: Path) -> Pipeline:
    """Read, check and complete a pipeline file."""
    document = read_document(path)
    values = {"name": path.stem, **document.values}
    pipeline: Pipeline = _build(Pipeline, values, (), document)
    _check(pipeline, document)
    return pipeline


def _build(kind: Any, values: Any, where: Where, document: Document) -> Any:
    """A dataclass from a table: unknown and missing names, and wrong types, are complaints."""
    if not isinstance(values, dict):
        raise document.complaint(where, "must be a table")
    hints = get_type_hints(kind)
    known = {one.name: one for one in fields(kind)}
    for name in values:
        if name not in known:
            near = ", ".join(known)
            raise document.complaint((*where, name), f"is unknown here; known are {near}")
    for name, one in known.items():
        required = one.default is MISSING and one.default_factory is MISSING
        if required and name not in values:
            raise document.complaint(where, f"{name} is missing")
    made = {
        name: _value(hints[name], value, (*where, name), document) for name, value in values.items()
    }
    return kind(**made)


def _value(hint: Any, value: Any, where: Where, document: Document) -> Any:
    if isinstance(hint, UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        return _build(hint, value, where, document)
    if getattr(hint, "__origin__", None) is list:
        if not isinstance(value, list):
            raise document.complaint(where, "must be a list")
        (inner,) = get_args(hint)
        return [_value(inner, item, (*where, at), document) for at, item in enumerate(value)]
    if getattr(hint, "__origin__", None) is dict:
        if not isinstance(value, dict):
            raise document.complaint(where, "must be a table")
        return {key: _option(item) for key, item in value.items()}
    if hint is float and isinstance(value, int):
        value = float(value)
    if type(value) is not hint:
        raise document.complaint(where, f"{value!r} is not {_ARTICLES[hint]}")
    return value


_ARTICLES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _option(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check(pipeline: Pipeline, document: Document) -> None:
    """What must fit together."""

    def need(good: bool, where: Where, words: str) -> None:
        if not good:
            raise document.complaint(where, words)

    source, sink, decode = pipeline.source, pipeline.sink, pipeline.decode
    need(bool(re.fullmatch(r"[A-Za-z0-9._-]+", pipeline.name)), ("name",), "use letters and digits")
    need(bool(source.topic) != bool(source.pattern), ("source",), "give topic or pattern, one of")
    need(sink.kind in SINKS, ("sink", "kind"), f"{sink.kind!r} is none of {', '.join(SINKS)}")
    need(bool(pipeline.checkpoint), ("checkpoint",), "is missing: where to keep progress")
    if sink.kind == "topic":
        need(bool(sink.topic), ("sink",), "topic is missing")
    else:
        need(bool(sink.path), ("sink",), "path is missing")
    need(sink.mode in ("append", "upsert"), ("sink", "mode"), "is append or upsert")
    if sink.mode == "upsert":
        need(sink.kind in ("delta", "iceberg"), ("sink", "mode"), "upsert needs delta or iceberg")
        need(bool(sink.keys), ("sink", "mode"), "upsert needs keys")
    if decode is not None:
        need(decode.format in ("json", "string"), ("decode", "format"), "is json or string")
        need(decode.format != "json" or bool(decode.schema), ("decode",), "schema is missing")
        words = ("fail", "null", "drop", "quarantine")
        need(decode.on_error in words, ("decode", "on_error"), f"is none of {', '.join(words)}")
        if decode.format == "json" and decode.on_error == "quarantine":
            need(
                pipeline.quarantine is not None,
                ("decode",),
                "on_error=quarantine needs [quarantine]",
            )
    if pipeline.quality:
        need(pipeline.quarantine is not None, ("quality",), "needs [quarantine] for bad rows")
    for at, step in enumerate(pipeline.steps):
        need(bool(step.sql) != bool(step.table), ("steps", at), "give sql or table, one of")
        need(not step.table or bool(step.path), ("steps", at), "path of the table is missing")
    trigger = pipeline.trigger
    need(
        not (trigger.available_now and trigger.every),
        ("trigger",),
        "available_now or every, not both",
    )
    need(not trigger.every or bool(DURATION.match(trigger.every)), ("trigger", "every"),
         "is not a duration such as '5 seconds'")  # fmt: skip
    need(not pipeline.watermark or len(pipeline.watermark.split(None, 1)) == 2, ("watermark",),
         "is a column and a delay: 'event_time 10 minutes'")  # fmt: skip
