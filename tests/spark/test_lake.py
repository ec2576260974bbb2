"""Lake tables without Spark: batches once, files cut and partitioned, upkeep."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.errors import SparkConnectorError
from penstock.spark.lake.commit import Commit
from penstock.spark.lake.files import FileSet
from penstock.spark.lake.merging import newest_by_key
from penstock.spark.lake.table import open_table
from penstock.spark.lake.upkeep import upkeep

KINDS = pytest.mark.parametrize("kind", ["delta", "iceberg"])


def _append(table: Any, batch: int, low: int, high: int) -> None:
    rows = pa.RecordBatch.from_pydict({"id": list(range(low, high)), "day": ["a"] * (high - low)})
    files = FileSet(table.data, (), keep_columns=True, target_bytes=1 << 20)
    files.add(rows)
    table.append(files.finish(), rows.schema, Commit("sink", batch, {}))


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


def _merge(table: Any, batch: int, order: str | None = None, **columns: Any) -> None:
    rows = newest_by_key(pa.table(columns), ["id"], order)
    table.upsert(rows, ["id"], order, Commit("sink", batch, {}))


def _rows(table: Any, kind: str) -> list[dict[str, Any]]:
    opened = table.open()
    rows = opened.to_pyarrow_table() if kind == "delta" else opened.scan().to_arrow()
    found: list[dict[str, Any]] = rows.sort_by("id").to_pylist()
    return found


@KINDS
def test_columns_may_come_and_go_between_merges(tmp_path: Path, kind: str) -> None:
    table = open_table(kind, str(tmp_path / "lake"), "t", ())
    _merge(table, 0, id=[1, 2], text=["a", "b"])
    _merge(table, 1, id=[2, 3], text=["B", "c"], more=[[7], [8]])
    _merge(table, 2, id=[3, 4], more=[[9], None])
    assert _rows(table, kind) == [
        {"id": 1, "text": "a", "more": None},
        {"id": 2, "text": "B", "more": [7]},
        {"id": 3, "text": "c", "more": [9]},  # what the stream does not have stays
        {"id": 4, "text": None, "more": None},
    ]
    assert table.last_batch("sink") == 2


@KINDS
def test_an_older_row_replaces_no_newer_one_in_any_batch(tmp_path: Path, kind: str) -> None:
    table = open_table(kind, str(tmp_path / "lake"), "t", ())
    _merge(table, 0, "at", id=[1, 1, 1, 2], at=[3, 9, None, None], text=["a", "new", "c", "d"])
    _merge(table, 1, "at", id=[1, 2], at=[4, 1], text=["late", "first"])
    _merge(table, 2, "at", id=[1, 2], at=[None, 1], text=["untimed", "again"])
    found = [(row["id"], row["at"], row["text"]) for row in _rows(table, kind)]
    assert found == [(1, 9, "new"), (2, 1, "again")]
    assert table.last_batch("sink") == 2


def test_a_row_without_its_key_is_refused() -> None:
    with pytest.raises(SparkConnectorError, match="1 rows of the batch have no id, which is a key"):
        newest_by_key(pa.table({"id": [1, None], "text": ["a", "b"]}), ["id"], None)


def _partitioned(kind: str, lake: Path, batch: int, by: tuple[str, ...], **columns: Any) -> None:
    table = open_table(kind, str(lake), "t", by)
    rows = pa.RecordBatch.from_pydict(columns)
    keep = table.keeps_partition_columns
    files = FileSet(table.data, by, keep_columns=keep, target_bytes=1 << 20)
    files.add(rows)
    table.append(files.finish(), rows.schema, Commit("sink", batch, {}))


@pytest.mark.parametrize("kind", ["delta", "parquet"])
@pytest.mark.parametrize(("first", "then"), [((), ("day",)), (("day",), ())])
def test_other_partitions_than_the_tables_are_refused_and_nothing_is_lost(
    tmp_path: Path, kind: str, first: tuple[str, ...], then: tuple[str, ...]
) -> None:
    lake = tmp_path / "lake"
    _partitioned(kind, lake, 0, first, id=[1], day=["monday"])
    with pytest.raises(SparkConnectorError, match="partition"):
        _partitioned(kind, lake, 1, then, id=[2], day=["tuesday"])
    assert open_table(kind, str(lake), "t", first).last_batch("sink") == 0


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_a_column_of_another_type_is_refused_in_words(tmp_path: Path, kind: str) -> None:
    _partitioned(kind, tmp_path / "lake", 0, (), id=[1], more=["text"])
    with pytest.raises(SparkConnectorError, match="type"):
        _partitioned(kind, tmp_path / "lake", 1, (), id=[2], more=[7])


def test_readers_of_plain_parquet_see_nulls_and_truth_in_directories(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    lake = tmp_path / "lake"
    days, odd = ["monday", None], [True, False]
    _partitioned("parquet", lake, 0, ("day", "odd"), id=[1, 2], day=days, odd=odd)
    found = sorted(pq.read_table(lake).to_pylist(), key=lambda row: int(row["id"]))
    assert [(row["id"], row["day"], row["odd"]) for row in found] == [
        (1, "monday", "true"),
        (2, None, "false"),
    ]


def test_upkeep_sweeps_no_file_that_is_committed_but_not_yet_moved(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    _partitioned("parquet", lake, 0, (), id=[1])
    table = open_table("parquet", str(lake), "t", ())
    (moved,) = lake.glob("*.parquet")
    table.data.mkdir(exist_ok=True)
    moved.rename(table.data / moved.name)  # as after a crash between the note and the move
    assert upkeep("parquet", str(lake), keep_hours=0).removed == []
    assert table.last_batch("sink") == 0
    assert moved.exists()


@pytest.mark.parametrize("kind", ["iceberg", "parquet"])
def test_looking_for_a_table_makes_none(tmp_path: Path, kind: str) -> None:
    with pytest.raises(SparkConnectorError, match="there is no"):
        upkeep(kind, str(tmp_path / "nowhere"), table="shop.orders")
    assert not (tmp_path / "nowhere").exists()
