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
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import chart, peers
from benchmarks.library_contenders import ELSEWHERE, MANY, MEANS, SLOW

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
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

Rounds = dict[str, list[dict[str, float]]]


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


def run(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=600, cwd=ROOT
    )
    if done.returncode:
        raise RuntimeError(f"{arguments}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def one_round(figures: Rounds, count: int, only: str) -> None:
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


def best(figures: Rounds, name: str, key: str) -> float | None:
    """The median over the rounds."""
    rows = figures.get(name)
    return statistics.median(row[key] for row in rows) if rows else None


def verdicts(figures: Rounds, fixture: list[Fixture]) -> list[tuple[str, float, float, bool]]:
    rows: list[tuple[str, float, float, bool]] = []
    for what, bar in BARS.items():
        if what.startswith("fixture"):
            if fixture:
                median = statistics.median(each.ready for each in fixture)
                rows.append((what, median, bar, median <= bar))
            continue
        figure = best(figures, what.partition(":")[0], "publish")
        if figure is not None:
            rows.append((what, figure, bar, figure >= bar))
    return rows


def report(figures: Rounds, fixture: list[Fixture]) -> str:
    lines = ["| bar of the design | measured | bar | |", "|---|---|---|---|"]
    for what, figure, bar, met in verdicts(figures, fixture):
        verdict = "met" if met else "**missed**"
        lines.append(f"| {what} | {figure:,.0f} | {bar:,} | {verdict} |")
    lines += [
        "",
        "| messages a second, 100 B | published, and then | publish | cpu us | consume | cpu us |",
        "|---|---|---|---|---|---|",
    ]
    for name in figures:
        cells = [
            f"{best(figures, name, key) or 0.0:,.{digits}f}"
            for key, digits in (
                ("publish", 0),
                ("publish_us", 1),
                ("consume", 0),
                ("consume_us", 1),
            )
        ]
        lines.append(f"| {name} | {MEANS[name]} | {' | '.join(cells)} |")
    if fixture:
        ready = [each.ready for each in fixture]
        cpu = statistics.median(each.cpu for each in fixture)
        lines += [
            "",
            f"A fixture was ready after {statistics.median(ready):.0f} ms (median of {len(ready)}, "
            f"from {min(ready):.0f} to {max(ready):.0f} ms), {cpu:.0f} ms of which were work.",
        ]
    return "\n".join(lines) + "\n"


def write_docs(figures: Rounds, table: str, command: str) -> None:
    """Figures between the markers of docs/benchmarks.md, and the plots beside it."""
    plots = ""
    for key, title in (("publish", "Publish, messages/s"), ("consume", "Consume, messages/s")):
        rows = [(name, best(figures, name, key) or 0.0) for name in figures]
        rows.sort(key=lambda row: -row[1])
        plots += f"\n![{title}](benchmarks/library-{key}.svg)\n"
        chart.bars(
            DOCS / "benchmarks" / f"library-{key}.svg",
            title,
            [(name, value, f"{value:,.0f}") for name, value in rows],
        )
    page = DOCS / "benchmarks.md"
    before, found, rest = page.read_text().partition("<!-- library: begin -->")
    assert found, "docs/benchmarks.md has no place for the library"
    _, _, after = rest.partition("<!-- library: end -->")
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    page.write_text(
        f"{before}<!-- library: begin -->\n`{command}` on {machine}, {time.strftime('%Y-%m-%d')}:"
        f"\n\n{table}{plots}<!-- library: end -->{after}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.library", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="contenders whose name contains this")
    parser.add_argument("--write", action="store_true", help="update docs/benchmarks.md")
    given = parser.parse_args()
    rounds = 1 if given.quick else given.rounds
    count = 20_000 if given.quick else 200_000
    figures: Rounds = {}
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}: messages a second, 100 B")
        one_round(figures, count, given.only)
    fixture = [] if given.only else fixtures(5 if given.quick else 20)
    table = report(figures, fixture)
    sys.stdout.write(table)
    if given.write:
        write_docs(figures, table, "python -m benchmarks.library")
    return 0 if all(met for *_, met in verdicts(figures, fixture)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
