"""This data source beside Spark's own Kafka connector: same broker, same topic, same run.

    python -m benchmarks.spark [--rows N] [--rounds N] [--events N] [--only rows,batches,nexmark]
                               [--minutes N] [--write]

The official connector comes from Maven (benchmarks/spark/connector.py); without it only this source
is measured. The two take turns within a round, in changing order; a ratio is the median over the
rounds of ours by theirs in the same round. A slow machine does fewer rounds, so that all of it
takes about `--minutes`. `--write` puts figures and plots into the docs, after each part anew.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.peers import Unavailable, penstock
from benchmarks.spark import batches, nexmark, report, rows
from benchmarks.spark.bench import Bench
from benchmarks.spark.connector import official_jars


class Part(NamedTuple):
    """Some lines of figures; `share` is how much of the time they get."""

    measure: Callable[[Bench], Iterator[dict[str, Any]]]
    lines: int
    share: float


PARTS = {
    "rows": Part(rows.measure, rows.LINES, 7),
    "batches": Part(batches.measure, batches.LINES, 2),
    "nexmark": Part(nexmark.measure, nexmark.LINES, 7),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--minutes", type=float, default=17)
    parser.add_argument("--write", action="store_true")
    said = parser.parse_args()
    jars: list[Path] = []
    try:
        jars = official_jars()
    except Unavailable as reason:
        sys.stderr.write(f"without Spark's own connector: {reason}\n")
    found: dict[str, list[dict[str, Any]]] = {}
    with penstock("--amqp", "off") as broker, tempfile.TemporaryDirectory() as directory:
        bench = Bench(broker.bootstrap, Path(directory), jars, said.rows, said.rounds, said.events)
        bench.say(f"Spark {bench.spark.version} is up")
        names = said.only.split(",")
        shares = sum(PARTS[name].share for name in names)
        for name in names:
            part = PARTS[name]
            bench.allow(60 * said.minutes * part.share / shares, part.lines)
            found[name] = []
            for line in part.measure(bench):
                found[name].append(line)
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()
            if said.write:
                command = " ".join(["python -m benchmarks.spark", *sys.argv[1:]])
                report.write(found, command, [jar.stem for jar in jars if "sql-kafka" in jar.name])
        bench.spark.stop()


if __name__ == "__main__":
    main()
