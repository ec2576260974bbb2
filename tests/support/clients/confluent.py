"""confluent-kafka (librdkafka) behind the shape of `support.clients`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from support.clients import Record, Refused

PATIENCE_S = 10.0

# When its only broker is down, librdkafka begins anew from its bootstrap servers (KIP-899) and may
# then wait for ever for the handle it threw away. What is tested here is the broker.
KEEP_BROKERS = {"metadata.recovery.strategy": "none"}


def consumer(bootstrap: str, group: str = "unused", **options: Any) -> Consumer:
    """A consumer with the options a test wants quick, and `options` with underscores for dots."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "check.crcs": True,
        **KEEP_BROKERS,
    }
    return Consumer({**settings, **_dotted(options)})


def producer(bootstrap: str, **options: Any) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, **KEEP_BROKERS}
    return Producer({**settings, **_dotted(options)})


def _dotted(options: dict[str, Any]) -> dict[str, Any]:
    """Settings as librdkafka names them; callbacks keep their underscore."""
    return {
        name if name.endswith(("_cb", "log_level")) else name.replace("_", "."): value
        for name, value in options.items()
    }


def take(source: Consumer, count: int, *, within: float = PATIENCE_S) -> list[Any]:
    """`count` messages; an error from the broker is raised, too few in time is a failure."""
    taken: list[Any] = []
    deadline = time.monotonic() + within
    while len(taken) < count:
        assert time.monotonic() < deadline, f"{len(taken)} of {count} messages in {within} s"
        for message in source.consume(count - len(taken), timeout=0.2):
            if message.error():
                raise KafkaException(message.error())
            taken.append(message)
    return taken


def as_record(message: Any) -> Record:
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Record(
        message.value(),
        message.key(),
        headers,
        message.timestamp()[1],
        message.partition(),
        message.offset(),
    )


def deliver(sender: Producer, topic: str, records: Sequence[Record]) -> list[int]:
    """Produce and wait for every delivery report; the offsets, or Refused with the error's name."""
    offsets: dict[int, int] = {}
    errors: list[Any] = []

    def reported(number: int) -> Any:
        def report(error: Any, message: Any) -> None:
            if error is None:
                offsets[number] = message.offset()
            else:
                errors.append(error)

        return report

    for number, record in enumerate(records):
        extra = {} if record.timestamp is None else {"timestamp": record.timestamp}
        sender.produce(
            topic,
            record.value,
            record.key,
            partition=record.partition,
            headers=list(record.headers),
            on_delivery=reported(number),
            **extra,
        )
    left = sender.flush(PATIENCE_S)
    if errors:
        raise Refused(errors[0].name(), errors[0].str())
    assert left == 0, f"{left} records without an answer after {PATIENCE_S} s"
    return [offsets[number] for number in range(len(records))]


class Confluent:
    name = "confluent"

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        sender = producer(
            self.bootstrap,
            compression_codec=codec,
            acks=acks,
            enable_idempotence=idempotent,
            message_max_bytes=20_000_000,
        )
        offsets = deliver(sender, topic, records)
        return [] if acks == "0" else offsets

    def read(
        self,
        topic: str,
        count: int,
        *,
        start: int = 0,
        partition: int = 0,
        committed_only: bool = False,
    ) -> list[Record]:
        level = "read_committed" if committed_only else "read_uncommitted"
        source = consumer(self.bootstrap, isolation_level=level)
        try:
            source.assign([TopicPartition(topic, partition, start)])
            return [as_record(message) for message in take(source, count)]
        finally:
            source.close()

    def offset_at(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        source = consumer(self.bootstrap)
        try:
            (found,) = source.offsets_for_times(
                [TopicPartition(topic, partition, timestamp)], timeout=PATIENCE_S
            )
            assert found.error is None, found.error
            return None if found.offset == confluent_kafka.OFFSET_END else int(found.offset)
        finally:
            source.close()

    def watermarks(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        source = consumer(self.bootstrap)
        try:
            low, high = source.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=PATIENCE_S
            )
            return low, high
        finally:
            source.close()

    def read_group(self, topic: str, group: str, count: int) -> list[Record]:
        source = consumer(self.bootstrap, group, session_timeout_ms=6000)
        try:
            source.subscribe([topic])
            taken = [as_record(message) for message in take(source, count, within=20)]
            source.commit(asynchronous=False)
            return taken
        finally:
            source.close()
