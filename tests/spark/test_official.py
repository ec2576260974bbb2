"""Spark's own Kafka connector, as others have it, reading and writing Penstock; where Maven has it.

A process of its own: the connector's jars must be there before the JVM starts.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .jobs import SMALL, command

ROOT = Path(__file__).resolve().parents[2]
JOB = Path(__file__).with_name("official_job.py")


@pytest.fixture(scope="module")
def jars() -> list[Path]:
    sys.path.insert(0, str(ROOT))
    from benchmarks.peers import Unavailable
    from benchmarks.spark.connector import official_jars

    try:
        return official_jars()
    except Unavailable as reason:
        pytest.skip(str(reason))


def test_the_official_connector_reads_and_writes_penstock(
    jars: list[Path],
    bootstrap: str,
    topic: Callable[..., str],
    fill: Any,
    records: Any,
    tmp_path: Path,
) -> None:
    source, target, back = topic("official", 3), topic("sink", 2), topic("back", 2)
    rows = [
        {"key": b"k%d" % at, "value": b"%05d" % at, "headers": [("h", b"%d" % at)]}
        for at in range(600)
    ]
    fill(source, rows)
    said = {
        "bootstrap": bootstrap,
        "source": source,
        "target": target,
        "back": back,
        "directory": str(tmp_path),
        "settings": {**SMALL, "spark.jars": ",".join(map(str, jars))},
    }
    log = tmp_path / "job.log"
    with log.open("wb") as errors:
        done = subprocess.run(
            command(said, JOB), stdout=subprocess.PIPE, stderr=errors, text=True, timeout=280
        )
    assert done.returncode == 0, log.read_text(errors="replace")[-4000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["batch"] == 600
    assert report["same"] == 600  # row by row what our own source gives
    assert report["by_time"] == 600
    assert report["lost"]
    found = sorted(record.value() for record in records(target, 2))
    assert found == [row["value"] for row in rows]
    assert all(record.headers() for record in records(target, 2))
    assert sorted(record.value() for record in records(back, 2)) == found
