"""kombu over py-amqp: producers, consumers, mixins, simple queues, and its errors."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import kombu
import pytest
from amqp.exceptions import NotFound, PreconditionFailed
from kombu.mixins import ConsumerMixin
from kombu.pools import producers

from support.naming import unique


@pytest.fixture
def connection(amqp: Any) -> Iterator[kombu.Connection]:
    with kombu.Connection(amqp.url + "/", heartbeat=10) as one:
        yield one


def test_a_producer_declares_and_a_consumer_gets(connection: kombu.Connection) -> None:
    exchange = kombu.Exchange(unique("tasks"), "topic", durable=False, auto_delete=True)
    queue = kombu.Queue(unique("tasks"), exchange, "task.#", exclusive=True)
    got: list[Any] = []
    with connection.Producer(serializer="json") as producer:
        queue(connection.default_channel).declare()
        producer.publish({"hello": "wörld"}, exchange=exchange, routing_key="task.new",
                         headers={"id": 1}, compression="zlib", retry=True)  # fmt: skip
        with connection.Consumer(queue, callbacks=[lambda body, m: (got.append(body), m.ack())]):
            connection.drain_events(timeout=5)
    assert got == [{"hello": "wörld"}]


def test_simple_queues(connection: kombu.Connection) -> None:
    simple = connection.SimpleQueue(unique("simple"), no_ack=False)
    for number in range(5):
        simple.put({"n": number})
    for number in range(5):
        message = simple.get(block=True, timeout=5)
        assert message.payload == {"n": number}
        message.ack()
    with pytest.raises(simple.Empty):
        simple.get(block=False)
    simple.close()
    simple.queue(connection.channel()).delete()


def test_confirms_are_waited_for(amqp: Any) -> None:
    options = {"confirm_publish": True}
    with kombu.Connection(amqp.url + "/", transport_options=options) as connection:
        queue = kombu.Queue(unique("confirmed"), channel=connection.default_channel, exclusive=True)
        queue.declare()
        with producers[connection].acquire(block=True) as producer:
            for number in range(20):
                producer.publish(str(number), routing_key=queue.name, mandatory=True)
        assert queue.get(no_ack=True).body == "0"


def test_messages_are_requeued_and_rejected(connection: kombu.Connection) -> None:
    queue = kombu.Queue(unique("settled"), channel=connection.default_channel, exclusive=True)
    queue.declare()
    connection.Producer().publish("x", routing_key=queue.name)
    message = queue.get()
    message.requeue()
    again = queue.get()
    assert again.delivery_info["redelivered"]
    again.reject()
    assert queue.get() is None


def test_a_mixin_consumes_until_told_to_stop(connection: kombu.Connection) -> None:
    queue = kombu.Queue(unique("mixin"), durable=False, auto_delete=True)
    queue(connection.default_channel).declare()

    class Worker(ConsumerMixin):
        seen = 0

        def __init__(self) -> None:
            self.connection = connection

        def get_consumers(self, consumer: Any, channel: Any) -> list[Any]:
            return [consumer([queue], callbacks=[self.work], prefetch_count=5)]

        def work(self, body: Any, message: Any) -> None:
            message.ack()
            self.seen += 1
            self.should_stop = self.seen == 20

    for number in range(20):
        connection.Producer().publish({"n": number}, routing_key=queue.name)
    worker = Worker()
    worker.run()
    assert worker.seen == 20


def test_errors_are_exceptions_of_their_own(connection: kombu.Connection) -> None:
    missing = kombu.Queue(unique("nope"), channel=connection.channel())
    with pytest.raises(NotFound):
        missing.queue_declare(passive=True)
    name = unique("strict")
    kombu.Queue(name, channel=connection.channel(), auto_delete=True, durable=False).declare()
    with pytest.raises(PreconditionFailed):
        kombu.Queue(name, channel=connection.channel(), auto_delete=True, durable=True).declare()
    kombu.Queue(name, channel=connection.channel()).delete()


def test_priorities_and_expiration(connection: kombu.Connection) -> None:
    queue = kombu.Queue(
        unique("priorities"), channel=connection.channel(), exclusive=True, max_priority=9
    )
    queue.declare()
    producer = connection.Producer()
    for priority in (0, 9, 5):
        producer.publish(priority, routing_key=queue.name, priority=priority)
    producer.publish("gone", routing_key=queue.name, priority=9, expiration=0.001)
    time.sleep(0.1)
    assert [queue.get(no_ack=True).payload for _ in range(3)] == [9, 5, 0]


def test_nothing_to_drain_times_out(connection: kombu.Connection) -> None:
    queue = kombu.Queue(unique("empty"), exclusive=True)
    with connection.Consumer(queue), pytest.raises(socket.timeout):
        connection.drain_events(timeout=0.2)


def test_heartbeats_are_checked(amqp: Any) -> None:
    with kombu.Connection(amqp.url + "/", heartbeat=2) as connection:
        connection.ensure_connection()
        for _ in range(6):
            connection.heartbeat_check()
            with pytest.raises(socket.timeout):
                connection.drain_events(timeout=0.5)
        assert connection.connected
