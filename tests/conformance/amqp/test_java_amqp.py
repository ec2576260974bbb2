"""RabbitMQ's Java client; the scenarios are in java/Rabbit.java and check themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from support.clients.java import PROGRAMS, RABBITMQ, Jvm, jars
from support.naming import unique


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jvm]:
    """A JVM with RabbitMQ's client, when the machine has Java and Maven."""
    libraries, why = jars(RABBITMQ)
    if libraries is None:
        pytest.skip(why)
    programs = [PROGRAMS / "Main.java", Path(__file__).parent / "java" / "Rabbit.java"]
    running = Jvm(tmp_path_factory.mktemp("rabbit"), RABBITMQ, programs)
    yield running
    running.close()


@pytest.mark.parametrize(
    "scenario", ["work", "properties", "returns", "errors", "calls", "transactions"]
)
def test_the_java_client(rabbit: Jvm, amqp: Any, scenario: str) -> None:
    rabbit.do(f"Rabbit.{scenario}", str(amqp.port), unique(scenario))


@pytest.mark.own_broker
def test_the_java_client_comes_back_by_itself(rabbit: Jvm, amqp: Any, broker: Any) -> None:
    name = unique("recovery")

    def close(_: str) -> None:
        with httpx.Client(base_url=f"{broker.http}/api", auth=("guest", "guest")) as api:
            for one in api.get("/connections").json():
                if one["client_properties"].get("connection_name") == name:
                    api.delete("/connections/" + quote(one["name"], safe="")).raise_for_status()

    rabbit.do("Rabbit.recovery", str(amqp.port), name, on_line=close)
