"""Transactions are whole after SIGKILL: what was committed is there once, what was not is nowhere.

Two producers made of raw requests, one of the classic flow and one of transactions v2, write over
three partitions while the broker is killed at random moments. A producer that was not told how its
commit ended asks again, or comes back as a new instance, which aborts what is undecided.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kio.schema.errors import ErrorCode as E

from support.batches import batch
from support.broker import BrokerProcess
from support.waiting import eventually
from support.wire import ConnectionClosed, Wire, create_topic

pytestmark = pytest.mark.own_broker

KILLS = 8
TOPIC, PARTITIONS, PER_PARTITION = "ledger", 3, 2
_BUSY = (E.concurrent_transactions, E.coordinator_not_available)


class Writer:
    """A transactional producer that remembers what it was told."""

    def __init__(self, name: str, version: int, seed: int) -> None:
        self.name = name
        self.version = version
        self.random = random.Random(seed)
        self.number = 0
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.unanswered: dict[str, Any] | None = None  # an EndTxn whose answer did not come

    def run(self, broker: BrokerProcess, until: threading.Event) -> None:
        """Write transactions until the connection breaks or somebody says it is enough."""
        try:
            with Wire(broker.host, broker.port) as wire:
                self._resume(wire)
                while not until.is_set():
                    self._transaction(wire)
        except (ConnectionClosed, OSError):
            return

    def _resume(self, wire: Wire) -> None:
        if self.unanswered is not None and self.random.random() < 0.5:
            code = self._end(wire, self.unanswered)
            if code is E.none:
                self._settle(self.unanswered)
            elif self.version == 2:  # the transaction itself did not survive, or was aborted
                assert code in (E.invalid_txn_state, E.producer_fenced), code
        self.unanswered = None
        self.identity = self._until_free(wire, "init_producer_id", 4, transaction_timeout=60_000)
        self.sequences = Counter[int]()

    def _transaction(self, wire: Wire) -> None:
        self.number += 1
        for partition in range(PARTITIONS):
            self._write(wire, partition)
        request = {
            "transactional_id": self.name,
            "producer_id": self.identity.producer_id,
            "producer_epoch": self.identity.producer_epoch,
            "committed": self.random.random() < 0.7,
        }
        self.unanswered = request
        code = self._end(wire, request)
        assert code is E.none, code
        self._settle(request)
        self.unanswered = None

    def _end(self, wire: Wire, request: dict[str, Any]) -> E:
        version = 5 if self.version == 2 else 3
        while (answer := wire.call("end_txn", version, request)).error_code in _BUSY:
            time.sleep(0.01)
        if answer.error_code is E.none and self.version == 2:
            self.identity = answer
            self.sequences = Counter[int]()
        return E(answer.error_code)

    def _settle(self, request: dict[str, Any]) -> None:
        (self.committed if request["committed"] else self.aborted).add(self.number)

    def _write(self, wire: Wire, partition: int) -> None:
        producer = (self.identity.producer_id, self.identity.producer_epoch)
        if self.version != 2:
            answer = self._until_free(
                wire,
                "add_partitions_to_txn",
                3,
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[{"name": TOPIC, "partitions": [partition]}],
            )
            (row,) = answer.results_by_topic_v3_and_below[0].results_by_partition
            assert row.partition_error_code is E.none, row
        records = batch(
            [f"{self.name}:{self.number}".encode()] * PER_PARTITION,
            producer=producer,
            sequence=self.sequences[partition],
            transactional=True,
        )
        values = {
            "transactional_id": self.name,
            "acks": -1,
            "timeout": 5_000,
            "topic_data": [
                {"name": TOPIC, "partition_data": [{"index": partition, "records": records}]}
            ],
        }
        answer = wire.call("produce", 12 if self.version == 2 else 9, values)
        (written,) = answer.responses[0].partition_responses
        assert written.error_code is E.none, written
        self.sequences[partition] += PER_PARTITION

    def _until_free(self, wire: Wire, api: str, version: int, **values: Any) -> Any:
        values.setdefault("transactional_id", self.name)
        values.setdefault("producer_id", -1)
        values.setdefault("producer_epoch", -1)
        while getattr(answer := wire.call(api, version, values), "error_code", None) in _BUSY:
            time.sleep(0.01)
        return answer


def read_committed(broker: BrokerProcess) -> Counter[tuple[str, int, int]]:
    """How often each (writer, transaction, partition) is seen; ends when every partition does."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "judge",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: Counter[tuple[str, int, int]] = Counter()
    ended: set[int] = set()

    def all_ended() -> bool:
        for message in consumer.consume(1_000, 0.2):
            partition, value = message.partition(), message.value()
            assert partition is not None
            if message.error():
                ended.add(partition)
                continue
            assert value is not None
            name, number = value.decode().split(":")
            found[name, int(number), partition] += 1
        return len(ended) == PARTITIONS

    eventually(all_ended, within=30, every=0)
    consumer.close()
    return found


def test_transactions_are_whole_after_kills(start_broker: Callable[..., BrokerProcess]) -> None:
    broker = start_broker()
    with Wire(broker.host, broker.port) as wire:
        create_topic(wire, TOPIC, partitions=PARTITIONS)
    writers = [Writer("classic", 0, 1), Writer("version-two", 2, 2)]
    moments = random.Random(3)
    for round_ in range(KILLS + 1):
        enough = threading.Event()
        threads = [
            threading.Thread(target=writer.run, args=(broker, enough), daemon=True)
            for writer in writers
        ]
        counts = [writer.number for writer in writers]
        for thread in threads:
            thread.start()
        eventually(
            lambda counts=counts: all(  # type: ignore[misc]
                writer.number > count + 1 for writer, count in zip(writers, counts, strict=True)
            )
        )
        time.sleep(moments.uniform(0, 0.3))
        if round_ == KILLS:
            enough.set()
        else:
            broker.kill()
        for thread in threads:
            thread.join(20)
            assert not thread.is_alive()
        if round_ < KILLS:
            broker.start()
    found = read_committed(broker)
    for writer in writers:
        for number in range(1, writer.number + 1):
            seen = [found[writer.name, number, partition] for partition in range(PARTITIONS)]
            whole, nothing = [PER_PARTITION] * PARTITIONS, [0] * PARTITIONS
            assert seen in (whole, nothing), f"{writer.name} {number} is torn: {seen}"
            if number in writer.committed:
                assert seen == whole, f"{writer.name} {number} was committed: {seen}"
            if number in writer.aborted:
                assert seen == nothing, f"{writer.name} {number} was aborted: {seen}"
        assert writer.committed
