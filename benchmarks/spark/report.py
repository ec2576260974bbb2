"""The figures as a section of docs/benchmarks.md, with a plot for each part."""

from __future__ import annotations

from typing import Any

from benchmarks import page
from benchmarks.page import Figures
from benchmarks.spark.bench import THEIRS

TITLES = {
    "rows": "rows a second",
    "batches": "what a batch of four rows costs, milliseconds",
    "nexmark": "Nexmark, events a second",
}
THEIR_NAME = "Spark's connector"
RATIOS = {"ratio": "ours by theirs", "cpu ratio": "rows per processor second, ours by theirs"}


def write(found: Figures, command: str, jars: list[str]) -> None:
    """Replace the section; the rest of the page stays."""
    official = f" Spark's connector: {', '.join(jars)}." if jars else ""
    parts = [f"{_table(part, lines)}{_plot(part, lines)}" for part, lines in found.items()]
    page.write_section("spark", command, "\n".join(parts), official)


def _table(part: str, lines: list[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for line in lines for name in _measured(line)))
    ratios = [name for name in RATIOS if any(name in line for line in lines)]
    heads = [TITLES[part], *map(_title, names), *(RATIOS[name] for name in ratios)]
    rows = []
    for line in lines:
        cells = [f"{line[name]:,.0f}" if name in line else "" for name in names]
        rows.append([line["what"], *cells, *(str(line.get(name, "")) for name in ratios)])
    return page.table(heads, rows)


def _plot(part: str, lines: list[dict[str, Any]]) -> str:
    values = {
        f"{_title(name)}: {line['what']}": float(line[name])
        for line in lines
        for name in _measured(line)
    }
    return page.plot(f"spark-{part}", TITLES[part], values, lower=part == "batches")


def _title(name: str) -> str:
    return THEIR_NAME if name == THEIRS else name


def _measured(line: dict[str, Any]) -> list[str]:
    skipped = ("what", "ratio")
    return [name for name in line if name not in skipped and " cpu" not in f" {name}"]
