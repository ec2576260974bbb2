"""Publishing over the network: librdkafka's producer, and a thread that hears its reports."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.client.errors import InvalidArgument, PenstockError
from penstock.client.home import WhenWritten
from penstock.client.message import Receipt
from penstock.client.outgoing import Outgoing, Row
from penstock.client.partitioner import Partitioner, Sticky, checked
from penstock.client.receipts import WrittenBatch
from penstock.client.remote_errors import of_kafka_error, of_refusal

if TYPE_CHECKING:
    from confluent_kafka import Producer

_COUNT_SECONDS = 30.0  # how long a topic's partition count is believed


class RemoteWriter:
    """One producer. Everything may be called from any thread."""

    def __init__(
        self, producer: Producer, partitioner: Partitioner, count: Callable[[str], int]
    ) -> None:
        from confluent_kafka import KafkaException

        self._producer = producer
        self._refusals = (KafkaException, RuntimeError)
        # librdkafka's own partitioner is murmur2 and sticky: exactly our default, in C.
        self._partitioner = None if isinstance(partitioner, Sticky) else partitioner
        self._count = count
        self._counts: dict[str, tuple[float, int]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="penstock-acks", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        from confluent_kafka import KafkaException

        while not self._is_over.is_set():
            # A producer that broke down raises here; each message is told by its own report.
            with contextlib.suppress(KafkaException, SystemError):
                self._producer.poll(0.1)

    def check_may_wait(self) -> None:
        """The thread that brings the reports must not wait for one."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call inside a delivery callback would wait for ever")

    def choose(self, topic: str, partition: int, key: bytes | None) -> int:
        """The partition to name to librdkafka, -1 to let it choose."""
        if partition >= 0 or self._partitioner is None:
            return partition
        known = self._counts.get(topic)
        if known is None or known[0] < time.monotonic():
            known = (time.monotonic() + _COUNT_SECONDS, self._count(topic))
            self._counts[topic] = known
        try:
            chosen = self._partitioner.partition(topic, key, known[1])
        except Exception as failure:  # a user's function
            raise InvalidArgument(f"the partitioner failed: {failure!r}") from failure
        return checked(chosen, topic, known[1])

    def enqueue(self, outgoing: Outgoing) -> None:
        row: Row = (
            outgoing.key,
            outgoing.value,
            outgoing.headers,
            outgoing.timestamp_ms,
            outgoing.partition,
        )
        self._produce(outgoing.topic, row, partial(_report, outgoing))

    def _produce(self, topic: str, row: Row, report: Callable[[Any, Any], None]) -> None:
        key, value, headers, timestamp_ms, partition = row
        if partition < 0 and self._partitioner is not None:
            partition = self.choose(topic, partition, key)
        while True:
            try:
                if headers or timestamp_ms > 0:
                    self._producer.produce(
                        topic,
                        value,
                        key,
                        partition,
                        report,
                        timestamp=max(timestamp_ms, 0),
                        headers=list(headers) or None,
                    )
                else:
                    self._producer.produce(topic, value, key, partition, report)
                return
            except BufferError:  # librdkafka's own queue is full: let it get on
                time.sleep(0.01)
            except self._refusals as failure:
                raise of_refusal(failure, f"publishing to {topic}") from failure

    def write(self, topic: str, rows: Sequence[Row], done: WhenWritten) -> None:
        flight = _Flight(topic, len(rows), done)
        produce, landed = self._produce, flight.landed
        for index, row in enumerate(rows):
            try:
                produce(topic, row, partial(landed, index))
            except PenstockError as failure:
                flight.failed(failure)

    def flush(self, timeout: float) -> None:
        self._producer.flush(timeout)

    def close(self, timeout: float) -> None:
        self._producer.flush(timeout)
        self._is_over.set()
        self._thread.join()


def _report(outgoing: Outgoing, error: Any, message: Any) -> None:
    if error is not None:
        outgoing.settle(None, of_kafka_error(error, f"publishing to {outgoing.topic}"))
        return
    outgoing.settle(
        Receipt(
            outgoing.topic,
            message.partition(),
            message.offset(),
            message.timestamp()[1],
            outgoing.message_id,
        ),
        None,
    )


class _Flight:
    """Many messages on their way; `done` when the last of them has been reported."""

    def __init__(self, topic: str, count: int, done: WhenWritten) -> None:
        self._topic = topic
        self._count = count
        self._failed = 0
        self._is_over = False
        self._done = done
        self._lock = threading.Lock()
        self._places: list[tuple[int, int, int]] = []  # partition, offset, index
        self._failure: PenstockError | None = None

    def landed(self, index: int, error: Any, message: Any) -> None:
        if error is not None:
            self.failed(of_kafka_error(error, f"publishing to {self._topic}"))
            return
        self._places.append((message.partition(), message.offset(), index))
        if len(self._places) + self._failed == self._count:
            self._end()

    def failed(self, failure: PenstockError) -> None:
        with self._lock:
            self._failure = failure
            self._failed += 1
        if len(self._places) + self._failed == self._count:
            self._end()

    def _end(self) -> None:
        """Reports come on one thread; the refusal of a message that was never sent, on another."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        if self._failure is not None:
            self._done(None, self._failure)
        else:
            self._done(self._batches(), None)

    def _batches(self) -> list[WrittenBatch]:
        """Neighbours in the log as one batch."""
        batches: list[WrittenBatch] = []
        indexes: list[int] = []
        expected = (-1, -1)
        for partition, offset, index in sorted(self._places):
            if (partition, offset) != expected:
                indexes = []
                batches.append(WrittenBatch(self._topic, partition, offset, indexes))
            indexes.append(index)
            expected = (partition, offset + 1)
        return batches
