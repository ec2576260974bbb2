"""The others: Spark's own Kafka connector on Penstock, and our source on Apache Kafka.

Both come from Maven; where it cannot be reached the end of the run says so. The connector has a
process of its own: its jars must be there before the JVM starts. All tests of this source run
against Apache Kafka with PENSTOCK_TEST_BOOTSTRAP=HOST:PORT; here is the short form.
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


def test_this_source_reads_and_writes_apache_kafka_exactly_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sys.path.insert(0, str(ROOT))
    from benchmarks.peers import Unavailable, apache_kafka

    from .conftest import fill_topic, records_of

    monkeypatch.chdir(tmp_path)
    values = [b"%05d" % at for at in range(1000)]
    try:
        with apache_kafka() as kafka:
            fill_topic(kafka.bootstrap, "in", values)
            brokers = {"kafka.bootstrap.servers": kafka.bootstrap}
            for _ in range(2):
                query = (
                    spark.readStream.format("penstock")
                    .options(**brokers, subscribe="in", startingOffsets="earliest")
                    .option("maxOffsetsPerTrigger", "600")
                    .load()
                    .select("value")
                    .writeStream.format("penstock")
                    .options(**brokers, topic="out", stageInlineBytes="2000")
                    .option("checkpointLocation", str(tmp_path / "checkpoint"))
                    .trigger(availableNow=True)
                    .start()
                )
                assert query.awaitTermination(120)
                commits = (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
                max(commits, key=lambda path: int(path.name)).unlink()  # as after a crash
            found = records_of(kafka.bootstrap, "out", 4)
            frame = spark.read.format("penstock").options(**brokers, subscribe="out").load()
            assert frame.count() == 1000
    except Unavailable as reason:
        pytest.skip(str(reason))
    assert sorted(record.value() for record in found) == values
