"""kafka-python behind the shape of `support.clients`."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

from support.clients import Record, Refused

with warnings.catch_warnings():  # it still reads its schemas in a way that 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import (
        KafkaAdminClient,
        KafkaConsumer,
        KafkaProducer,
        OffsetAndMetadata,
        TopicPartition,
    )
    from kafka.errors import KafkaError

__all__ = [
    "KafkaAdminClient",
    "KafkaConsumer",
    "KafkaError",
    "KafkaProducer",
    "KafkaPython",
    "OffsetAndMetadata",
    "TopicPartition",
]

PATIENCE_S = 10.0


def consumer(bootstrap: str, group: str | None = None, **options: Any) -> KafkaConsumer:
    settings = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "fetch_max_wait_ms": 100,
    }
    return KafkaConsumer(**{**settings, **options})


def take(source: KafkaConsumer, count: int, *, within: float = PATIENCE_S) -> list[Any]:
    taken: list[Any] = []
    deadline = time.monotonic() + within
    while len(taken) < count:
        assert time.monotonic() < deadline, f"{len(taken)} of {count} messages in {within} s"
        for messages in source.poll(timeout_ms=200, max_records=count - len(taken)).values():
            taken += messages
    return taken


def as_record(message: Any) -> Record:
    headers = tuple((name, value) for name, value in message.headers)
    return Record(
        message.value,
        message.key,
        headers,
        message.timestamp,
        message.partition,
        message.offset,
    )


class KafkaPython:
    name = "kafka_python"

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
        sender = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == "all" else int(acks),
            enable_idempotence=idempotent,
            max_request_size=20_000_000,
            linger_ms=5,
        )
        try:
            futures = [
                sender.send(
                    topic,
                    record.value,
                    record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp,
                )
                for record in records
            ]
            try:
                done = [future.get(timeout=PATIENCE_S) for future in futures]
            except KafkaError as error:
                raise Refused(type(error).__name__, str(error)) from error
            return [] if acks == "0" else [one.offset for one in done]
        finally:
            sender.close(timeout=PATIENCE_S)

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
            where = TopicPartition(topic, partition)
            source.assign([where])
            source.seek(where, start)
            return [as_record(message) for message in take(source, count)]
        finally:
            source.close()

    def offset_at(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        source = consumer(self.bootstrap)
        try:
            where = TopicPartition(topic, partition)
            found = source.offsets_for_times({where: timestamp})[where]
            return None if found is None else int(found.offset)
        finally:
            source.close()

    def watermarks(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        source = consumer(self.bootstrap)
        try:
            where = TopicPartition(topic, partition)
            low, high = source.beginning_offsets([where]), source.end_offsets([where])
            return low[where], high[where]
        finally:
            source.close()

    def read_group(self, topic: str, group: str, count: int) -> list[Record]:
        source = consumer(self.bootstrap, group, session_timeout_ms=6000)
        try:
            source.subscribe([topic])
            taken = [as_record(message) for message in take(source, count, within=20)]
            source.commit()
            return taken
        finally:
            source.close()
