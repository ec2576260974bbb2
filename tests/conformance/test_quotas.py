"""Client quotas are not only kept: a client over its quota is told, and is slowed down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode

from support.broker import BrokerProcess, ForeignBroker
from support.wire import Wire

Name = Callable[[str], str]


@contextmanager
def quota(
    broker: BrokerProcess | ForeignBroker, client_id: str, key: str, value: float
) -> Iterator[None]:
    """A quota for one client id, for as long as it is needed."""
    entity = [{"entity_type": "client-id", "entity_name": client_id}]

    def alter(remove: bool) -> None:
        operation = {"key": key, "value": value, "remove": remove}
        entries = [{"entity": entity, "ops": [operation]}]
        with broker_wire(broker) as wire:
            answer = wire.call("alter_client_quotas", 1, {"entries": entries})
        assert [row.error_code for row in answer.entries] == [ErrorCode.none]

    alter(remove=False)
    time.sleep(0.5)  # a foreign broker may put it in force a moment later
    try:
        yield
    finally:
        alter(remove=True)


def broker_wire(broker: BrokerProcess | ForeignBroker) -> Wire:
    """A raw connection, whose client id is `raw`."""
    return Wire(broker.host, broker.port, timeout=60)


def test_a_pipelining_producer_over_its_quota_is_told_and_slowed_down(
    broker: BrokerProcess | ForeignBroker, name: Name
) -> None:
    client_id, told = name("slow"), []
    with quota(broker, client_id, "producer_byte_rate", 20_000):
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "client.id": client_id,
                "throttle_cb": lambda event: told.append(event.throttle_time),
                "linger.ms": 5,
                "batch.size": 10_000,
            }
        )
        topic, began = name("topic"), time.monotonic()
        answers: list[object] = []
        for _ in range(260):
            producer.produce(
                topic, b"x" * 1000, partition=0, on_delivery=lambda e, _: answers.append(e)
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        assert answers == [None] * 260
        took = time.monotonic() - began
    # 260,000 bytes at 20,000 a second are 13 seconds, of which ten may come in advance.
    assert took > 2
    assert max(told) > 0


def test_a_client_over_its_quota_of_request_time_is_slowed_down(
    broker: BrokerProcess | ForeignBroker, name: Name
) -> None:
    client_id = name("busy")
    # A tenth of a millisecond of work a second: a few requests use up what comes in advance.
    with quota(broker, client_id, "request_percentage", 0.01):
        client = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": client_id})

        def one_request() -> float:
            began = time.monotonic()
            client.list_topics(timeout=30)
            return time.monotonic() - began

        assert any(one_request() > 0.3 for _ in range(500))


def test_creating_topics_over_the_quota_is_refused_to_clients_that_understand(
    broker: BrokerProcess | ForeignBroker, name: Name
) -> None:
    def create(wire: Wire, partitions: int) -> tuple[ErrorCode, bool]:
        topic = {"name": name("topic"), "num_partitions": partitions, "replication_factor": 1}
        answer = wire.call("create_topics", 7, {"topics": [topic], "timeout": 5000})
        return ErrorCode(answer.topics[0].error_code), answer.throttle_time > timedelta()

    with (
        quota(broker, "raw", "controller_mutation_rate", 1),  # with a burst of 11
        broker_wire(broker) as wire,
    ):
        assert create(wire, 20) == (ErrorCode.none, False)
        assert create(wire, 1) == (ErrorCode.throttling_quota_exceeded, True)
