"""The figures as a section of docs/benchmarks.md, with a plot for each part."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

from benchmarks import chart
from benchmarks.spark.bench import THEIRS

DOCS = Path(__file__).resolve().parents[2] / "docs"
BEGIN, END = "<!-- spark: begin -->", "<!-- spark: end -->"
TITLES = {
    "rows": "rows a second",
    "batches": "what a batch of four rows costs, milliseconds",
    "nexmark": "Nexmark, events a second",
}
THEIR_NAME = "Spark's connector"
RATIOS = {"ratio": "ours by theirs", "cpu ratio": "rows per processor second, ours by theirs"}

Figures = dict[str, list[dict[str, Any]]]


def write(found: Figures, command: str, jars: list[str]) -> None:
    """Replace the section; the rest of the page stays."""
    page = DOCS / "benchmarks.md"
    before, begin, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2] if begin else "\n"
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    official = f" Spark's connector: {', '.join(jars)}." if jars else ""
    head = f"`{command}` on {machine}, {time.strftime('%Y-%m-%d')}.{official}\n\n"
    parts = [f"{_table(part, lines)}\n{_plot(part, lines)}\n" for part, lines in found.items()]
    page.write_text(f"{before}{BEGIN}\n{head}{''.join(parts)}{END}{after}")


def _table(part: str, lines: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for line in lines for name in _measured(line)))
    titles = [THEIR_NAME if name == THEIRS else name for name in names]
    ratios = [name for name in ("ratio", "cpu ratio") if any(name in line for line in lines)]
    heads = [TITLES[part], *titles, *(RATIOS[name] for name in ratios)]
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for line in lines:
        cells = [f"{line[name]:,.0f}" if name in line else "" for name in names]
        cells += [str(line.get(name, "")) for name in ratios]
        rows.append(f"| {line['what']} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _plot(part: str, lines: list[dict[str, Any]]) -> str:
    bars = []
    for line in lines:
        for name in _measured(line):
            shown = THEIR_NAME if name == THEIRS else name
            bars.append((f"{shown}: {line['what']}", float(line[name]), f"{line[name]:,.0f}"))
    path = DOCS / "benchmarks" / f"spark-{part}.svg"
    chart.bars(path, TITLES[part], bars, lower_is_better=part == "batches")
    return f"![{TITLES[part]}](benchmarks/{path.name})\n"


def _measured(line: dict[str, Any]) -> list[str]:
    skipped = ("what", "ratio")
    return [name for name in line if name not in skipped and " cpu" not in f" {name}"]
