"""Lake upkeep: small files into large ones, old versions expired, files of nobody removed.

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
from penstock.spark.lake.table import DeltaLake, IcebergLake


class Upkeep(NamedTuple):
    """What was done, or would be."""

    files_before: int
    files_after: int
    expired: int  # versions of an Iceberg table; Delta expires by its own log retention
    removed: list[str]


def upkeep(
    kind: str,
    path: str,
    *,
    table: str = "",
    keep_hours: int = 168,
    target_bytes: int = 128 << 20,
    dry_run: bool = False,
) -> Upkeep:
    """Compact, expire and sweep one table."""
    if keep_hours < 0:
        raise OptionError("keep_hours cannot be negative")
    if kind == "delta":
        return _delta(path, keep_hours, target_bytes, dry_run)
    if kind == "iceberg":
        return _iceberg(path, table or Path(path).name, keep_hours, dry_run)
    raise OptionError(f"{kind!r} is none of delta, iceberg")


def _delta(path: str, keep_hours: int, target_bytes: int, dry_run: bool) -> Upkeep:
    table = DeltaLake(path).open()
    if table is None:
        raise SparkConnectorError(f"there is no Delta table in {path}")
    before = len(table.file_uris())
    if not dry_run:
        table.optimize.compact(target_size=target_bytes)
    removed = table.vacuum(keep_hours, dry_run=dry_run, enforce_retention_duration=False, full=True)
    return Upkeep(before, len(DeltaLake(path).open().file_uris()), 0, list(removed))


def _iceberg(path: str, name: str, keep_hours: int, dry_run: bool) -> Upkeep:
    lake = IcebergLake(path, name)
    table = lake.open()
    if table is None:
        raise SparkConnectorError(f"there is no Iceberg table {name} in {path}")
    before = table.inspect.files().num_rows
    limit = datetime.now(UTC) - timedelta(hours=keep_hours)
    expired = 0
    if not dry_run:
        if before > 1:
            # pyiceberg has no compaction of its own: the rows are written again, in one commit.
            table.overwrite(table.scan().to_arrow())
        count = len(table.refresh().snapshots())
        table.maintenance.expire_snapshots().older_than(limit.replace(tzinfo=None)).commit()
        table = table.refresh()
        expired = count - len(table.snapshots())
    removed = _sweep(table, lake.data, keep_hours, dry_run)
    return Upkeep(before, table.inspect.files().num_rows, expired, removed)


def _sweep(table: Any, data: Path, keep_hours: int, dry_run: bool) -> list[str]:
    known = {
        urlparse(path).path for path in table.inspect.all_files().column("file_path").to_pylist()
    }
    old = time.time() - keep_hours * 3600
    orphans = [
        file
        for file in sorted(data.rglob("*.parquet"))
        if str(file) not in known and file.stat().st_mtime <= old
    ]
    if not dry_run:
        for file in orphans:
            file.unlink(missing_ok=True)
    return [str(file) for file in orphans]
