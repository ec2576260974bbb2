"""The library in both homes: every test that takes `mq` runs in this process and over the network.

The network is a real `penstock serve`, or the broker at PENSTOCK_TEST_BOOTSTRAP.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock import Client
from support.broker import BrokerProcess, ForeignBroker, doors
from support.naming import unique

HOMES = ["in-process", "network"]
KEPT = {"retention.ms": -1}  # tests write messages of long ago


@pytest.fixture(params=HOMES)
def home(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def open_mq(
    home: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Client]]:
    """open_mq(backpressure="raise") is a client of this home, closed after the test."""
    opened: list[Client] = []

    def make(**options: object) -> Client:
        if home == "in-process":
            data = tmp_path / f"data-{len(opened)}"
            client: Client = penstock.open(data, **options)  # type: ignore[arg-type]
        else:
            broker: BrokerProcess | ForeignBroker = request.getfixturevalue("broker")
            wanted = {**doors(broker), **options}
            client = penstock.connect(broker.bootstrap, **wanted)  # type: ignore[arg-type]
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.close()


@pytest.fixture(scope="session")
def network(broker: BrokerProcess | ForeignBroker) -> Iterator[Client]:
    """The one connection of the tests that want nothing special of it, as a program has one."""
    with penstock.connect(broker.bootstrap, **doors(broker)) as client:
        yield client


@pytest.fixture
def mq(home: str, open_mq: Callable[..., Client], request: pytest.FixtureRequest) -> Client:
    if home == "in-process":
        return open_mq()
    client: Client = request.getfixturevalue("network")
    return client


@pytest.fixture
def topic(mq: Client) -> str:
    """A topic of one partition."""
    name = unique("topic")
    mq.admin.create_topic(name, partitions=1, config=KEPT)
    return name


@pytest.fixture
def wide(mq: Client) -> str:
    """A topic of four partitions."""
    name = unique("wide")
    mq.admin.create_topic(name, partitions=4, config=KEPT)
    return name


@pytest.fixture
def group() -> str:
    return unique("group")
