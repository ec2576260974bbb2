"""A directory of Parquet files that any reader can take as it lies: each row once, at any moment.

    lake/orders/day=2026-11-15/part-….parquet    rows
    lake/orders/_penstock/<sink>.json            the last batch: its number, files and offsets
    lake/.orders.staged/…                        written, not committed

A batch is committed by its note: from then on its files are the table's, and moving them to where
readers look is finished by whoever comes next, if this process dies between. So a reader may see a
part of a batch for a moment, and never a row twice. Spark's own file sink writes the files in place
and needs readers that know its log.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.errors import SparkConnectorError
from penstock.spark.lake.commit import Commit
from penstock.spark.lake.files import DataFile

NOTES = "_penstock"


class ParquetLake:
    """Files, and a note for each sink."""

    keeps_partition_columns = False

    def __init__(self, path: str) -> None:
        self._path = Path(path).absolute()

    @property
    def data(self) -> Path:
        """Where tasks write: beside the table, in the same file system."""
        return self._path.with_name(f".{self._path.name}.staged")

    def last_batch(self, sink: str) -> int:
        note = self._note(sink)
        if note is None:
            return -1
        self._reveal(note["files"])
        return int(note["batch"])

    def append(self, files: list[DataFile], schema: pa.Schema, commit: Commit) -> None:
        self._check(files)
        paths = [file.path for file in files]
        rows = sum(file.rows for file in files)
        said = {"batch": commit.batch, "rows": rows, "files": paths, **commit.note}
        place = self._path / NOTES / f"{commit.sink}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        fresh = place.with_suffix(".fresh")
        with fresh.open("w", encoding="utf-8") as out:
            json.dump(said, out)
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(place)  # the batch is in the table here
        self._reveal(paths)

    def upsert(self, rows: pa.Table, keys: list[str], order: str | None, commit: Commit) -> None:
        raise SparkConnectorError("plain Parquet files cannot be merged by key; use delta, iceberg")

    def _check(self, files: list[DataFile]) -> None:
        """Whether the files can lie beside those that are there: no format would say it later."""
        there = next(self._path.rglob("*.parquet"), None)
        if there is None or not files:
            return
        old, new = pq.read_schema(there), pq.read_schema(self.data / files[0].path)
        try:
            pa.unify_schemas([old, new], promote_options="permissive")
        except pa.ArrowException as failure:
            raise SparkConnectorError(
                f"{self._path}: a column has another type in the stream than in the table: "
                f"{str(failure).splitlines()[0]}"
            ) from None
        depth = len(there.relative_to(self._path).parts)
        if depth != len(Path(files[0].path).parts):
            raise SparkConnectorError(f"{self._path}: the table has other partitions")

    def _note(self, sink: str) -> Any:
        try:
            return json.loads((self._path / NOTES / f"{sink}.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def committed(self) -> set[str]:
        """Files of the last batches, where they were before they were moved: whoever died between
        has left them there, and they are the table's."""
        notes = [self._note(place.stem) for place in (self._path / NOTES).glob("*.json")]
        return {str(self.data / path) for note in notes if note for path in note["files"]}

    def _reveal(self, paths: list[str]) -> None:
        """Move what is still staged; a file that is not there was moved before."""
        for path in paths:
            target = self._path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                (self.data / path).rename(target)
            except FileNotFoundError:
                if not target.exists():
                    raise SparkConnectorError(
                        f"{target}: a file of the last batch is gone"
                    ) from None
