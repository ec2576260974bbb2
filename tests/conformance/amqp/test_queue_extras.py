"""What queues do here that plain RabbitMQ does not, or not so: time-outs, duplicates, retention."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pika
import pytest
from confluent_kafka import Consumer, TopicPartition
from pamqp import commands as c
from pika.adapters.blocking_connection import BlockingChannel

from support.amqp_pika import consume, drain, get, is_empty, put, settle_for, until, waiting
from support.amqp_wire import AmqpWire
from support.naming import unique
from support.waiting import eventually

pytestmark = pytest.mark.own_broker
Connect = Callable[..., pika.BlockingConnection]
Declare = Callable[..., str]


@pytest.fixture
def declare(channel: BlockingChannel) -> Iterator[Declare]:
    """declare(**{"x-...": ...}) is a queue with these arguments."""
    made: list[str] = []

    def make(**arguments: Any) -> str:
        made.append(unique("queue"))
        names = {name.replace("_", "-"): value for name, value in arguments.items()}
        channel.queue_declare(made[-1], durable=True, arguments=names)
        return made[-1]

    yield make
    for queue in made:
        channel.queue_delete(queue)


# --- time-outs ------------------------------------------------------------------------------------


def test_what_a_consumer_does_not_settle_in_time_goes_to_another(
    connect: Connect, channel: BlockingChannel, declare: Declare
) -> None:
    queue = declare(x_consumer_timeout=400)
    slow, quick = connect(), connect()
    slow_channel, quick_channel = slow.channel(), quick.channel()
    slow_channel.basic_qos(prefetch_count=1)
    put(channel, queue, b"1")
    [first] = consume(slow_channel, queue, 1)
    assert not first.method.redelivered
    slow_channel.basic_cancel(first.method.consumer_tag)
    [again] = consume(quick_channel, queue, 1)
    assert [again.body, again.method.redelivered] == [b"1", True]
    # The first one is late. Its ack is no error, and takes nothing away from the second.
    slow_channel.basic_ack(first.method.delivery_tag)
    settle_for(slow, 0.2)
    assert slow_channel.is_open
    quick_channel.basic_ack(again.method.delivery_tag)
    settle_for(quick, 0.2)
    assert is_empty(channel, queue)


def test_a_consumer_that_timed_out_is_given_more_when_it_settles(
    connect: Connect, channel: BlockingChannel, declare: Declare
) -> None:
    queue = declare(x_consumer_timeout=300)
    connection = connect()
    worker = connection.channel()
    worker.basic_qos(prefetch_count=1)
    put(channel, queue, b"1", b"2")
    got = consume(worker, queue, 1)
    settle_for(connection, 1.0)
    assert len(got) == 1  # who hangs is not fed
    worker.basic_ack(got[0].method.delivery_tag)
    until(connection, lambda: len(got) == 2)
    assert [got[1].body, got[1].method.redelivered] == [b"1", True]  # the ack was too late


def test_without_a_time_out_a_consumer_may_take_its_time(
    connect: Connect, channel: BlockingChannel, declare: Declare
) -> None:
    queue = declare()
    connection = connect()
    worker = connection.channel()
    put(channel, queue, b"1")
    got = consume(worker, queue, 1)
    settle_for(connection, 1.0)
    assert len(got) == 1


# --- duplicates -----------------------------------------------------------------------------------


def test_a_queue_takes_each_message_id_once_while_it_waits(
    channel: BlockingChannel, declare: Declare
) -> None:
    queue = declare(x_message_deduplication=True)
    channel.confirm_delivery()
    put(channel, queue, b"1", b"2", message_id="a")
    put(channel, queue, b"3", message_id="b")
    assert [one.body for one in drain(channel, queue, 2)] == [b"1", b"3"]
    put(channel, queue, b"4", message_id="a")  # the first one is gone
    assert get(channel, queue).body == b"4"


def test_a_window_of_duplicates_survives_a_restart(start_broker: Callable[..., Any]) -> None:
    broker = start_broker()
    arguments = {"x-message-deduplication": True, "x-deduplication-window-ms": 60_000}

    def open_one() -> BlockingChannel:
        parameters = pika.ConnectionParameters("127.0.0.1", broker.amqp_port, heartbeat=0)
        return pika.BlockingConnection(parameters).channel()

    channel = open_one()
    channel.queue_declare("q", durable=True, arguments=arguments)
    channel.confirm_delivery()
    put(channel, "q", b"1", message_id="a", delivery_mode=2)
    assert get(channel, "q").body == b"1"
    put(channel, "q", b"2", message_id="a", delivery_mode=2)
    assert is_empty(channel, "q")
    broker.kill()
    broker.start()
    channel = open_one()
    channel.confirm_delivery()
    put(channel, "q", b"3", message_id="a", delivery_mode=2)
    put(channel, "q", b"4", message_id="b", delivery_mode=2)
    eventually(lambda: waiting(channel, "q") >= 1)
    bodies = [one.body for one in drain(channel, "q", waiting(channel, "q"))]
    assert b"3" not in bodies
    assert bodies[-1] == b"4"
    channel.connection.close()


# --- retention ------------------------------------------------------------------------------------


def test_a_queue_with_retention_keeps_what_was_acknowledged_for_replay(
    channel: BlockingChannel, declare: Declare, broker: Any
) -> None:
    queue = declare(x_retention_ms=3_600_000)
    put(channel, queue, *[b"%d" % number for number in range(10)])
    drain(channel, queue, 10)
    time.sleep(6)  # what everybody acknowledged would be given back every five seconds
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": unique("replay")})
    reader.assign([TopicPartition(queue, 0, 0)])
    bodies: list[bytes] = []

    def read_all() -> bool:
        bodies.extend(one.value() for one in reader.consume(10, 0.5))
        return len(bodies) == 10

    eventually(read_all)
    reader.close()
    assert bodies == [b"%d" % number for number in range(10)]


# --- streams --------------------------------------------------------------------------------------


def test_a_reader_is_told_that_its_stream_is_gone(amqp: Any) -> None:
    one, two = (AmqpWire(amqp.host, amqp.port).handshake().channel(1) for _ in range(2))
    queue, stream = unique("stream"), {"x-queue-type": "stream"}
    one.call(1, c.Queue.Declare(queue=queue, durable=True, arguments=stream), c.Queue.DeclareOk)
    one.call(1, c.Basic.Qos(0, 10, False), c.Basic.QosOk)
    one.call(1, c.Basic.Consume(queue=queue, consumer_tag="t"), c.Basic.ConsumeOk)
    found = two.call(1, c.Queue.Declare(queue=queue, passive=True), c.Queue.DeclareOk)
    assert found.consumer_count == 1
    two.call(1, c.Queue.Delete(queue=queue), c.Queue.DeleteOk)
    assert one.expect(c.Basic.Cancel).consumer_tag == "t"
    one.close()
    two.close()


# --- policies -------------------------------------------------------------------------------------


@pytest.fixture
def policy(amqp: Any, broker: Any, declare: Declare) -> Iterator[Callable[..., None]]:
    """policy(queue, **definition) applies to that queue alone."""
    made: list[str] = []
    with httpx.Client(base_url=f"{broker.http}/api/policies/%2F", auth=("guest", "guest")) as api:

        def put_one(queue: str, **definition: Any) -> None:
            made.append(unique("policy"))
            terms = {name.replace("_", "-"): value for name, value in definition.items()}
            body = {"pattern": f"^{queue}$", "definition": terms}
            api.put(f"/{made[-1]}", json=body).raise_for_status()

        yield put_one
        for name in made:
            api.delete(f"/{name}").raise_for_status()


def test_a_policy_refuses_what_is_too_much(
    channel: BlockingChannel, declare: Declare, policy: Callable[..., None]
) -> None:
    queue = declare()
    policy(queue, max_length=1, overflow="reject-publish")
    channel.confirm_delivery()
    put(channel, queue, b"1")
    with pytest.raises(pika.exceptions.NackError):
        put(channel, queue, b"2")
    assert get(channel, queue).body == b"1"


def test_a_policy_limits_deliveries(
    channel: BlockingChannel, declare: Declare, policy: Callable[..., None]
) -> None:
    grave, queue = declare(), declare(x_queue_type="quorum")
    terms = {"dead_letter_exchange": "", "dead_letter_routing_key": grave}
    policy(queue, delivery_limit=1, **terms)
    put(channel, queue, b"1")
    for _ in range(2):
        channel.basic_nack(get(channel, queue, ack=False).method.delivery_tag)
    assert get(channel, grave).properties.headers["x-first-death-reason"] == "delivery_limit"


def test_a_policy_lets_a_queue_expire(
    connect: Connect, channel: BlockingChannel, declare: Declare, policy: Callable[..., None]
) -> None:
    queue = declare()
    policy(queue, expires=300)

    def is_gone() -> bool:
        other = connect().channel()
        try:
            other.queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as closed:
            return bool(closed.reply_code == 404)
        time.sleep(0.6)  # a look counts as a use
        return False

    eventually(is_gone)


def test_the_shorter_of_policy_and_argument_counts(
    channel: BlockingChannel, declare: Declare, policy: Callable[..., None]
) -> None:
    queue = declare(x_max_length=3)
    policy(queue, max_length=2, message_ttl=60_000)
    put(channel, queue, b"1", b"2", b"3", b"4")
    eventually(lambda: waiting(channel, queue) == 2)
    assert [one.body for one in drain(channel, queue, 2)] == [b"3", b"4"]
