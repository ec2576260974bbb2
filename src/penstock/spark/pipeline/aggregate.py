"""Rows into groups: windows, sessions, running totals and the top of each window.

A window or a session becomes two columns, `start` and `end`. Running totals (no window) and open
windows need `output = "update"`: a group comes again whenever it changed, so it belongs into a
compacted topic or an upsert table. With `output = "append"` a window comes once, when the watermark
has passed it; the top of a window is only known then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.spark.pipeline.building import interval
from penstock.spark.pipeline.definition import Aggregate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def aggregated(said: Aggregate, rows: DataFrame) -> DataFrame:
    """One row for each group, or the first of each window."""
    from pyspark.sql import functions as f

    groups: list[Any] = [f.col(name) for name in said.by]
    span = _span(said)
    if span is not None:
        groups.append(span.alias("_span"))
    made = rows.groupBy(*groups).agg(
        *[f.expr(sql).alias(name) for name, sql in said.select.items()]
    )
    if span is None:
        return made
    if said.top:
        return _top(said, made)
    columns = [f.col("_span.start").alias("start"), f.col("_span.end").alias("end")]
    return made.select(*columns, *said.by, *said.select)


def _span(said: Aggregate) -> Any:
    from pyspark.sql import functions as f

    if said.session:
        return f.session_window(f.col(said.time), interval(said.session))
    if said.window:
        width = interval(said.window)
        return f.window(f.col(said.time), width, interval(said.slide) if said.slide else width)
    return None


def _top(said: Aggregate, groups: DataFrame) -> DataFrame:
    """A stream cannot be ranked, but a window's groups can be collected, sorted and cut."""
    from pyspark.sql import functions as f

    others = [name for name in (*said.by, *said.select) if name != said.rank_by]
    row = f.struct(*[f.col(name) for name in (said.rank_by, *others)])
    # Grouping by the window itself, not by its bounds: Spark knows its watermark.
    kept = groups.groupBy("_span").agg(
        f.slice(f.sort_array(f.collect_list(row), asc=False), 1, said.top).alias("_rows")
    )
    ranked = kept.select("_span", f.posexplode("_rows").alias("_at", "_row"))
    return ranked.select(
        f.col("_span.start").alias("start"),
        f.col("_span.end").alias("end"),
        (f.col("_at") + 1).alias("rank"),
        *[f.col(f"_row.{name}").alias(name) for name in (*said.by, *said.select)],
    )
