"""The library beside queues of Python and clients of Kafka, in one run.

    python -m benchmarks.library [--quick] [--rounds N] [--only TEXT] [--write]

Each contender (`library_contenders`) has a process of its own, and they take turns within a round,
so that a noisy machine is noisy for all. Those who need a broker elsewhere get a fresh `penstock
serve`. The fixture is measured as a test sees it: from asking for `penstock.testing.broker()` to a
broker that answers. `--write` puts figures and plots into docs/benchmarks.md and docs/benchmarks/.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import page, peers
from benchmarks.library_contenders import ELSEWHERE, MANY, MEANS, SLOW
from benchmarks.page import Figures, Verdict, median, say

ROOT = Path(__file__).parent.parent
BARS = {
    "penstock.open, send: messages a second": 50_000,
    "penstock.open, publish_many: messages a second": 500_000,
    "fixture, milliseconds": 100,
}
FIXTURE = """
import json, time
from penstock.testing import broker
times = []
for _ in range({count}):
    began, worked = time.perf_counter(), time.process_time()
    with broker():
        times.append((time.perf_counter() - began, time.process_time() - worked))
print(json.dumps(times))
"""


def run(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=600, cwd=ROOT
    )
    if done.returncode:
        raise RuntimeError(f"{arguments}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def one_round(figures: Figures, count: int, only: str) -> None:
    for name in MEANS:
        if only not in name:
            continue
        messages = count * (10 if name in MANY else 1) // SLOW.get(name, 1)
        command = ["-m", "benchmarks.library_contenders", name, "--count", str(messages)]
        if MEANS[name] == ELSEWHERE:
            with peers.penstock("--amqp", "off") as running:
                result = run(*command, "--bootstrap", running.bootstrap)
        else:
            result = run(*command)
        figures.setdefault(name, []).append(result)
        say(f"  {name}: publish {result['publish']:,.0f}  consume {result['consume']:,.0f}")


class Fixture(NamedTuple):
    """How long one took to be ready, and the processor time of that, in milliseconds."""

    ready: float
    cpu: float


def fixtures(count: int) -> list[Fixture]:
    """Some fixtures in one process; the first is left out, for it pays for the imports."""
    times = run("-c", FIXTURE.format(count=count + 1))
    return [Fixture(ready * 1000, cpu * 1000) for ready, cpu in times[1:]]


def verdicts(figures: Figures, fixture: list[Fixture]) -> list[Verdict]:
    rows: list[Verdict] = []
    for what, bar in BARS.items():
        if what.startswith("fixture"):
            if fixture:
                ready = statistics.median(each.ready for each in fixture)
                rows.append(Verdict(what, ready, bar, ready <= bar))
            continue
        figure = median(figures, what.partition(":")[0], "publish")
        if figure is not None:
            rows.append(Verdict(what, figure, bar, figure >= bar))
    return rows


def report(figures: Figures, fixture: list[Fixture]) -> str:
    digits = {"publish": 0, "publish_us": 1, "consume": 0, "consume_us": 1}
    heads = ("messages a second, 100 B", "published, and then", "publish", "cpu us", "consume")
    rows = [
        [name, MEANS[name]]
        + [f"{median(figures, name, key) or 0.0:,.{few}f}" for key, few in digits.items()]
        for name in figures
    ]
    parts = [page.verdict_table(verdicts(figures, fixture)), page.table((*heads, "cpu us"), rows)]
    if fixture:
        ready = [each.ready for each in fixture]
        cpu = statistics.median(each.cpu for each in fixture)
        parts.append(
            f"A fixture was ready after {statistics.median(ready):.0f} ms (median of {len(ready)}, "
            f"from {min(ready):.0f} to {max(ready):.0f} ms), {cpu:.0f} ms of which were work.\n"
        )
    return "\n".join(parts)


def write_docs(figures: Figures, tables: str) -> None:
    """Figures between the markers of docs/benchmarks.md, and the plots beside it."""
    plots = ""
    for key, title in (("publish", "Publish, messages/s"), ("consume", "Consume, messages/s")):
        values = {name: median(figures, name, key) or 0.0 for name in figures}
        best_first = dict(sorted(values.items(), key=lambda row: -row[1]))
        plots += page.plot(f"library-{key}", title, best_first)
    page.write_section("library", "python -m benchmarks.library", tables + plots)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.library", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="contenders whose name contains this")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    given = parser.parse_args()
    rounds = 1 if given.quick else given.rounds
    count = 20_000 if given.quick else 200_000
    figures: Figures = {}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}: messages a second, 100 B")
        one_round(figures, count, given.only)
    fixture = [] if given.only else fixtures(5 if given.quick else 20)
    tables = report(figures, fixture)
    sys.stdout.write(tables)
    if given.write:
        write_docs(figures, tables)
    return 0 if all(each.met for each in verdicts(figures, fixture)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
