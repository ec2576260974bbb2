"""What a micro-batch costs when there is next to nothing in it: milliseconds, plan to commit."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.spark.bench import OURS, THEIRS, Bench

BATCHES, ROWS_PER_BATCH, WARM, PASSES = 20, 4, 4, 3
LINES = 2


def measure(bench: Bench) -> Iterator[dict[str, Any]]:
    topic = bench.topic("small", 1)
    bench.fill(topic, ((None, b"%06d" % at) for at in range(BATCHES * ROWS_PER_BATCH)))
    for what, has_sink in (("to noop", False), ("to a topic", True)):
        times: dict[str, list[int]] = {kind: [] for kind in bench.formats}
        for turn in range(PASSES):
            for kind in bench.formats if turn % 2 else reversed(bench.formats):
                found = _times_ms(bench, kind, topic, has_sink)
                bench.say(f"batches {what}, {kind}, pass {turn}: {statistics.median(found):.0f} ms")
                if turn:  # the first pass warms up
                    times[kind] += found
        line: dict[str, Any] = {"what": f"milliseconds a batch, {what}"}
        line |= {kind: round(statistics.median(found)) for kind, found in times.items()}
        if THEIRS in bench.formats:
            line["ratio"] = round(line[OURS] / line[THEIRS], 2)
        yield line


def _times_ms(bench: Bench, kind: str, topic: str, has_sink: bool) -> list[int]:
    limit = str(ROWS_PER_BATCH)
    frame = bench.reader(kind, topic, stream=True, maxOffsetsPerTrigger=limit).select("value")
    options = {"topic": bench.topic("small-out", 1)} if has_sink else {}
    progress = bench.run(frame, kind if has_sink else "noop", **options)
    spent = [p["durationMs"]["triggerExecution"] for p in progress if p["numInputRows"]]
    return spent[WARM:]
