"""Rows a second, read and written, in batches and in streams; 100-byte values, 8-byte keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from benchmarks.spark.bench import OURS, Bench, Done

VALUE_BYTES = 100
LINES = 5
EVERYTHING = (
    "count(*) n", "sum(length(value))", "sum(length(key))", "max(offset)", "max(timestamp)",
    "max(topic)", "max(partition)", "max(timestampType)",
)  # fmt: skip


def measure(bench: Bench) -> Iterator[dict[str, Any]]:
    topic = bench.topic("rows")
    value = b"x" * VALUE_BYTES
    bench.fill(topic, ((b"%08d" % at, value) for at in range(bench.rows)))
    kinds = bench.formats
    reads = {kind: partial(_read, bench, kind, topic) for kind in kinds}
    values = {kind: partial(_read_value, bench, kind, topic) for kind in kinds}
    streams = {kind: partial(_stream, bench, kind, topic) for kind in kinds}
    writes = {kind: partial(_write, bench, kind, bench.topic("out")) for kind in kinds}
    sinks: dict[str, Callable[[], Done]] = {
        kind: partial(_sink, bench, kind, topic, bench.topic("sink")) for kind in kinds
    }
    once, least = "penstock, exactly once", "penstock, at least once"
    sinks[once] = sinks.pop(OURS)
    sinks[least] = partial(_sink, bench, OURS, topic, bench.topic("sink"), delivery="at-least-once")
    yield bench.compare("batch read, value only", values)
    yield bench.compare("batch read, all columns", reads)
    yield bench.compare("stream to noop, all columns", streams)
    yield bench.compare("batch write", writes)
    yield bench.compare("stream, topic to topic", sinks)


def _read(bench: Bench, kind: str, topic: str) -> Done:
    """All columns, each looked at, so that neither source can leave one out."""
    (row,) = bench.reader(kind, topic).selectExpr(*EVERYTHING).collect()
    return Done(int(row["n"]))


def _read_value(bench: Bench, kind: str, topic: str) -> Done:
    """Only the value, where our source can leave the other columns out."""
    options = {"columns": "value"} if kind == OURS else {}
    frame = bench.reader(kind, topic, **options)
    (row,) = frame.selectExpr("count(*) n", "sum(length(value))").collect()
    return Done(int(row["n"]))


def _stream(bench: Bench, kind: str, topic: str) -> Done:
    limit = str(max(1, bench.rows // 5))
    frame = bench.reader(kind, topic, stream=True, maxOffsetsPerTrigger=limit)
    return bench.stream(frame, "noop")


def _write(bench: Bench, kind: str, topic: str) -> Done:
    """Rows made by Spark, sent to a topic of four partitions, at least once on both sides."""
    rows = max(1, bench.rows // 3)
    frame = bench.spark.range(0, rows, 1, 2).selectExpr(
        "cast(id as string) key", f"repeat('x', {VALUE_BYTES}) value"
    )
    options = {"topic": topic, "kafka.bootstrap.servers": bench.bootstrap}
    frame.write.format(kind).options(**options).mode("append").save()
    return Done(rows)


def _sink(bench: Bench, kind: str, source: str, target: str, **options: str) -> Done:
    limit = str(max(1, bench.rows // 5))
    frame = bench.reader(kind, source, stream=True, maxOffsetsPerTrigger=limit)
    return bench.stream(frame.select("key", "value"), kind, topic=target, **options)
