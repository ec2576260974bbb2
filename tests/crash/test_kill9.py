"""SIGKILL at random moments under load: what was acknowledged is there once, in order.

The clients stay alive over all the kills, as they would, and never hear of more than a broken
connection. Every test prints its seed, and with PENSTOCK_SEED does the same again.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from support.broker import BrokerProcess, free_port
from support.clients.confluent import consumer, producer
from support.history import (
    Committer,
    Writer,
    assert_commits_kept,
    check,
    contents,
    make_topic,
)
from support.members import Member, settled
from support.waiting import eventually

pytestmark = [pytest.mark.own_broker, pytest.mark.timeout(400)]

KILLS = 30
PARTITIONS = 6


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "data", port=free_port()).start()
    yield process
    process.kill()
    print(process.last_words())


def test_acknowledged_records_survive_thirty_kills_once_and_in_order(
    broker: BrokerProcess, dice: random.Random
) -> None:
    make_topic(broker, "orders", PARTITIONS, segment_bytes="1048576")
    writers = [Writer(broker.bootstrap, "orders", PARTITIONS, number) for number in range(3)]
    committer = Committer(broker.bootstrap, "orders", PARTITIONS, "billing")
    for thread in (*writers, committer):
        thread.start()
    for _ in range(KILLS):
        time.sleep(dice.uniform(0.05, 0.6))
        broker.kill()
        promised = dict(committer.acknowledged)
        broker.start()
        assert_commits_kept(broker, "billing", "orders", promised)
    for writer in writers:
        writer.finish()
    committer.done.set()
    committer.join(30)
    log = {
        partition: contents(broker.bootstrap, "orders", partition)
        for partition in range(PARTITIONS)
    }
    acknowledged = check(writers, log)
    print(f"{acknowledged} records acknowledged over {KILLS} kills")
    assert acknowledged > 10_000
    assert committer.acknowledged, "the group committed nothing"
    broker.stop()


def test_the_same_holds_when_the_broker_dies_while_it_recovers(
    broker: BrokerProcess, dice: random.Random
) -> None:
    """Killed again before it is ready, several times over."""
    make_topic(broker, "orders", PARTITIONS, segment_bytes="1048576")
    writer = Writer(broker.bootstrap, "orders", PARTITIONS, 0)
    writer.start()
    for _ in range(4):
        time.sleep(dice.uniform(0.3, 0.8))
        broker.kill()
        for _ in range(3):
            limit = dice.uniform(0.05, 0.4)
            with contextlib.suppress(AssertionError):  # killed before its ready line
                broker.start(within=limit)
            broker.kill()
        broker.start()
    writer.finish()
    log = {
        partition: contents(broker.bootstrap, "orders", partition)
        for partition in range(PARTITIONS)
    }
    assert check([writer], log) > 1000


class Pipeline(threading.Thread):
    """Consume, transform, produce in transactions, by the book, until everything is through."""

    def __init__(self, bootstrap: str, total: int) -> None:
        super().__init__(daemon=True)
        self.bootstrap, self.total = bootstrap, total
        self.failure: BaseException | None = None
        self.restarts = 0

    def run(self) -> None:
        try:
            while not self._work():
                self.restarts += 1
        except BaseException as failure:
            self.failure = failure

    def _work(self) -> bool:
        """One life of the worker; True when the input is done, False after an error."""
        quiet = {"reconnect_backoff_max_ms": 200, "log_level": 0}
        source = consumer(
            self.bootstrap,
            "pipeline",
            session_timeout_ms=3000,
            isolation_level="read_committed",
            **quiet,
        )
        source.subscribe(["input"])
        sender = producer(
            self.bootstrap,
            transactional_id="pipeline-1",
            transaction_timeout_ms=5000,
            error_cb=lambda _: None,
            **quiet,
        )
        try:
            sender.init_transactions(30)
            while True:
                messages = [one for one in source.consume(50, timeout=0.5) if not one.error()]
                if not messages:
                    if self._finished(source):
                        return True
                    continue
                self._transaction(sender, source, messages)
        except KafkaException:
            return False
        finally:
            source.close()

    def _transaction(self, sender: Any, source: Any, messages: list[Any]) -> None:
        sender.begin_transaction()
        for message in messages:
            sender.produce("output", message.value(), partition=0)
        ends: dict[int, int] = {}
        for message in messages:
            ends[message.partition()] = message.offset() + 1
        places = [TopicPartition("input", partition, end) for partition, end in ends.items()]
        sender.send_offsets_to_transaction(places, source.consumer_group_metadata(), 20)
        sender.commit_transaction(20)

    def _finished(self, source: Any) -> bool:
        places = source.committed([TopicPartition("input", n) for n in range(2)], timeout=20)
        return sum(max(place.offset, 0) for place in places) == self.total


def test_an_exactly_once_pipeline_survives_kills(
    broker: BrokerProcess, dice: random.Random
) -> None:
    total = 3000
    make_topic(broker, "input", 2)
    make_topic(broker, "output", 1)
    sender = producer(broker.bootstrap, enable_idempotence=True)
    for number in range(total):
        sender.produce("input", b"%d" % number, partition=number % 2)
    assert sender.flush(30) == 0
    pipeline = Pipeline(broker.bootstrap, total)
    pipeline.start()
    kills = 0
    deadline = time.monotonic() + 150
    while pipeline.is_alive() and time.monotonic() < deadline:
        pipeline.join(dice.uniform(0.3, 1.5))
        if pipeline.is_alive() and kills < 8:
            broker.kill()
            broker.start()
            kills += 1
    pipeline.join(60)
    assert pipeline.failure is None, pipeline.failure
    assert not pipeline.is_alive(), "the pipeline did not come to its end"
    print(f"{kills} kills, {pipeline.restarts} restarts of the worker")
    output = contents(broker.bootstrap, "output", 0, level="read_committed")
    numbers = sorted(int(value) for value in output.values())
    assert numbers == list(range(total))


def test_groups_go_on_after_a_kill(broker: BrokerProcess, name: Callable[[str], str]) -> None:
    """Members of a group stay members, and a group that was there is there."""
    make_topic(broker, "work", 4)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with (
        Member(broker.bootstrap, "workers", ["work"], reconnect_backoff_max_ms=200) as one,
        Member(broker.bootstrap, "workers", ["work"], reconnect_backoff_max_ms=200) as two,
    ):
        eventually(lambda: len(one.owned) == len(two.owned) == 2, within=20)
        broker.kill()
        broker.start()
        sender = producer(broker.bootstrap)
        for number in range(40):
            sender.produce("work", b"%d" % number, partition=number % 4)
        sender.flush(20)
        eventually(lambda: len(set(one.seen + two.seen)) == 40, within=30)
        settled([one, two], "work", 4)
        described = admin.describe_consumer_groups(["workers"])["workers"].result(10)
        assert len(described.members) == 2
