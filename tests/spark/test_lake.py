"""Lake tables without Spark: batches once, files cut and partitioned, upkeep."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.errors import SparkConnectorError
from penstock.spark.lake.files import FileSet
from penstock.spark.lake.table import open_table
from penstock.spark.lake.upkeep import upkeep

KINDS = pytest.mark.parametrize("kind", ["delta", "iceberg"])


def _append(table: Any, batch: int, low: int, high: int) -> None:
    rows = pa.RecordBatch.from_pydict({"id": list(range(low, high)), "day": ["a"] * (high - low)})
    files = FileSet(table.data, (), keep_columns=True, target_bytes=1 << 20)
    files.add(rows)
    table.append(files.finish(), rows.schema, "sink", batch, {})


def _ids(table: Any, kind: str) -> list[int]:
    opened = table.open()
    rows = opened.to_pyarrow_table() if kind == "delta" else opened.scan().to_arrow()
    return sorted(rows.column("id").to_pylist())


@KINDS
def test_a_table_knows_the_last_batch_of_each_sink(tmp_path: Path, kind: str) -> None:
    table = open_table(kind, str(tmp_path / "lake"), "t", ())
    assert table.last_batch("sink") == -1
    _append(table, 0, 0, 10)
    _append(table, 1, 10, 20)
    assert table.last_batch("sink") == 1
    assert table.last_batch("another") == -1
    assert _ids(table, kind) == list(range(20))


@KINDS
def test_upkeep_compacts_and_sweeps_and_loses_nothing(tmp_path: Path, kind: str) -> None:
    lake = str(tmp_path / "lake")
    table = open_table(kind, lake, "t", ())
    for batch in range(5):
        _append(table, batch, batch * 10, batch * 10 + 10)
    orphan = table.data / "part-orphan.parquet"
    orphan.write_bytes(b"nobody's")
    hour_ago = time.time() - 3600
    os.utime(orphan, (hour_ago, hour_ago))
    seen = upkeep(kind, lake, table="t", keep_hours=0, dry_run=True)
    assert any("orphan" in path for path in seen.removed)
    assert orphan.exists()
    done = upkeep(kind, lake, table="t", keep_hours=0)
    assert (done.files_before, done.files_after) == (5, 1)
    assert not orphan.exists()
    assert _ids(table, kind) == list(range(50))
    assert table.last_batch("sink") == 4
    _append(table, 5, 50, 60)
    assert _ids(table, kind) == list(range(60))


def test_upkeep_of_no_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SparkConnectorError, match="there is no Delta table"):
        upkeep("delta", str(tmp_path))


def test_files_are_cut_at_the_target_size_and_by_partition(tmp_path: Path) -> None:
    files = FileSet(tmp_path, ("day",), keep_columns=False, target_bytes=1000)
    for _ in range(4):
        text = os.urandom(6000).hex()
        files.add(pa.RecordBatch.from_pydict({"text": [text, text], "day": ["a", None]}))
    made = files.finish()
    assert sum(file.rows for file in made) == 8
    assert {file.partition for file in made} == {(("day", "a"),), (("day", None),)}
    assert len(made) > 2
