"""Queues: their lives, and what their arguments do to messages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from support.amqp_pika import consume, drain, get, is_empty, put, settle_for, waiting
from support.naming import unique
from support.waiting import eventually

Connect = Callable[..., pika.BlockingConnection]


@pytest.fixture
def make(channel: BlockingChannel) -> Callable[..., str]:
    """make(**arguments) is a queue of this connection with x- arguments (dashes as _)."""

    def declare(**arguments: Any) -> str:
        table = {"x-" + name.replace("_", "-"): value for name, value in arguments.items()}
        return str(channel.queue_declare("", exclusive=True, arguments=table).method.queue)

    return declare


@pytest.fixture
def dead(channel: BlockingChannel) -> str:
    """A queue bound to amq.fanout's sibling of its own: (exchange and queue share the name)."""
    name = unique("dead")
    channel.exchange_declare(name, "fanout", auto_delete=True)
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, name)
    return name


def exists(connection: pika.BlockingConnection, queue: str) -> bool:
    channel = connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as missing:
        if missing.reply_code != 404:
            raise
        return False
    channel.close()
    return True


# --- their lives ----------------------------------------------------------------------------------


def test_a_declared_queue_tells_what_waits(channel: BlockingChannel, queue: str) -> None:
    channel.confirm_delivery()
    put(channel, queue, b"1", b"2", delivery_mode=2)
    again = channel.queue_declare(queue, durable=True).method
    assert (again.queue, again.message_count, again.consumer_count) == (queue, 2, 0)


def test_purge_and_delete_tell_how_many_were_there(channel: BlockingChannel) -> None:
    queue = unique("counted")
    channel.queue_declare(queue)
    put(channel, queue, b"1", b"2", b"3")
    assert channel.queue_purge(queue).method.message_count == 3
    put(channel, queue, b"4")
    assert channel.queue_delete(queue).method.message_count == 1


def test_purge_leaves_what_is_being_worked_on(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"1", b"2", b"3")
    held = get(channel, queue, ack=False)
    assert channel.queue_purge(queue).method.message_count == 2
    channel.basic_nack(held.method.delivery_tag, requeue=True)
    assert get(channel, queue).body == b"1"


def test_an_exclusive_queue_goes_with_its_connection(connect: Connect) -> None:
    owner, other = connect(), connect()
    queue = owner.channel().queue_declare("", exclusive=True).method.queue
    owner.close()
    eventually(lambda: not exists(other, queue))


def test_a_queue_that_deletes_itself_goes_with_its_last_consumer(connect: Connect) -> None:
    one, other = connect().channel(), connect()
    queue = unique("auto")
    one.queue_declare(queue, auto_delete=True)
    tags = [one.basic_consume(queue, lambda *_: None) for _ in range(2)]
    one.basic_cancel(tags[0])
    assert exists(other, queue)
    one.basic_cancel(tags[1])
    eventually(lambda: not exists(other, queue))


def test_a_queue_that_nobody_uses_expires(connect: Connect) -> None:
    connection = connect()
    channel, queue = connection.channel(), unique("expires")
    channel.queue_declare(queue, arguments={"x-expires": 400})
    tag = channel.basic_consume(queue, lambda *_: None)
    settle_for(connection, 0.8)
    assert exists(connection, queue)  # somebody consumes
    channel.basic_cancel(tag)
    time.sleep(1.0)
    assert not exists(connection, queue)


NAMES = [
    "with space", "ümlaut", "a*b?c[d]", "{}|&;$~<>()!'\"%", "x" * 250, "../up", "..", "<script>",
    "a/b", "UPPER.lower-_:", "celery@host.celery.pidbox", "__consumer_offsets",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_queue_may_have_any_name(connection: pika.BlockingConnection, name: str) -> None:
    channel = connection.channel()
    try:
        assert channel.queue_declare(name, durable=True).method.queue == name
        put(channel, name, b"1")
        assert get(channel, name).method.routing_key == name
    finally:
        connection.channel().queue_delete(name)


def test_similar_names_are_different_queues(channel: BlockingChannel) -> None:
    stem = unique("x")
    names = [stem + tail for tail in ("a/b", "a_x2fb", "a_b", "A/b", "a b")]
    for name in names:
        channel.queue_declare(name, exclusive=True)
        put(channel, name, name.encode())
    assert [get(channel, name).body.decode() for name in names] == names


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_the_queue_types_of_rabbitmq_are_durable_queues(
    channel: BlockingChannel, kind: str
) -> None:
    queue = unique(kind)
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": kind})
    channel.confirm_delivery()
    put(channel, queue, b"1", delivery_mode=2)
    assert get(channel, queue).body == b"1"
    channel.queue_delete(queue)


# --- time to live ---------------------------------------------------------------------------------


def test_a_message_expires_by_the_queue(channel: BlockingChannel, make: Callable[..., str]) -> None:
    queue = make(message_ttl=500)
    channel.confirm_delivery()
    put(channel, queue, b"1")
    assert waiting(channel, queue) == 1
    eventually(lambda: waiting(channel, queue) == 0, within=3)


def test_a_message_expires_by_itself(channel: BlockingChannel, make: Callable[..., str]) -> None:
    queue = make()
    put(channel, queue, b"short", expiration="200")
    put(channel, queue, b"long", expiration="60000")
    time.sleep(0.5)
    assert [got.body for got in drain(channel, queue, 1)] == [b"long"]
    assert is_empty(channel, queue)


@pytest.mark.own_broker  # RabbitMQ expires only what is at the head
def test_a_message_expires_behind_others(
    channel: BlockingChannel, make: Callable[..., str]
) -> None:
    queue = make()
    put(channel, queue, b"stays")
    put(channel, queue, b"goes", expiration="200")
    eventually(lambda: waiting(channel, queue) == 1, within=3)
    assert get(channel, queue).body == b"stays"


def test_the_shorter_time_counts(channel: BlockingChannel, make: Callable[..., str]) -> None:
    queue = make(message_ttl=60_000)
    put(channel, queue, b"1", expiration="150")
    eventually(lambda: waiting(channel, queue) == 0, within=3)


def test_no_time_at_all_means_now_or_never(
    channel: BlockingChannel, make: Callable[..., str]
) -> None:
    queue = make(message_ttl=0)
    put(channel, queue, b"lost")
    assert is_empty(channel, queue)
    got = consume(channel, queue, 0, auto_ack=True)
    put(channel, queue, b"taken")
    settle_for(channel.connection, 0.3)
    assert [one.body for one in got] == [b"taken"]


# --- length ---------------------------------------------------------------------------------------


def test_a_full_queue_drops_its_oldest(channel: BlockingChannel, make: Callable[..., str]) -> None:
    queue = make(max_length=3)
    put(channel, queue, *[b"%d" % number for number in range(10)])
    assert [got.body for got in drain(channel, queue, 3)] == [b"7", b"8", b"9"]
    assert is_empty(channel, queue)


def test_a_queue_may_be_full_by_bytes(channel: BlockingChannel, make: Callable[..., str]) -> None:
    queue = make(max_length_bytes=250)
    put(channel, queue, *[b"%03d" % number + b"x" * 97 for number in range(5)])
    assert [got.body[:3] for got in drain(channel, queue, 2)] == [b"003", b"004"]
    assert is_empty(channel, queue)


# --- priorities -----------------------------------------------------------------------------------


def test_higher_priorities_come_first(channel: BlockingChannel, make: Callable[..., str]) -> None:
    queue = make(max_priority=10)
    for number, priority in enumerate([1, 5, 5, 10, 200, None, 0]):
        put(channel, queue, b"%d" % number, priority=priority)
    order = [got.body for got in drain(channel, queue, 7)]
    assert order == [b"3", b"4", b"1", b"2", b"0", b"5", b"6"]


def test_a_requeued_message_keeps_its_priority(
    channel: BlockingChannel, make: Callable[..., str]
) -> None:
    queue = make(max_priority=5)
    put(channel, queue, b"high", priority=5)
    held = get(channel, queue, ack=False)
    put(channel, queue, b"low", priority=1)
    put(channel, queue, b"higher later", priority=5)
    channel.basic_nack(held.method.delivery_tag, requeue=True)
    assert [g.body for g in drain(channel, queue, 3)] == [b"high", b"higher later", b"low"]


# --- dead letters ---------------------------------------------------------------------------------


def death(properties: pika.BasicProperties) -> dict[str, Any]:
    return dict(properties.headers["x-death"][0])


def test_a_rejected_message_goes_to_the_dead(
    channel: BlockingChannel, make: Callable[..., str], dead: str
) -> None:
    queue = make(dead_letter_exchange=dead)
    put(channel, queue, b"1", headers={"mine": 7}, message_id="m")
    channel.basic_reject(get(channel, queue, ack=False).method.delivery_tag, requeue=False)
    got = get(channel, dead)
    assert got.body == b"1"
    assert (got.method.exchange, got.method.routing_key) == (dead, queue)
    assert got.properties.message_id == "m"
    headers = got.properties.headers
    assert headers["mine"] == 7
    assert headers["x-first-death-queue"] == queue
    assert headers["x-first-death-reason"] == "rejected"
    assert headers["x-first-death-exchange"] == ""
    told = death(got.properties)
    assert (told["count"], told["reason"], told["queue"]) == (1, "rejected", queue)
    assert (told["exchange"], told["routing-keys"]) == ("", [queue])
    assert told["time"] is not None


def test_an_expired_message_goes_to_the_dead_without_its_expiration(
    channel: BlockingChannel, make: Callable[..., str], dead: str
) -> None:
    queue = make(dead_letter_exchange=dead)
    put(channel, queue, b"1", expiration="150")
    got = get(channel, dead)
    assert got.properties.expiration is None
    told = death(got.properties)
    assert (told["reason"], told["original-expiration"]) == ("expired", "150")


def test_what_is_dropped_for_length_goes_to_the_dead(
    channel: BlockingChannel, make: Callable[..., str], dead: str
) -> None:
    queue = make(dead_letter_exchange=dead, max_length=1)
    put(channel, queue, b"1", b"2")
    got = get(channel, dead)
    assert (got.body, death(got.properties)["reason"]) == (b"1", "maxlen")


def test_what_is_refused_may_go_to_the_dead_too(
    channel: BlockingChannel, make: Callable[..., str], dead: str
) -> None:
    queue = make(dead_letter_exchange=dead, max_length=1, overflow="reject-publish-dlx")
    put(channel, queue, b"1", b"2")
    got = get(channel, dead)
    assert (got.body, death(got.properties)["reason"]) == (b"2", "maxlen")


def test_the_dead_may_get_another_key(channel: BlockingChannel, make: Callable[..., str]) -> None:
    grave = make()
    queue = make(dead_letter_exchange="", dead_letter_routing_key=grave)
    put(channel, queue, b"1")
    channel.basic_reject(get(channel, queue, ack=False).method.delivery_tag, requeue=False)
    got = get(channel, grave)
    assert (got.body, got.method.routing_key) == (b"1", grave)


def test_dying_again_is_counted(channel: BlockingChannel, make: Callable[..., str]) -> None:
    queue = make(dead_letter_exchange="")  # its dead come back to itself
    put(channel, queue, b"1")
    for count in range(1, 4):
        held = get(channel, queue, ack=False)
        channel.basic_reject(held.method.delivery_tag, requeue=False)
        again = get(channel, queue, ack=False)
        assert death(again.properties)["count"] == count
        channel.basic_nack(again.method.delivery_tag, requeue=True)


def test_a_message_does_not_expire_in_a_circle(
    channel: BlockingChannel, make: Callable[..., str]
) -> None:
    queue = make(dead_letter_exchange="", message_ttl=100)
    put(channel, queue, b"1")
    eventually(lambda: is_empty(channel, queue), within=3)
    time.sleep(0.3)
    assert is_empty(channel, queue)


def test_a_retry_by_way_of_a_waiting_room(
    channel: BlockingChannel, make: Callable[..., str]
) -> None:
    """The usual delay of RabbitMQ: reject to a queue with a time to live that leads back."""
    work = unique("work")
    room = make(message_ttl=200, dead_letter_exchange="", dead_letter_routing_key=work)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": room}
    channel.queue_declare(work, exclusive=True, arguments=arguments)
    put(channel, work, b"1")
    channel.basic_reject(get(channel, work, ack=False).method.delivery_tag, requeue=False)
    again = get(channel, work)
    reasons = [(told["queue"], told["reason"]) for told in again.properties.headers["x-death"]]
    assert reasons == [(room, "expired"), (work, "rejected")]


def test_a_delivery_limit_sends_a_message_to_the_dead(
    connection: pika.BlockingConnection, dead: str
) -> None:
    channel, queue = connection.channel(), unique("limited")
    arguments = {"x-queue-type": "quorum", "x-delivery-limit": 2, "x-dead-letter-exchange": dead}
    channel.queue_declare(queue, durable=True, arguments=arguments)
    try:
        channel.confirm_delivery()
        put(channel, queue, b"poison")
        counts = []
        for _ in range(3):
            held = get(channel, queue, ack=False)
            counts.append((held.properties.headers or {}).get("x-delivery-count"))
            channel.basic_nack(held.method.delivery_tag, requeue=True)
        assert counts[0] in (None, 0)  # absent in RabbitMQ since 3.12
        assert counts[1:] == [1, 2]
        got = get(channel, dead)
        assert death(got.properties)["reason"] == "delivery_limit"
        assert is_empty(channel, queue)
    finally:
        connection.channel().queue_delete(queue)
