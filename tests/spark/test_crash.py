"""kill -9 of the driver and of the broker at random moments: every record once, none missing.

The topic is written while the query runs, so that crashes fall into planning, staging, the
transaction, Spark's own commit, and between them. A failure prints the seed of its moments.
`make test` kills each once; `make spark-crash` (PENSTOCK_TEST_KILLS=12) kills each a dozen times.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.launch import prepare_environment

from .conftest import fill_topic, records_of
from .jobs import JOB, SMALL, command


def _kills(least: int) -> int:
    return int(os.environ.get("PENSTOCK_TEST_KILLS", least))


KILLS = _kills(1)
SETTINGS = SMALL
pytestmark = [pytest.mark.own_broker, pytest.mark.timeout(300 + 120 * KILLS)]
PARTITIONS = 2
AHEAD = 3000  # records; a busy machine must be able to catch up


class Supervisor:
    """The streaming query as a process group that can be killed at once, workers included.

    A driver that ends by itself is started again, as whoever operates it would do: on a busy
    machine Spark gives up when a worker takes ten seconds to come up.
    """

    def __init__(self, said: dict[str, Any], log: Path, job: Path = JOB) -> None:
        prepare_environment()
        self._job = job
        self._said = said
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        assert self.starts < 10 + 5 * KILLS, self.tail()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command(self._said, self._job),
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


def _said(bootstrap: str, checkpoint: Path, **sink: str) -> dict[str, Any]:
    return {
        "bootstrap": bootstrap,
        "settings": SETTINGS,
        "source": {
            "subscribe": "in",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": "500",
        },
        "sink": {"topic": "out", **sink},
        "checkpoint": str(checkpoint),
    }


def _create(bootstrap: str, *names: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS) for name in names]).values():
        future.result(20)


def _counts(bootstrap: str) -> Counter[int]:
    return Counter(int(record.value()) for record in records_of(bootstrap, "out", PARTITIONS))


def _end(bootstrap: str) -> int:
    """How far the target reaches, markers and aborted records included."""
    from penstock.spark.cluster import LATEST, Cluster, TopicPartition

    cluster = Cluster(bootstrap)
    wanted = {TopicPartition("out", at): LATEST for at in range(PARTITIONS)}
    end = sum(place.offset for place in cluster.offsets_at(wanted).values())
    cluster.forget()
    return end


def _fill_for(bootstrap: str, seconds: float, written: int) -> int:
    """Write numbers for a while; how many there are now."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        values = [str(at).encode() for at in range(written, written + 100)]
        fill_topic(bootstrap, "in", values)
        written += 100
        time.sleep(0.1)
    return written


class Feed:
    """Numbers that go into the topic for as long as somebody watches, not too far ahead of it."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.written = 0

    def run(self, seconds: float) -> None:
        if self.written < _end(self._bootstrap) + AHEAD:
            self.written = _fill_for(self._bootstrap, seconds, self.written)
        else:
            time.sleep(seconds)

    def run_until_written(self, supervisor: Supervisor) -> None:
        """Until the query has written something since now."""
        before, deadline = _end(self._bootstrap), time.monotonic() + 150
        while _end(self._bootstrap) == before:
            assert time.monotonic() < deadline, supervisor.tail()
            supervisor.keep_running()
            self.run(0.3)


def _wait_for_all(bootstrap: str, count: int, supervisor: Supervisor) -> None:
    deadline = time.monotonic() + 200
    while (found := _counts(bootstrap)).total() < count:
        assert time.monotonic() < deadline, f"{found.total()} of {count}\n{supervisor.tail()}"
        supervisor.keep_running()
        time.sleep(1)
    assert set(found) == set(range(count)), "records are missing"
    assert found.total() == count, f"duplicates: {[v for v, n in found.items() if n > 1][:10]}"


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("PENSTOCK_TEST_SEED", random.randrange(10_000)))


def test_every_record_is_written_once_when_driver_and_broker_are_killed_at_random(
    start_broker: Callable[..., Any], tmp_path: Path, seed: int
) -> None:
    from support.broker import free_port

    chance = random.Random(seed)
    broker = start_broker(port=free_port())
    _create(broker.bootstrap, "in", "out")
    # Half of the runs carry their output along, half park it with the broker.
    inline = chance.choice(["4000000", "1000"])
    said = _said(broker.bootstrap, tmp_path / "checkpoint", stageInlineBytes=inline)
    supervisor = Supervisor(said, tmp_path / "job.log")
    feed = Feed(broker.bootstrap)
    victims = ["driver", "broker"] * KILLS
    chance.shuffle(victims)
    try:
        supervisor.start()
        for victim in victims:
            # Mostly in the middle of its work, now and then while it is only starting.
            if chance.random() < 0.7:
                feed.run_until_written(supervisor)
            feed.run(chance.uniform(0.1, 2.0))
            if victim == "driver":
                supervisor.kill()
                supervisor.start()
            else:
                broker.kill()
                time.sleep(chance.uniform(0.0, 1.0))
                broker.start()
        _wait_for_all(broker.bootstrap, feed.written, supervisor)
    finally:
        supervisor.kill()
    print(f"{KILLS} kills each, {feed.written} records, {supervisor.starts} drivers, seed {seed}")
