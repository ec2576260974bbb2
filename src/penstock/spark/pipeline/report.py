"""The traffic report as files: CSV tables, PNG plots, and a page that shows them all."""

from __future__ import annotations

import base64
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline.building import seconds_of

if TYPE_CHECKING:
    import pandas as pd

    from penstock.spark.pipeline.traffic import Tables, Traffic

# Told apart by people who do not see all colours; more than eight lines nobody tells apart.
COLOURS = (
    "#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#e87ba4", "#008300", "#4a3aa7", "#e34948",
)  # fmt: skip
INK, FAINT, GRID, PAPER = "#0b0b0b", "#52514e", "#e6e5e0", "#ffffff"
OTHERS = "others"
ROWS_SHOWN = 60
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #0b0b0b; max-width: 960px; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
p { color: #52514e } img { max-width: 100% }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .75rem .25rem 0; text-align: left; border-bottom: 1px solid #e6e5e0 }
td.number, th.number { text-align: right }
"""


def write_report(directory: Path, said: Traffic, found: Tables) -> list[Path]:
    """Everything into one directory; the page last."""
    directory.mkdir(parents=True, exist_ok=True)
    seconds = seconds_of(said.bucket)
    volume = found.throughput
    pace = volume.assign(value=volume["records"] / seconds)
    size = volume.assign(value=volume["bytes"] / seconds / 1024)
    mean = volume.assign(value=volume["bytes"] / volume["records"])
    late = found.latency.assign(
        series=found.latency["group"] + " / " + found.latency["topic"],
        value=found.latency["p99_ms"],
    )
    lag = found.lag.assign(
        series=found.lag["group"] + " / " + found.lag["topic"], value=found.lag["lag"]
    )
    dead = found.dead_letters.assign(
        series=found.dead_letters["reason"], value=found.dead_letters["records"]
    )
    plots = [
        ("throughput", "Records a second, by topic", pace.rename(columns={"topic": "series"})),
        ("bytes", "KiB a second, by topic", size.rename(columns={"topic": "series"})),
        ("size", "Mean size of a record in bytes", mean.rename(columns={"topic": "series"})),
        ("latency", "From record to commit, 99th percentile in ms, by group", late),
        ("lag", "Records behind, by group", lag),
        ("dead-letters", f"Dead letters in {said.bucket}, by reason", dead),
    ]
    files, shown = [], []
    for name, title, table in plots:
        path = directory / f"{name}.png"
        # Where nothing was sent there are zero records, but no size and no latency.
        draw(path, title, table, seconds if name in ("throughput", "bytes", "dead-letters") else 0)
        files.append(path)
        shown.append((title, path))
    for name in found._fields:
        path = directory / f"{name.replace('_', '-')}.csv"
        getattr(found, name).to_csv(path, index=False)
        files.append(path)
    page = directory / "index.html"
    page.write_text(_page(said, found, shown), encoding="utf-8")
    return [*files, page]


def draw(path: Path, title: str, table: pd.DataFrame, zero_every_s: float = 0) -> None:
    """Lines over time: `time`, `series`, `value`; the largest eight, the rest together."""
    try:
        import matplotlib
    except ImportError:
        raise SparkConnectorError("plots need matplotlib: pip install 'penstock[spark]'") from None
    matplotlib.use("Agg")
    from matplotlib import dates
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.4), dpi=120, facecolor=PAPER, layout="constrained")
    axes: Any = figure.subplots()
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.tick_params(colors=FAINT, labelsize=8, length=0)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(GRID)
    if table.empty:
        axes.text(0.5, 0.5, "nothing to show", transform=axes.transAxes, ha="center", color=FAINT)
        axes.set_xticks([])
        axes.set_yticks([])
    else:
        wide = _widest(table, zero_every_s)
        few = "o" if len(wide.index) < 40 else None
        for at, name in enumerate(wide.columns):
            colour = FAINT if name == OTHERS else COLOURS[at % len(COLOURS)]
            line = wide[name].dropna()
            axes.plot(line.index, line, color=colour, linewidth=2, marker=few, markersize=3.5,
                      label=name)  # fmt: skip
        axes.set_ylim(bottom=0)
        place = dates.AutoDateLocator()
        axes.xaxis.set_major_locator(place)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(place))
        axes.xaxis.get_offset_text().set(fontsize=8, color=FAINT)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8,
                    labelcolor=INK)  # fmt: skip
    figure.savefig(path)


def _widest(table: pd.DataFrame, zero_every_s: float) -> pd.DataFrame:
    """A column for each series, the busiest first; what is beyond the colours is summed."""
    import pandas as pd

    wide = table.pivot_table(index="time", columns="series", values="value", aggfunc="sum")
    if zero_every_s:
        step = pd.Timedelta(seconds=zero_every_s)
        times = pd.date_range(wide.index.min(), wide.index.max(), freq=step, name="time")
        wide = wide.reindex(times if len(times) < 20_000 else wide.index).fillna(0)
    wide = wide[wide.sum().sort_values(ascending=False).index]
    if wide.shape[1] > len(COLOURS):
        rest = wide.iloc[:, len(COLOURS) - 1 :].sum(axis=1)
        wide = wide.iloc[:, : len(COLOURS) - 1].assign(**{OTHERS: rest})
    return wide


def _page(said: Traffic, found: Tables, plots: list[tuple[str, Path]]) -> str:
    volume = found.throughput
    span = "no records"
    if not volume.empty:
        span = f"{volume['time'].min()} to {volume['time'].max()} UTC, by {said.bucket}"
    pictures = "".join(
        f'<h2>{escape(title)}</h2><img alt="{escape(title)}" src="data:image/png;base64,'
        f'{base64.b64encode(path.read_bytes()).decode()}">'
        for title, path in plots
    )
    totals = volume.groupby("topic", as_index=False).agg(
        records=("records", "sum"), bytes=("bytes", "sum"), largest=("largest", "max")
    )
    sections = [("All topics", totals)] + [
        (name.replace("_", " ").capitalize(), getattr(found, name)) for name in found._fields
    ]
    tables = "".join(f"<h2>{escape(t)}</h2>{_table(rows)}" for t, rows in sections)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(said.name)}</title>'
        f"<style>{STYLE}</style><h1>Traffic of {escape(said.bootstrap)}</h1><p>{escape(span)}</p>"
        f"{pictures}{tables}</html>\n"
    )


def _table(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "<p>none</p>"
    numbers = {name for name in rows.columns if rows[name].dtype.kind in "iuf"}
    head = "".join(f"<th{_right(name, numbers)}>{escape(str(name))}</th>" for name in rows.columns)
    body = "".join(
        "<tr>" + "".join(f"<td{_right(n, numbers)}>{_cell(row[n])}</td>" for n in rows.columns)
        + "</tr>"
        for _, row in rows.tail(ROWS_SHOWN).iterrows()
    )  # fmt: skip
    note = f"<p>the last {ROWS_SHOWN} of {len(rows):,}</p>" if len(rows) > ROWS_SHOWN else ""
    return f"{note}<table><tr>{head}</tr>{body}</table>"


def _right(name: Any, numbers: set[Any]) -> str:
    return ' class="number"' if name in numbers else ""


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}"
    return f"{value:,}" if hasattr(value, "bit_length") else escape(str(value))
