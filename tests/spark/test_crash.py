"""kill -9 of the driver and of the broker at random moments: every record once, none missing.

The topic is written while the query runs, so that crashes fall into planning, staging, the
transaction, Spark's own commit, and between them. A failure prints the seed of its moments.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.launch import prepare_environment

from .conftest import fill_topic, records_of

pytestmark = [pytest.mark.own_broker, pytest.mark.timeout(400)]
JOB = Path(__file__).with_name("stream_job.py")
SETTINGS = {
    "spark.driver.memory": "600m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming"
    ".checkpointing.FileSystemBasedCheckpointFileManager",
}


class Job:
    """The streaming query as a process group that can be killed at once, workers included."""

    def __init__(self, said: dict[str, Any], log: Path) -> None:
        prepare_environment()
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            [sys.executable, str(JOB), json.dumps(said)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "started\n", log.read_text()[-3000:]

    def kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()

    @property
    def running(self) -> bool:
        return self._process.poll() is None


def _said(bootstrap: str, source: str, target: str, checkpoint: Path) -> dict[str, Any]:
    return {
        "bootstrap": bootstrap,
        "settings": SETTINGS,
        "source": {
            "subscribe": source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "500",
        },
        "sink": {"topic": target},
        "checkpoint": str(checkpoint),
    }


def _create(bootstrap: str, *names: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 2) for name in names]).values():
        future.result(20)


def _counts(bootstrap: str, target: str) -> Counter[int]:
    return Counter(int(record.value()) for record in records_of(bootstrap, target, 2))


def _wait_for_all(bootstrap: str, target: str, count: int, log: Path) -> None:
    deadline = time.monotonic() + 90
    while (found := _counts(bootstrap, target)).total() < count:
        assert time.monotonic() < deadline, f"{found.total()} of {count}\n{log.read_text()[-3000:]}"
        time.sleep(1)
    assert set(found) == set(range(count)), "records are missing"
    assert found.total() == count, f"duplicates: {[v for v, n in found.items() if n > 1][:10]}"


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("PENSTOCK_TEST_SEED", random.randrange(10_000)))


def _kills(least: int) -> int:
    return int(os.environ.get("PENSTOCK_TEST_KILLS", least))


def test_every_record_is_written_once_when_the_driver_is_killed_at_random(
    start_broker: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    chance, log = random.Random(seed), tmp_path / "job.log"
    bootstrap = start_broker().bootstrap
    _create(bootstrap, "in", "out")
    said = _said(bootstrap, "in", "out", tmp_path / "checkpoint")
    written = 0
    for _ in range(_kills(2)):
        job = Job(said, log)
        until = time.monotonic() + chance.uniform(2.0, 7.0)
        while time.monotonic() < until:
            fill_topic(bootstrap, "in", [str(at).encode() for at in range(written, written + 200)])
            written += 200
            time.sleep(0.1)
        assert job.running, log.read_text()[-3000:]
        job.kill()
    job = Job(said, log)
    try:
        _wait_for_all(bootstrap, "out", written, log)
    finally:
        job.kill()


def test_every_record_is_written_once_when_the_broker_is_killed_at_random(
    start_broker: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    from support.broker import free_port

    chance, log = random.Random(seed), tmp_path / "job.log"
    broker = start_broker(port=free_port())
    bootstrap = broker.bootstrap
    _create(bootstrap, "in", "out")
    job = Job(_said(bootstrap, "in", "out", tmp_path / "checkpoint"), log)
    written = 0
    try:
        for _ in range(_kills(3)):
            until = time.monotonic() + chance.uniform(1.0, 4.0)
            while time.monotonic() < until:
                values = [str(at).encode() for at in range(written, written + 100)]
                fill_topic(bootstrap, "in", values)
                written += 100
                time.sleep(0.1)
            broker.kill()
            time.sleep(chance.uniform(0.0, 1.0))
            broker.start()
        assert job.running, log.read_text()[-3000:]
        _wait_for_all(bootstrap, "out", written, log)
    finally:
        job.kill()
