"""Reading single partitions over the network, without a group.

Making a consumer takes some ten milliseconds, so those that have been used are kept for the next
caller.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.client.errors import Closed, TimedOut
from penstock.client.message import Message
from penstock.client.remote_errors import kafka_errors, of_kafka_error
from penstock.client.remote_settings import RemoteSettings
from penstock.client.remote_stream import MessageChunk, to_message
from penstock.model.ids import TopicPartition

_MOST_KEPT = 4
_MOST_MESSAGES = 10_000


class RemoteReader:
    """Consumers to lend. Used from any thread."""

    def __init__(self, settings: RemoteSettings) -> None:
        self._settings = settings
        self._kept: list[Any] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @contextmanager
    def borrowed(self) -> Iterator[Any]:
        """A consumer for as long as the block lasts."""
        with self._lock:
            if self._is_closed:
                raise Closed("it is closed; connect again")
            consumer = self._kept.pop() if self._kept else None
        if consumer is None:
            consumer = self._new()
        try:
            yield consumer
        except BaseException:
            consumer.close()
            raise
        with self._lock:
            if len(self._kept) < _MOST_KEPT and not self._is_closed:
                self._kept.append(consumer)
                return
        consumer.close()

    def _new(self) -> Any:
        from confluent_kafka import Consumer

        config = self._settings.consumer(f"penstock-reader-{uuid.uuid4()}", new_groups=False)
        with kafka_errors("reading"):
            return Consumer(
                {**config, "isolation.level": "read_committed", "auto.offset.reset": "error"}
            )

    def read(self, place: TopicPartition, offset: int, end: int) -> list[MessageChunk]:
        """Some of a partition from `offset` on, which ends at `end`."""
        from confluent_kafka import TopicPartition as KafkaPartition

        what = f"reading {place}"
        timeout = self._settings.timeout
        with self.borrowed() as consumer, kafka_errors(what):
            consumer.assign([KafkaPartition(*place, offset)])
            try:
                messages, reached = _consume(consumer, what, timeout, end)
            finally:
                consumer.unassign()
        next_offset = messages[-1].offset + 1 if messages else reached
        return [MessageChunk(place, messages, next_offset)] if next_offset > offset else []

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            kept, self._kept = self._kept, []
        for consumer in kept:
            consumer.close()


def _consume(consumer: Any, what: str, timeout: float, end: int) -> tuple[list[Message], int]:
    """Messages until there are many or the end is reached, which is told too (-1: it was not)."""
    messages: list[Message] = []
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        received = consumer.consume(1, 0.1)
        if received:
            received += consumer.consume(_MOST_MESSAGES, 0)
        for each in received:
            error = each.error()
            if error is None:
                messages.append(to_message(each))
            elif error.name() == "_PARTITION_EOF":
                return messages, each.offset()
            else:
                raise of_kafka_error(error, what)
        if messages and (len(messages) >= _MOST_MESSAGES or messages[-1].offset + 1 >= end):
            return messages, -1
    if messages:
        return messages, -1
    raise TimedOut(f"{what}: no answer within {timeout} s")
