"""Lake upkeep: small files into large ones, old rows, versions and files of nobody removed.

    upkeep("delta", "lake/orders", keep_hours=168)

Safe beside a running pipeline as long as `keep_hours` is longer than a batch takes: a file that a
task has written and the driver has not committed yet looks like an orphan until then.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlparse

from penstock.spark.errors import OptionError, SparkConnectorError
from penstock.spark.lake.parquet import ParquetLake
from penstock.spark.lake.table import DeltaLake, IcebergLake


class Upkeep(NamedTuple):
    """What was done, or would be."""

    files_before: int
    files_after: int
    deleted: int  # rows that were too old
    expired: int  # versions
    removed: list[str]


class Wanted(NamedTuple):
    """How a table is to be kept."""

    keep_hours: int
    target_bytes: int
    delete_where: str
    dry_run: bool


def upkeep(
    kind: str,
    path: str,
    *,
    table: str = "",
    keep_hours: int = 168,
    target_bytes: int = 128 << 20,
    delete_where: str = "",
    older_than_s: float | None = None,
    time_column: str = "",
    dry_run: bool = False,
) -> Upkeep:
    """Delete old rows, compact, expire and sweep one table."""
    if keep_hours < 0:
        raise OptionError("keep_hours cannot be negative")
    if older_than_s is not None:
        limit = datetime.now(UTC) - timedelta(seconds=older_than_s)
        old = _older(kind, path, table, time_column, limit)
        delete_where = f"({delete_where}) OR {old}" if delete_where else old
    said = Wanted(keep_hours, target_bytes, delete_where, dry_run)
    if kind == "delta":
        return _delta(path, said)
    if kind == "iceberg":
        return _iceberg(path, table or Path(path).name, said)
    if kind == "parquet":
        return _parquet(path, said)
    raise OptionError(f"{kind!r} is none of delta, iceberg, parquet")


def _older(kind: str, path: str, table: str, column: str, limit: datetime) -> str:
    """A predicate in the table's own words: dates and times are written differently."""
    opened = _need(kind, path, table or Path(path).name)
    if kind == "delta":
        types = {field.name: str(field.type) for field in opened.schema().fields}
        word = types.get(column, "")
    else:
        word = next((str(f.field_type) for f in opened.schema().fields if f.name == column), "")
    if "date" in word:
        text = limit.date().isoformat()
        return f"{column} < CAST('{text}' AS DATE)" if kind == "delta" else f"{column} < '{text}'"
    if "timestamp" not in word:
        raise OptionError(f"{path}: there is no time or date column {column!r}")
    if kind == "delta":
        zone, text = 'Some("UTC")', limit.isoformat()
        if "ntz" in word:
            zone, text = "None", limit.replace(tzinfo=None).isoformat()
        return f"{column} < arrow_cast('{text}', 'Timestamp(Microsecond, {zone})')"
    zoned = limit.isoformat() if "tz" in word else limit.replace(tzinfo=None).isoformat()
    return f"{column} < '{zoned}'"


def _need(kind: str, path: str, name: str) -> Any:
    table = DeltaLake(path).open() if kind == "delta" else IcebergLake(path, name).open()
    if table is None:
        where = f"{path}" if kind == "delta" else f"{name} in {path}"
        words = "Delta table in" if kind == "delta" else "Iceberg table"
        raise SparkConnectorError(f"there is no {words} {where}")
    return table


def _delta(path: str, said: Wanted) -> Upkeep:
    table = _need("delta", path, "")
    before = len(table.file_uris())
    deleted = versions = 0
    if not said.dry_run:
        if said.delete_where:
            deleted = int(table.delete(said.delete_where).get("num_deleted_rows") or 0)
        table.optimize.compact(target_size=said.target_bytes)
        log = Path(path) / "_delta_log"
        versions = len(list(log.glob("*.json")))
        # Versions older than delta.logRetentionDuration go when a checkpoint stands for them.
        table.create_checkpoint()
        table.cleanup_metadata()
        versions -= len(list(log.glob("*.json")))
    removed = table.vacuum(
        said.keep_hours, dry_run=said.dry_run, enforce_retention_duration=False, full=True
    )
    after = len(DeltaLake(path).open().file_uris())
    return Upkeep(before, after, deleted, versions, list(removed))


def _iceberg(path: str, name: str, said: Wanted) -> Upkeep:
    lake = IcebergLake(path, name)
    table = _need("iceberg", path, name)
    before = table.inspect.files().num_rows
    limit = datetime.now(UTC) - timedelta(hours=said.keep_hours)
    expired = deleted = 0
    if not said.dry_run:
        if said.delete_where:
            rows = table.scan().count()
            table.delete(said.delete_where)
            table = table.refresh()
            deleted = rows - table.scan().count()
        sizes = table.inspect.files().column("file_size_in_bytes").to_pylist()
        if sum(size < said.target_bytes // 2 for size in sizes) > 1:
            # pyiceberg has no compaction of its own: the rows are written again, in one commit.
            table.overwrite(table.scan().to_arrow())
        count = len(table.refresh().snapshots())
        table.maintenance.expire_snapshots().older_than(limit.replace(tzinfo=None)).commit()
        table = table.refresh()
        expired = count - len(table.snapshots())
    known = {
        urlparse(path).path for path in table.inspect.all_files().column("file_path").to_pylist()
    }
    removed = _sweep(lake.data, known, said)
    return Upkeep(before, table.inspect.files().num_rows, deleted, expired, removed)


def _parquet(path: str, said: Wanted) -> Upkeep:
    """Plain files have no versions and no atomic exchange: only what nobody committed is swept."""
    if said.delete_where:
        raise OptionError("rows of plain Parquet files cannot be deleted; use delta or iceberg")
    if not Path(path).is_dir():
        raise OptionError(f"there is no directory {path}")
    files, lake = len(list(Path(path).rglob("*.parquet"))), ParquetLake(path)
    return Upkeep(files, files, 0, 0, _sweep(lake.data, lake.committed(), said))


def _sweep(data: Path, known: set[str], said: Wanted) -> list[str]:
    old = time.time() - said.keep_hours * 3600
    orphans = [
        file
        for file in sorted(data.rglob("*.parquet"))
        if str(file) not in known and file.stat().st_mtime <= old
    ]
    if not said.dry_run:
        for file in orphans:
            file.unlink(missing_ok=True)
    return [str(file) for file in orphans]
