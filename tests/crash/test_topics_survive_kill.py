"""A topic never half exists: SIGKILL while topics are created, filled and deleted, then a look.

What was acknowledged before the kill must hold after it: created topics are there with the same id,
deleted ones are gone, and no directory in the data directory belongs to nobody.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.batches import batch
from support.broker import BrokerProcess
from support.waiting import eventually
from support.wire import ConnectionClosed, Wire

pytestmark = pytest.mark.own_broker

ROUNDS = 5


class Churn(threading.Thread):
    """Creates, touches and deletes topics until the broker dies, and remembers what it was told."""

    def __init__(self, broker: BrokerProcess, prefix: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self._prefix = prefix
        self._random = random.Random(seed)
        self.created: dict[str, object] = {}  # acknowledged, with its id
        self.deleted: set[str] = set()
        self.unclear: set[str] = set()  # asked for, not answered

    def run(self) -> None:
        try:
            with Wire(self._broker.host, self._broker.port) as wire:
                for number in range(100_000):
                    self._step(wire, number)
        except (ConnectionClosed, OSError):
            return

    def _step(self, wire: Wire, number: int) -> None:
        if self.created and self._random.random() < 0.4:
            name = self._random.choice(sorted(self.created))
            del self.created[name]
            self.unclear.add(name)
            topics = {"topics": [{"name": name, "topic_id": None}]}
            row = wire.call("delete_topics", 6, topics).responses[0]
            assert row.error_code.value == 0, row
            self.deleted.add(name)
        else:
            name = f"{self._prefix}-{number}"
            self.unclear.add(name)
            topic = {"name": name, "num_partitions": 2, "replication_factor": 1}
            row = wire.call("create_topics", 7, {"topics": [topic]}).topics[0]
            assert row.error_code.value == 0, row
            _fill(wire, name)
            self.created[name] = row.topic_id
        self.unclear.discard(name)


def _fill(wire: Wire, topic: str) -> None:
    """Write one record, so that the topic has a directory."""
    data = {"index": 0, "records": batch([b"value"])}
    values = {
        "acks": -1,
        "timeout": 5000,
        "topic_data": [{"name": topic, "partition_data": [data]}],
    }
    answer = wire.call("produce", 9, values)
    assert answer.responses[0].partition_responses[0].error_code.value == 0, answer


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_acknowledged_topics_hold_after_a_kill(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, seed: int
) -> None:
    broker = start_broker()
    churns = [Churn(broker, f"t{each}", seed * 10 + each) for each in range(4)]
    for churn in churns:
        churn.start()
    eventually(lambda: all(churn.created for churn in churns))
    time.sleep(random.Random(seed).uniform(0, 0.5))
    broker.kill()
    for churn in churns:
        churn.join(10)
    broker.start()
    with Wire(broker.host, broker.port) as wire:
        rows = wire.call("metadata", 12, {"topics": None}).topics
    found = {row.name: row.topic_id for row in rows}
    for churn in churns:
        for name, topic_id in churn.created.items():
            assert found.get(name) == topic_id, f"seed {seed}: {name} was acknowledged"
        assert not churn.deleted & found.keys(), f"seed {seed}: deleted topics are back"
        found = {name: id_ for name, id_ in found.items() if name not in churn.unclear}
    expected = {name for churn in churns for name in churn.created}
    assert found.keys() == expected
    known = {row.name for row in rows}
    directories = {path.name.rpartition("-")[0] for path in broker.data.glob("t*-*[0-9]")}
    assert directories <= known, f"seed {seed}: directories that belong to no topic"
