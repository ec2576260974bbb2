"""Small things every pika test does."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import pika
from pika.adapters.blocking_connection import BlockingChannel


class Got(NamedTuple):
    """A message as it was delivered."""

    method: Any
    properties: pika.BasicProperties
    body: bytes


def put(
    channel: BlockingChannel,
    routing_key: str,
    *bodies: bytes,
    exchange: str = "",
    **properties: Any,
) -> None:
    for body in bodies:
        channel.basic_publish(exchange, routing_key, body, pika.BasicProperties(**properties))


def get(channel: BlockingChannel, queue: str, *, within: float = 5.0, ack: bool = True) -> Got:
    """The next message; fails when none comes."""
    deadline = time.monotonic() + within
    while True:
        method, properties, body = channel.basic_get(queue, auto_ack=ack)
        if method is not None:
            return Got(method, properties, body)
        assert time.monotonic() < deadline, f"nothing in {queue} within {within} s"
        time.sleep(0.02)


def drain(channel: BlockingChannel, queue: str, count: int, *, within: float = 10.0) -> list[Got]:
    """That many messages, acknowledged."""
    return [get(channel, queue, within=within) for _ in range(count)]


def is_empty(channel: BlockingChannel, queue: str) -> bool:
    method, _, _ = channel.basic_get(queue, auto_ack=True)
    return method is None


def waiting(channel: BlockingChannel, queue: str) -> int:
    """How many messages are ready."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def consume(
    channel: BlockingChannel, queue: str, count: int, *, within: float = 10.0, **options: Any
) -> list[Got]:
    """Consume until that many came, without acknowledging; the consumer stays."""
    got: list[Got] = []
    channel.basic_consume(queue, lambda _, m, p, b: got.append(Got(m, p, b)), **options)
    until(channel.connection, lambda: len(got) >= count, within=within)
    return got


def until(connection: Any, question: Any, *, within: float = 10.0) -> None:
    """Serve the connection until the answer is yes."""
    deadline = time.monotonic() + within
    while not question():
        assert time.monotonic() < deadline, f"not so within {within} s"
        connection.process_data_events(0.05)


def settle_for(connection: Any, seconds: float) -> None:
    """Serve the connection for a while, to see that nothing more comes."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        connection.process_data_events(0.05)
