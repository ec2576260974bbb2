"""What a micro-batch costs when there is next to nothing in it: milliseconds, plan to commit."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.spark.bench import OURS, THEIRS, Bench

BATCHES, ROWS_PER_BATCH, WARM = 24, 4, 4


def measure(bench: Bench) -> Iterator[dict[str, Any]]:
    topic = bench.topic("small", 1)
    bench.fill(topic, ((None, b"%06d" % at) for at in range(BATCHES * ROWS_PER_BATCH)))
    for what, has_sink in (("to noop", False), ("to a topic", True)):
        line: dict[str, Any] = {"what": f"milliseconds a batch, {what}"}
        for kind in bench.formats:
            line[kind] = _median_ms(bench, kind, topic, has_sink)
        if THEIRS in bench.formats:
            line["ratio"] = round(line[OURS] / line[THEIRS], 2)
        yield line


def _median_ms(bench: Bench, kind: str, topic: str, has_sink: bool) -> int:
    limit = str(ROWS_PER_BATCH)
    frame = bench.reader(kind, topic, stream=True, maxOffsetsPerTrigger=limit).select("value")
    options = {"topic": bench.topic("small-out", 1)} if has_sink else {}
    query = bench.run(frame, kind if has_sink else "noop", **options)
    times = [p["durationMs"]["triggerExecution"] for p in query.recentProgress if p["numInputRows"]]
    return round(statistics.median(times[WARM:]))
