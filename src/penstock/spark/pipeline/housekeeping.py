"""Lake upkeep as a pipeline: compaction, expiry, orphans and retention of tables, in rounds."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.spark.pipeline.building import DURATION, NOT_A_DURATION, Need, seconds_of
from penstock.spark.pipeline.figures import Figures
from penstock.spark.pipeline.state import Running

if TYPE_CHECKING:
    from penstock.spark.lake.upkeep import Upkeep

FORMATS = ("delta", "iceberg", "parquet")


@dataclass(frozen=True)
class Kept:
    """One table and how it is kept."""

    path: str
    format: str = "delta"
    table: str = ""  # of an Iceberg warehouse
    keep_hours: int = 168  # old versions and stray files stay so long
    target_file_bytes: int = 128 << 20
    delete_where: str = ""  # retention: rows that go, `day < '2026-01-01'`
    older_than: str = ""  # retention by age: `30 days`,
    time_column: str = ""  # of this column, a timestamp or a date


@dataclass(frozen=True)
class Housekeeping:
    """Some tables, once or every so often."""

    name: str
    tables: list[Kept]
    every: str = ""
    settings: dict[str, str] = field(default_factory=dict)


def check(said: Housekeeping, need: Need) -> None:
    """What must fit together."""
    need(bool(said.tables), ("tables",), "is empty")
    need(not said.every or bool(DURATION.match(said.every)), ("every",), NOT_A_DURATION)
    for at, table in enumerate(said.tables):
        where = ("tables", at)
        need(table.format in FORMATS, (*where, "format"), f"is none of {', '.join(FORMATS)}")
        need(table.keep_hours >= 0, (*where, "keep_hours"), "cannot be negative")
        old = not table.older_than or bool(DURATION.match(table.older_than))
        need(old, (*where, "older_than"), NOT_A_DURATION)
        age = not table.older_than or not old or seconds_of(table.older_than) > 0
        need(age, (*where, "older_than"), "would be every row")
        need(table.target_file_bytes > 0, (*where, "target_file_bytes"), "is at least 1")
        both = bool(table.older_than) == bool(table.time_column)
        need(both, where, "older_than and time_column go together")
        plain = table.format == "parquet" and bool(table.older_than or table.delete_where)
        need(not plain, where, "rows of plain Parquet files cannot be deleted")


def run(
    said: Housekeeping,
    *,
    show: Any = lambda figures: None,
    stop: Any = None,
    metrics: Any = None,
    **spark: Any,
) -> dict[str, Upkeep]:
    """One round, or rounds until stopped; the last result of each table. Needs no Spark."""
    done: dict[str, Upkeep] = {}
    with Running(said.name, show, stop, metrics) as running:
        running.begun()
        number = 0
        while True:
            for table in said.tables:
                begun = time.monotonic()
                found = keep(table)
                done[_name(table)] = found
                took = time.monotonic() - begun
                running.add(Figures(number, found.files_before, 0.0, took))
                number += 1
            if not said.every or running.stop.wait(seconds_of(said.every)):
                return done


def keep(table: Kept, *, dry_run: bool = False) -> Upkeep:
    """One table, once."""
    from penstock.spark.lake.upkeep import upkeep

    return upkeep(
        table.format,
        table.path,
        table=table.table,
        keep_hours=table.keep_hours,
        target_bytes=table.target_file_bytes,
        delete_where=table.delete_where,
        older_than_s=seconds_of(table.older_than) if table.older_than else None,
        time_column=table.time_column,
        dry_run=dry_run,
    )


def dry_run(said: Housekeeping, spark: Any = None) -> dict[str, Any]:
    """What would be done to each table."""
    return {
        "tables": [
            {**asdict(table), **keep(table, dry_run=True)._asdict()} for table in said.tables
        ]
    }


def _name(table: Kept) -> str:
    return f"{table.path}#{table.table}" if table.table else table.path
