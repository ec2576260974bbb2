"""Fixtures of the conformance tests: the clients, topics of a test's own, raw connections."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.broker import BrokerProcess, ForeignBroker
from support.clients import Client
from support.clients.aio import AioKafka
from support.clients.confluent import Confluent
from support.clients.java import Java, Jvm, jars
from support.clients.kafka_python import KafkaPython
from support.clients.kcat import Kcat, install
from support.naming import unique
from support.wire import Wire

CLIENTS = ["confluent", "aiokafka", "kafka_python", "kcat", "java"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What a client leaves for the garbage collector is the client's business, not the broker's."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    """The JVM in which the Java client runs, when the machine has Java and Maven."""
    libraries, why = jars()
    if libraries is None:
        pytest.skip(why)
    running = Jvm(tmp_path_factory.mktemp("java"))
    yield running
    running.close()


@pytest.fixture
def java(jvm: Jvm, bootstrap: str) -> Callable[..., list[str]]:
    """java("Class.method", word, ...) runs a scenario of tests/conformance/java."""

    def run(scenario: str, *words: str, within: float = 60.0) -> list[str]:
        return jvm.do(scenario, bootstrap, *words, within=within)

    return run


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, bootstrap: str) -> Client:
    """Each client in turn."""
    match request.param:
        case "confluent":
            return Confluent(bootstrap)
        case "aiokafka":
            return AioKafka(bootstrap)
        case "kafka_python":
            return KafkaPython(bootstrap)
        case "kcat":
            if why := install():
                pytest.skip(why)
            return Kcat(bootstrap)
        case _:
            return Java(bootstrap, request.getfixturevalue("jvm"))


@pytest.fixture
def confluent(bootstrap: str) -> Confluent:
    """The client that prepares and checks when another one is under test."""
    return Confluent(bootstrap)


@pytest.fixture(scope="session")
def admin(broker: BrokerProcess | ForeignBroker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def make_topic(admin: AdminClient) -> Callable[..., str]:
    """make_topic(partitions=1, **{"cleanup.policy": ...}) creates a topic and gives its name."""

    def make(stem: str = "topic", *, partitions: int = 1, **config: Any) -> str:
        topic = unique(stem)
        settings = {name.replace("_", "."): str(value) for name, value in config.items()}
        (future,) = admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]).values()
        future.result(15)
        return topic

    return make


@pytest.fixture
def topic(make_topic: Callable[..., str]) -> str:
    """An empty topic of one partition."""
    return make_topic()


@pytest.fixture
def connect(broker: BrokerProcess | ForeignBroker) -> Iterator[Callable[[], Wire]]:
    """Open raw connections that are closed after the test."""
    opened: list[Wire] = []

    def open_one(**options: Any) -> Wire:
        opened.append(Wire(broker.host, broker.port, **options))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def wire(connect: Callable[[], Wire]) -> Wire:
    return connect()
