"""This data source beside Spark's own Kafka connector: same broker, same topic, same run.

    python -m benchmarks.spark [--rows N] [--rounds N] [--events N] [--only rows,batches,nexmark]
                               [--write]

The official connector comes from Maven (benchmarks/spark/connector.py); without it only this source
is measured. The two take turns within a round, in changing order; a ratio is the median over the
rounds of ours by theirs in the same round. `--write` puts figures and plots into the docs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.peers import Unavailable, penstock
from benchmarks.spark import batches, nexmark, report, rows
from benchmarks.spark.bench import Bench
from benchmarks.spark.connector import official_jars

PARTS: dict[str, Callable[[Bench], Iterator[dict[str, Any]]]] = {
    "rows": rows.measure,
    "batches": batches.measure,
    "nexmark": nexmark.measure,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--only", default=",".join(PARTS))
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
        for part in said.only.split(","):
            found[part] = []
            for line in PARTS[part](bench):
                found[part].append(line)
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()
        bench.spark.stop()
    if said.write:
        command = " ".join(["python -m benchmarks.spark", *sys.argv[1:]])
        report.write(found, command, [jar.stem for jar in jars])


if __name__ == "__main__":
    main()
