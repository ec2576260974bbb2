"""Fixtures of the AMQP conformance tests.

Set PENSTOCK_TEST_AMQP=host:port to run them against another broker, for example RabbitMQ: tests
marked `own_broker` are then deselected, all others hold there too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from support.amqp_wire import AmqpWire
from support.naming import unique

FOREIGN = os.environ.get("PENSTOCK_TEST_AMQP")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not FOREIGN:
        return
    ours = [
        item
        for item in items
        if item.get_closest_marker("own_broker") and "conformance/amqp" in str(item.path)
    ]
    config.hook.pytest_deselected(items=ours)
    items[:] = [item for item in items if item not in ours]


@dataclass(frozen=True)
class Amqp:
    """Where the AMQP door under test is."""

    host: str
    port: int
    is_penstock: bool

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.host}:{self.port}/"

    def parameters(self, **more: Any) -> pika.ConnectionParameters:
        options: dict[str, Any] = {"heartbeat": 0, "blocked_connection_timeout": 20, **more}
        return pika.ConnectionParameters(self.host, self.port, **options)


@pytest.fixture(scope="session")
def amqp(request: pytest.FixtureRequest) -> Amqp:
    if FOREIGN:
        host, port = FOREIGN.rsplit(":", 1)
        return Amqp(host, int(port), False)
    broker = request.getfixturevalue("broker")
    return Amqp(broker.host, broker.amqp_port, True)


@pytest.fixture
def connect(amqp: Amqp) -> Iterator[Callable[..., pika.BlockingConnection]]:
    """Open pika connections that are closed after the test."""
    opened: list[pika.BlockingConnection] = []

    def open_one(**options: Any) -> pika.BlockingConnection:
        opened.append(pika.BlockingConnection(amqp.parameters(**options)))
        return opened[-1]

    yield open_one
    for one in opened:
        if one.is_open:
            # Whoever was deleted meanwhile has lost the connection without having looked.
            with contextlib.suppress(pika.exceptions.ConnectionClosedByBroker):
                one.close()


@pytest.fixture
def connection(connect: Callable[..., pika.BlockingConnection]) -> pika.BlockingConnection:
    return connect()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    return connection.channel()


@pytest.fixture
def queue(channel: BlockingChannel) -> Iterator[str]:
    """A durable queue that is gone after the test."""
    name = unique("queue")
    channel.queue_declare(name, durable=True)
    yield name
    if channel.connection.is_open:
        channel.connection.channel().queue_delete(name)


@pytest.fixture
def exchange(channel: BlockingChannel) -> Iterator[Callable[..., str]]:
    """exchange("topic", **options) declares one that is gone after the test."""
    made: list[str] = []

    def declare(kind: str = "direct", **options: Any) -> str:
        made.append(unique(kind))
        channel.exchange_declare(made[-1], kind, **options)
        return made[-1]

    yield declare
    if channel.connection.is_open:
        other = channel.connection.channel()
        for name in made:
            other.exchange_delete(name)


@pytest.fixture
def wire(amqp: Amqp) -> Iterator[Callable[..., AmqpWire]]:
    """Open raw connections; wire() has done its handshake, wire(raw=True) has not."""
    opened: list[AmqpWire] = []

    def open_one(*, raw: bool = False, channels: int = 1, **options: Any) -> AmqpWire:
        one = AmqpWire(amqp.host, amqp.port)
        opened.append(one)
        if not raw:
            one.handshake(**options)
            for number in range(1, channels + 1):
                one.channel(number)
        return one

    yield open_one
    for one in opened:
        one.close()
