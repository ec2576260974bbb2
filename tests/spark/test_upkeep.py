"""Upkeep as a pipeline: rows that are too old go, small files are merged, strays are swept."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.errors import OptionError
from penstock.spark.lake.commit import Commit
from penstock.spark.lake.files import FileSet
from penstock.spark.lake.parquet import ParquetLake
from penstock.spark.lake.table import open_table
from penstock.spark.lake.upkeep import upkeep
from penstock.spark.pipeline import dry_run, load, run
from penstock.spark.pipeline.document import PipelineInvalid

NOW = datetime.now(UTC)


def _append(table: Any, batch: int, days_old: int) -> None:
    when = NOW - timedelta(days=days_old)
    rows = pa.RecordBatch.from_pydict(
        {
            "id": [batch * 10 + at for at in range(10)],
            "time": pa.array([when] * 10, pa.timestamp("us", "UTC")),
            "day": pa.array([when.date()] * 10),
        }
    )
    files = FileSet(table.data, (), keep_columns=True, target_bytes=1 << 20)
    files.add(rows)
    table.append(files.finish(), rows.schema, Commit("sink", batch, {}))


def _ids(kind: str, table: Any) -> list[int]:
    opened = table.open()
    rows = opened.to_pyarrow_table() if kind == "delta" else opened.scan().to_arrow()
    return sorted(rows.column("id").to_pylist())


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("column", ["time", "day"])
def test_rows_that_are_too_old_go_and_the_rest_is_merged(
    pipeline: Any, tmp_path: Path, kind: str, column: str
) -> None:
    table: Any = open_table(kind, str(tmp_path / "lake"), "t", ())
    for batch, days in enumerate((100, 50, 20, 1)):
        _append(table, batch, days)
    said = pipeline(f"""
kind = "upkeep"
[[tables]]
path = "DIR/lake"
format = "{kind}"
table = "t"
keep_hours = 0
older_than = "30 days"
time_column = "{column}"
delete_where = "id = 39"
""")
    [plan] = dry_run(said)["tables"]
    assert (plan["files_before"], plan["deleted"]) == (4, 0)
    [done] = run(said).values()
    assert (done.files_before, done.files_after, done.deleted) == (4, 1, 21)
    assert _ids(kind, table) == list(range(20, 39))
    assert table.last_batch("sink") == 3
    _append(table, 4, 0)
    assert len(_ids(kind, table)) == 29


def test_rounds_go_on_until_they_are_stopped(pipeline: Any, tmp_path: Path) -> None:
    import threading

    table = open_table("delta", str(tmp_path / "lake"), "t", ())
    _append(table, 0, 0)
    stop, seen = threading.Event(), []

    def show(figures: Any) -> None:
        seen.append(figures.rows)
        if len(seen) == 3:
            stop.set()

    text = 'kind = "upkeep"\nevery = "10 ms"\n[[tables]]\npath = "DIR/lake"\n'
    run(pipeline(text), show=show, stop=stop)
    assert seen == [1, 1, 1]


def test_a_parquet_directory_shows_committed_rows_only_and_strays_are_swept(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = tmp_path / "lake"
    table = ParquetLake(str(path))
    _append(table, 0, 0)
    stray = FileSet(table.data, (), keep_columns=True, target_bytes=1 << 20)
    stray.add(pa.RecordBatch.from_pydict({"id": [666]}))
    [file] = stray.finish()
    os.utime(table.data / file.path, (time.time() - 7200, time.time() - 7200))
    assert pq.read_table(path).num_rows == 10
    # A crash between the note and the moves: whoever comes next finishes them.
    moved = next(path.glob("*.parquet"))
    moved.rename(table.data / moved.name)
    assert not list(path.glob("*.parquet"))
    assert table.last_batch("sink") == 0
    assert pq.read_table(path).num_rows == 10
    assert len(upkeep("parquet", str(path), keep_hours=1, dry_run=True).removed) == 1
    assert len(upkeep("parquet", str(path), keep_hours=1).removed) == 1
    assert not list(table.data.rglob("*.parquet"))
    with pytest.raises(OptionError, match="cannot be deleted"):
        upkeep("parquet", str(path), delete_where="id = 1")


def test_a_wrong_upkeep_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "u.toml"
    file.write_text('kind = "upkeep"\n[[tables]]\npath = "x"\nolder_than = "1 day"\n')
    with pytest.raises(PipelineInvalid, match=r"u\.toml:2: tables\.0: older_than and time_column"):
        load(file)
