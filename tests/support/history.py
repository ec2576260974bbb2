"""What producers were told, held against what a reader finds: lost, doubled, moved, reordered.

The bookkeeping of Jepsen's kafka workload in small. A value is written once by one producer to one
partition, and says so: `producer:partition:number`, numbers growing. So the log itself is enough
to find a duplicate or a wrong order, and the acknowledgements to find a loss.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, defaultdict
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.broker import BrokerProcess
from support.clients.confluent import consumer, producer


class Writer(threading.Thread):
    """An idempotent producer that writes to every partition in turn until it is told to stop."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, number: int, **options: Any
    ) -> None:
        super().__init__(daemon=True)
        self.topic, self.partitions, self.number = topic, partitions, number
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.refused: dict[bytes, str] = {}
        self.done = threading.Event()
        self.fatal: str | None = None
        settings = {
            "enable_idempotence": True,
            "delivery_timeout_ms": 120_000,
            "reconnect_backoff_max_ms": 200,
            "retry_backoff_ms": 20,
            "queue_buffering_max_messages": 20_000,
            "error_cb": self._on_error,
            "log_level": 0,
        }
        self.producer = producer(bootstrap, **{**settings, **options})

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.fatal = error.str()

    def _report(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.value()] = (message.partition(), message.offset())
        else:
            self.refused[message.value()] = error.name()

    def run(self) -> None:
        number = 0
        while not self.done.is_set() and self.fatal is None:
            partition = number % self.partitions
            value = b"%d:%d:%d" % (self.number, partition, number // self.partitions)
            try:
                self.producer.produce(
                    self.topic, value, partition=partition, on_delivery=self._report
                )
                number += 1
            except BufferError:
                self.producer.poll(0.05)
            self.producer.poll(0)
            if number % 200 == 0:
                time.sleep(0.02)  # leave the broker a share of the processor

    def finish(self, *, within: float = 60.0) -> None:
        """Stop writing and wait for every answer that is still owed."""
        self.done.set()
        self.join(within)
        left = self.producer.flush(within)
        assert self.fatal is None, f"producer {self.number}: {self.fatal}"
        assert left == 0, f"producer {self.number}: {left} records without an answer"
        assert not self.refused, f"producer {self.number}: {Counter(self.refused.values())}"


def make_topic(broker: BrokerProcess, topic: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(15)


class Committer(threading.Thread):
    """Commits growing offsets for a group, and remembers which commits were acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, group: str) -> None:
        super().__init__(daemon=True)
        self.done = threading.Event()
        self.topic, self.partitions = topic, partitions
        self.acknowledged: dict[int, int] = {}
        self.source = consumer(bootstrap, group, reconnect_backoff_max_ms=200, log_level=0)

    def run(self) -> None:
        number = 0
        while not self.done.is_set():
            number += 1
            place = TopicPartition(self.topic, number % self.partitions, number)
            with contextlib.suppress(KafkaException):
                (done,) = self.source.commit(offsets=[place], asynchronous=False)
                if done.error is None:
                    self.acknowledged[place.partition] = place.offset
        self.source.close()


def assert_commits_kept(
    broker: BrokerProcess, group: str, topic: str, promised: dict[int, int]
) -> None:
    """Commits that were acknowledged before the kill are there after it, or newer ones."""
    if not promised:
        return
    source = consumer(broker.bootstrap, group, log_level=0)
    asked = [TopicPartition(topic, partition) for partition in promised]
    for place in source.committed(asked, timeout=20):
        assert place.offset >= promised[place.partition], (
            f"partition {place.partition}: {promised[place.partition]} was committed, "
            f"{place.offset} came back"
        )
    source.close()


def contents(bootstrap: str, topic: str, partition: int, *, level: str = "read_uncommitted") -> Any:
    """{offset: value} of a whole partition."""
    source = consumer(bootstrap, enable_partition_eof=True, isolation_level=level)
    source.assign([TopicPartition(topic, partition, 0)])
    found: dict[int, bytes] = {}
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline, f"partition {partition} has no end"
        for message in source.consume(10_000, timeout=0.5):
            if message.error():
                assert message.error().name() == "_PARTITION_EOF", message.error()
                source.close()
                return found
            found[message.offset()] = message.value()


def check(writers: list[Writer], log: dict[int, dict[int, bytes]]) -> int:
    """Every acknowledged record is there exactly once, where it was said to be, and in order."""
    problems: list[str] = []
    for partition, records in log.items():
        for value, times in Counter(records.values()).items():
            if times > 1:
                problems.append(f"doubled: {value!r} {times} times in partition {partition}")
        last: dict[int, int] = defaultdict(lambda: -1)
        for offset in sorted(records):
            who, where, number = (int(part) for part in records[offset].split(b":"))
            if where != partition:
                problems.append(f"strayed: {records[offset]!r} in partition {partition}")
            if number <= last[who]:
                problems.append(f"out of order: {records[offset]!r} at {offset} after {last[who]}")
            last[who] = number
    acknowledged = 0
    for writer in writers:
        for value, (partition, offset) in writer.acknowledged.items():
            acknowledged += 1
            found = log[partition].get(offset)
            if found != value:
                problems.append(
                    f"lost: {value!r} was acknowledged at {partition}/{offset}, {found!r}"
                )
    assert not problems, f"{len(problems)} problems, first: {problems[:5]}"
    return acknowledged
