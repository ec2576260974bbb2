"""kill -9 of the driver and of the broker while tables of every kind are written: each row once.

One driver writes four tables from one topic, so that every kill hits all of them, each somewhere
else: in a file, before the table's commit, between it and Spark's. PENSTOCK_TEST_KILLS=10 kills
more often; a failure prints the seed of its moments.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.lake.table import open_table

from .test_crash import SETTINGS, Supervisor, _create, _fill_for, _kills, seed
from .test_pipeline import rows_of

__all__ = ["seed"]
pytestmark = [pytest.mark.own_broker, pytest.mark.timeout(3600)]
JOB = Path(__file__).with_name("lake_job.py")


def _tables(lake: Path) -> dict[str, dict[str, str]]:
    return {
        "parquet": {"tableFormat": "parquet", "partitionBy": "half"},
        "delta": {"tableFormat": "delta", "partitionBy": "half"},
        "iceberg": {"tableFormat": "iceberg", "table": "t"},
        "upserted": {"tableFormat": "delta", "keys": "id"},
    }


def _said(bootstrap: str, root: Path) -> dict[str, Any]:
    tables = _tables(root)
    return {
        "bootstrap": bootstrap,
        "settings": SETTINGS,
        "source": {
            "subscribe": "in",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "500",
        },
        "tables": {name: {**said, "path": str(root / name)} for name, said in tables.items()},
        "checkpoint": str(root / "checkpoint"),
    }


def _ids(root: Path, name: str) -> Counter[int]:
    kind = "delta" if name == "upserted" else name
    table: Any = open_table(kind, str(root / name), "t", ())
    there = any((root / name).rglob("*.parquet")) if kind == "parquet" else table.open()
    if not there:
        return Counter()
    return Counter(row["id"] for row in rows_of(kind, root / name))


def _commits(root: Path) -> int:
    """How many batches Spark has finished, in all queries."""
    return len(list((root / "checkpoint").glob("*/commits/[0-9]*")))


def _wait_for_all(root: Path, count: int, supervisor: Supervisor) -> None:
    deadline = time.monotonic() + 300
    for name in _tables(root):
        while (found := _ids(root, name)).total() < count:
            told = f"{name}: {found.total()} of {count}\n{supervisor.tail()}"
            assert time.monotonic() < deadline, told
            supervisor.keep_running()
            time.sleep(1)
        assert set(found) == set(range(count)), f"{name}: rows are missing"
        twice = [value for value, times in found.items() if times > 1]
        assert not twice, f"{name}: {len(twice)} rows are there twice: {twice[:10]}"


def test_every_row_is_in_every_table_once_when_driver_and_broker_are_killed_at_random(
    start_broker: Callable[..., Any],
    tmp_path: Path,
    seed: int,
) -> None:
    from support.broker import free_port
    from support.waiting import eventually

    chance = random.Random(seed)
    broker = start_broker(port=free_port())
    _create(broker.bootstrap, "in", "out")
    supervisor = Supervisor(_said(broker.bootstrap, tmp_path), tmp_path / "job.log", JOB)
    written = 0
    try:
        for turn in range(2 * _kills(1)):
            supervisor.keep_running()
            before = _commits(tmp_path)
            written = _fill_for(broker.bootstrap, chance.uniform(1.0, 4.0), written)
            # Wherever the queries are: but they must have come up, and be at work.
            eventually(
                lambda low=before: _commits(tmp_path) > low + 4, within=300, what=supervisor.tail()
            )
            written = _fill_for(broker.bootstrap, chance.uniform(0.2, 3.0), written)
            if turn % 2:
                broker.kill()
                time.sleep(chance.uniform(0.0, 1.0))
                broker.start()
            else:
                supervisor.kill()
        _wait_for_all(tmp_path, written, supervisor)
    finally:
        supervisor.kill()
