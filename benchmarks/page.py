"""docs/benchmarks.md: figures of several rounds become tables, plots and a section of that page."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import chart

DOCS = Path(__file__).parent.parent / "docs"

Figures = dict[str, list[dict[str, Any]]]  # of each contender, a row for each round


class Verdict(NamedTuple):
    """A bar of the design, and what was measured."""

    what: str
    figure: float
    bar: float
    met: bool


def say(text: str) -> None:
    """Progress, for whoever waits."""
    sys.stderr.write(text + "\n")


def median(figures: Figures, name: str, key: str) -> float | None:
    """Over the rounds; None for a contender that was left out."""
    rows = figures.get(name)
    return statistics.median(row[key] for row in rows) if rows else None


def ratio(figures: Figures, key: str, ours: str, theirs: str) -> float | None:
    """The median over rounds of ours by theirs in the same round."""
    pairs = list(zip(figures.get(ours, []), figures.get(theirs, []), strict=False))
    return statistics.median(a[key] / b[key] for a, b in pairs) if pairs else None


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown, with the line that ends it."""
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def verdict_table(verdicts: Iterable[Verdict]) -> str:
    heads = ("bar of the design", "measured", "bar", "")
    return table(
        heads,
        [
            (each.what, number(each.figure), f"{each.bar:,g}", "met" if each.met else "**missed**")
            for each in verdicts
        ],
    )


def median_table(title: str, figures: Figures, columns: Sequence[str]) -> str:
    """Of each contender the median of every column."""
    cells = {
        name: [number(median(figures, name, column) or 0.0) for column in columns]
        for name in figures
    }
    return table((title, *columns), [(name, *row) for name, row in cells.items()])


def plot(name: str, title: str, values: Mapping[str, float], *, lower: bool = False) -> str:
    """Draw bars into docs/benchmarks; returns the line that shows them on the page."""
    bars = [(label, value, number(value)) for label, value in values.items()]
    chart.bars(DOCS / "benchmarks" / f"{name}.svg", title, bars, lower_is_better=lower)
    return f"\n![{title}](benchmarks/{name}.svg)\n"


def write_section(marker: str, command: str, text: str, more: str = "") -> None:
    """Put the text between two markers of the page, under how, where and when it was measured."""
    path = DOCS / "benchmarks.md"
    before, begin, rest = path.read_text().partition(f"<!-- {marker}: begin -->")
    _, end, after = rest.partition(f"<!-- {marker}: end -->")
    if not end:
        raise ValueError(f"{path} has no place for {marker}")
    python, today = platform.python_version(), time.strftime("%Y-%m-%d")
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {python}, {today}"
    path.write_text(f"{before}{begin}\n`{command}` on {machine}.{more}\n\n{text}{end}{after}")
