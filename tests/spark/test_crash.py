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
from contextlib import suppress
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


class Supervisor:
    """The streaming query as a process group that can be killed at once, workers included.

    A driver that ends by itself is started again, as whoever operates it would do: on a busy
    machine Spark gives up when a worker takes ten seconds to come up.
    """

    def __init__(self, said: dict[str, Any], log: Path) -> None:
        prepare_environment()
        self._said = said
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        assert self.starts < 30, self.tail()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(JOB), json.dumps(self._said)],
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "started\n", self.tail()

    def keep_running(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.kill()
            self.start()

    def kill(self) -> None:
        if self._process is None:
            return
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def tail(self) -> str:
        return self._log.read_text()[-3000:]


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


def _wait_for_all(bootstrap: str, target: str, count: int, supervisor: Supervisor) -> None:
    deadline = time.monotonic() + 150
    while (found := _counts(bootstrap, target)).total() < count:
        assert time.monotonic() < deadline, f"{found.total()} of {count}\n{supervisor.tail()}"
        supervisor.keep_running()
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
    chance = random.Random(seed)
    bootstrap = start_broker().bootstrap
    _create(bootstrap, "in", "out")
    said = _said(bootstrap, "in", "out", tmp_path / "checkpoint")
    supervisor = Supervisor(said, tmp_path / "job.log")
    written = 0
    try:
        for _ in range(_kills(2)):
            supervisor.start()
            written = _fill_for(bootstrap, chance.uniform(2.0, 7.0), written)
            supervisor.kill()
        _wait_for_all(bootstrap, "out", written, supervisor)
    finally:
        supervisor.kill()


def test_every_record_is_written_once_when_the_broker_is_killed_at_random(
    start_broker: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    from support.broker import free_port

    chance = random.Random(seed)
    broker = start_broker(port=free_port())
    bootstrap = broker.bootstrap
    _create(bootstrap, "in", "out")
    said = _said(bootstrap, "in", "out", tmp_path / "checkpoint")
    supervisor = Supervisor(said, tmp_path / "job.log")
    written = 0
    try:
        supervisor.start()
        for _ in range(_kills(3)):
            written = _fill_for(bootstrap, chance.uniform(1.0, 4.0), written)
            broker.kill()
            time.sleep(chance.uniform(0.0, 1.0))
            broker.start()
        _wait_for_all(bootstrap, "out", written, supervisor)
    finally:
        supervisor.kill()


def _fill_for(bootstrap: str, seconds: float, written: int) -> int:
    """Write numbers for a while; how many there are now."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        values = [str(at).encode() for at in range(written, written + 100)]
        fill_topic(bootstrap, "in", values)
        written += 100
        time.sleep(0.1)
    return written
