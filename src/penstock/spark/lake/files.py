"""The Parquet files of one task: cut at a target size, one set per value of the partition columns.

A file is written under its final name at once but belongs to no table until the driver's commit
names it; what a failed attempt leaves is swept by `penstock pipeline upkeep`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

TARGET_BYTES = 128 << 20


class DataFile(NamedTuple):
    """A finished file: where, how large, and which partition it belongs to."""

    path: str  # below the table's data directory
    size_bytes: int
    rows: int
    partition: tuple[tuple[str, str | None], ...]


class FileSet:
    """Writers by partition value, rolled over when a file is large enough."""

    def __init__(
        self, root: Path, partition_by: tuple[str, ...], *, keep_columns: bool, target_bytes: int
    ) -> None:
        self._root = root
        self._partition_by = partition_by
        self._keep_columns = keep_columns
        self._target_bytes = target_bytes
        self._open: dict[tuple[Any, ...], tuple[Any, Path, list[int]]] = {}
        self.files: list[DataFile] = []

    def add(self, rows: pa.RecordBatch) -> None:
        for values, part in self._split(rows):
            if not self._keep_columns:
                part = part.drop_columns(list(self._partition_by)) if self._partition_by else part
            if values not in self._open:
                path = self._root / self._directory(values) / f"part-{uuid.uuid4().hex}.parquet"
                path.parent.mkdir(parents=True, exist_ok=True)
                writer = pq.ParquetWriter(path, part.schema, compression="zstd")
                self._open[values] = (writer, path, [0, 0])
            writer, _, counters = self._open[values]
            writer.write_batch(part)
            counters[0] += part.num_rows
            counters[1] += part.nbytes
            if counters[1] >= self._target_bytes * 3:  # Parquet keeps about a third of Arrow's size
                self._close(values)

    def finish(self) -> list[DataFile]:
        for values in list(self._open):
            self._close(values)
        return self.files

    def _close(self, values: tuple[Any, ...]) -> None:
        writer, path, counters = self._open.pop(values)
        writer.close()
        self.files.append(
            DataFile(
                str(path.relative_to(self._root)),
                path.stat().st_size,
                counters[0],
                tuple(
                    (name, None if value is None else _word(value))
                    for name, value in zip(self._partition_by, values, strict=True)
                ),
            )
        )

    def _split(self, rows: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], pa.RecordBatch]]:
        if not self._partition_by:
            yield (), rows
            return
        name, *_ = self._partition_by
        found = pa.table({n: rows.column(n) for n in self._partition_by}).group_by(
            list(self._partition_by)
        )
        for values in found.aggregate([]).to_pylist():
            chosen = None
            for name in self._partition_by:
                column, value = rows.column(name), values[name]
                same = pc.is_null(column) if value is None else pc.equal(column, value)
                chosen = same if chosen is None else pc.and_(chosen, same)
            yield (
                tuple(values[n] for n in self._partition_by),
                rows.filter(pc.fill_null(chosen, False)),
            )

    def _directory(self, values: tuple[Any, ...]) -> str:
        parts = zip(self._partition_by, values, strict=True)
        return "/".join(f"{name}={_directory_word(value)}" for name, value in parts)


def _directory_word(value: Any) -> str:
    """As Spark and Hive name directories, so that their readers see the same value."""
    if value is None or value == "":
        return "__HIVE_DEFAULT_PARTITION__"
    return quote(_word(value), safe="")


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
