"""Consuming: prefetch, settling, order, cancelling, priorities, exclusive and single consumers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pika
import pytest
from pamqp import commands as c
from pika.adapters.blocking_connection import BlockingChannel

from support.amqp_pika import consume, drain, get, is_empty, put, settle_for, until, waiting
from support.amqp_wire import AmqpWire, publish_frames
from support.naming import unique

Connect = Callable[..., pika.BlockingConnection]
Open = Callable[..., AmqpWire]
TEN = [b"%d" % number for number in range(10)]


def bodies(got: list[Any]) -> list[bytes]:
    return [one.body for one in got]


def test_messages_come_in_order(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, *TEN)
    got = consume(channel, queue, 10)
    assert bodies(got) == TEN
    assert [one.method.delivery_tag for one in got] == list(range(1, 11))


def test_prefetch_stops_a_consumer_until_it_settles(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, *TEN)
    channel.basic_qos(prefetch_count=3)
    got = consume(channel, queue, 3)
    settle_for(channel.connection, 0.3)
    assert bodies(got) == TEN[:3]
    channel.basic_ack(got[1].method.delivery_tag)
    until(channel.connection, lambda: len(got) == 4)
    channel.basic_ack(got[3].method.delivery_tag, multiple=True)
    until(channel.connection, lambda: len(got) == 7)
    settle_for(channel.connection, 0.2)
    assert bodies(got) == TEN[:7]


def test_prefetch_counts_for_each_consumer(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, *TEN)
    channel.basic_qos(prefetch_count=2)
    one = consume(channel, queue, 2)
    two = consume(channel, queue, 2)
    settle_for(channel.connection, 0.2)
    assert (len(one), len(two)) == (2, 2)


def test_a_prefetch_of_the_channel_is_shared(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, *TEN)
    channel.basic_qos(prefetch_count=3, global_qos=True)
    got: list[Any] = []
    for _ in range(2):
        channel.basic_consume(queue, lambda ch, m, p, b: got.append((m, b)))
    until(channel.connection, lambda: len(got) == 3)
    settle_for(channel.connection, 0.3)
    assert len(got) == 3
    channel.basic_ack(got[0][0].delivery_tag)
    until(channel.connection, lambda: len(got) == 4)
    settle_for(channel.connection, 0.2)
    assert len(got) == 4


def test_an_idle_consumer_does_not_hold_the_room_of_the_channel(channel: BlockingChannel) -> None:
    idle = channel.queue_declare("", exclusive=True).method.queue
    busy = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_qos(prefetch_count=1, global_qos=True)
    channel.basic_consume(idle, lambda *_: None)
    put(channel, busy, b"1", b"2")
    got = consume(channel, busy, 1)
    channel.basic_ack(got[0].method.delivery_tag)
    until(channel.connection, lambda: len(got) == 2)


@pytest.mark.own_broker  # RabbitMQ limits only the consumers to come; Celery relies on this
def test_a_new_prefetch_moves_the_limit_of_running_consumers(
    channel: BlockingChannel, queue: str
) -> None:
    put(channel, queue, *TEN)
    channel.basic_qos(prefetch_count=2)
    got = consume(channel, queue, 2)
    settle_for(channel.connection, 0.2)
    assert len(got) == 2
    channel.basic_qos(prefetch_count=5)
    until(channel.connection, lambda: len(got) == 5)
    settle_for(channel.connection, 0.2)
    assert len(got) == 5


def test_without_acknowledgement_everything_is_gone_when_sent(
    channel: BlockingChannel, queue: str
) -> None:
    put(channel, queue, *TEN)
    channel.basic_qos(prefetch_count=2)
    got = consume(channel, queue, 10, auto_ack=True)
    assert bodies(got) == TEN
    assert waiting(channel, queue) == 0


def test_requeued_messages_come_again_in_their_place(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, *TEN[:5])
    got = [get(channel, queue, ack=False) for _ in range(3)]
    for one in (got[2], got[0], got[1]):
        channel.basic_nack(one.method.delivery_tag, requeue=True)
    again = drain(channel, queue, 5)
    assert bodies(again) == TEN[:5]
    assert [one.method.redelivered for one in again] == [True, True, True, False, False]


def test_a_nack_of_many_requeues_all_of_them(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, *TEN[:5])
    got = [get(channel, queue, ack=False) for _ in range(4)]
    channel.basic_ack(got[0].method.delivery_tag)
    channel.basic_nack(got[2].method.delivery_tag, multiple=True, requeue=True)
    assert bodies(drain(channel, queue, 3)) == [b"1", b"2", b"4"]


def test_a_rejected_message_is_gone(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"bad", b"good")
    channel.basic_reject(get(channel, queue, ack=False).method.delivery_tag, requeue=False)
    assert get(channel, queue).body == b"good"
    assert is_empty(channel, queue)


def test_what_a_closed_channel_held_goes_back_in_order(
    connection: pika.BlockingConnection, queue: str
) -> None:
    holder, other = connection.channel(), connection.channel()
    put(other, queue, *TEN)
    got = consume(holder, queue, 10)
    holder.basic_ack(got[3].method.delivery_tag)
    holder.close()
    again = drain(other, queue, 9)
    assert bodies(again) == TEN[:3] + TEN[4:]
    assert all(one.method.redelivered for one in again)


def test_what_a_lost_connection_held_goes_back(
    wire: Open, channel: BlockingChannel, queue: str
) -> None:
    put(channel, queue, b"1", b"2")
    dying = wire()
    dying.call(1, c.Basic.Consume(queue=queue), c.Basic.ConsumeOk)
    dying.expect(c.Basic.Deliver)
    dying.expect(c.Basic.Deliver)
    dying.socket.close()
    again = drain(channel, queue, 2)
    assert bodies(again) == [b"1", b"2"]
    assert all(one.method.redelivered for one in again)


def test_recover_gives_everything_back(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"1", b"2")
    for _ in range(2):
        get(channel, queue, ack=False)
    channel.basic_recover(requeue=True)
    assert bodies(drain(channel, queue, 2)) == [b"1", b"2"]


def test_nothing_comes_after_cancel_ok(wire: Open) -> None:
    one = wire()
    queue = one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk).queue
    one.call(1, c.Basic.Consume(queue=queue, consumer_tag="t"), c.Basic.ConsumeOk)
    one.send_raw(publish_frames(1, "", queue, b"x") * 5)
    one.send(1, c.Basic.Cancel("t"))
    one.send_raw(publish_frames(1, "", queue, b"x") * 5)
    deliveries = 0
    while True:
        _, got = one.read()
        if isinstance(got, c.Basic.CancelOk):
            break
        deliveries += 1
    one.call(1, c.Channel.Flow(True), c.Channel.FlowOk)
    declared = one.call(1, c.Queue.Declare(queue=queue, passive=True), c.Queue.DeclareOk)
    assert declared.message_count == 10 - deliveries
    if deliveries:
        one.send(1, c.Basic.Ack(0, True))  # cancelled, but still the channel's to settle
        one.call(1, c.Channel.Flow(True), c.Channel.FlowOk)


def test_a_client_is_told_that_its_queue_is_gone(wire: Open) -> None:
    one, two = wire(), wire()
    queue = one.call(1, c.Queue.Declare(queue=unique("gone")), c.Queue.DeclareOk).queue
    one.call(1, c.Basic.Consume(queue=queue, consumer_tag="t"), c.Basic.ConsumeOk)
    two.call(1, c.Queue.Delete(queue=queue), c.Queue.DeleteOk)
    cancelled = one.expect(c.Basic.Cancel)
    assert (cancelled.consumer_tag, cancelled.nowait) == ("t", True)
    one.call(1, c.Channel.Flow(True), c.Channel.FlowOk)


def test_a_client_that_does_not_want_to_know_is_not_told(wire: Open) -> None:
    one, two = wire(client_properties={"capabilities": {}}), wire()
    queue = one.call(1, c.Queue.Declare(queue=unique("gone")), c.Queue.DeclareOk).queue
    one.call(1, c.Basic.Consume(queue=queue), c.Basic.ConsumeOk)
    two.call(1, c.Queue.Delete(queue=queue), c.Queue.DeleteOk)
    time.sleep(0.3)
    one.call(1, c.Channel.Flow(True), c.Channel.FlowOk)


def test_consumers_share_a_queue(connect: Connect, channel: BlockingChannel, queue: str) -> None:
    counts = [0, 0]
    connections = [connect(), connect()]
    for index, connection in enumerate(connections):
        worker = connection.channel()
        worker.basic_qos(prefetch_count=1)

        def work(ch: Any, method: Any, _: Any, body: bytes, index: int = index) -> None:
            counts[index] += 1
            ch.basic_ack(method.delivery_tag)

        worker.basic_consume(queue, work)
    put(channel, queue, *[b"x"] * 40)
    deadline = time.monotonic() + 10
    while sum(counts) < 40 and time.monotonic() < deadline:
        for connection in connections:
            connection.process_data_events(0.01)
    assert sum(counts) == 40
    assert min(counts) >= 5


def test_the_consumer_with_priority_is_served_first(
    connect: Connect, channel: BlockingChannel, queue: str
) -> None:
    low, high = connect().channel(), connect().channel()
    for one in (low, high):
        one.basic_qos(prefetch_count=2)
    few = consume(low, queue, 0)
    many = consume(high, queue, 0, arguments={"x-priority": 10})
    put(channel, queue, b"1", b"2", b"3")
    until(high.connection, lambda: len(many) == 2)
    until(low.connection, lambda: len(few) == 1)
    assert bodies(many) == [b"1", b"2"]
    assert bodies(few) == [b"3"]


def test_a_single_active_consumer_has_successors(
    connect: Connect, channel: BlockingChannel
) -> None:
    queue = unique("single")
    channel.queue_declare(queue, auto_delete=True, arguments={"x-single-active-consumer": True})
    first, second = connect().channel(), connect().channel()
    one = consume(first, queue, 0, auto_ack=True)
    two = consume(second, queue, 0, auto_ack=True)
    put(channel, queue, b"1", b"2")
    until(first.connection, lambda: len(one) == 2)
    settle_for(second.connection, 0.2)
    assert two == []
    first.close()
    put(channel, queue, b"3")
    until(second.connection, lambda: len(two) == 1)


def test_the_queue_tells_how_many_consume(connect: Connect, queue: str) -> None:
    channel = connect().channel()
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 0
    tag = channel.basic_consume(queue, lambda *_: None)
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 1
    channel.basic_cancel(tag)
    assert channel.queue_declare(queue, passive=True).method.consumer_count == 0


def test_get_tells_how_many_are_left(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, *TEN[:3])
    counts = [get(channel, queue).method.message_count for _ in range(3)]
    assert counts == [2, 1, 0]
    assert is_empty(channel, queue)


def test_a_queue_is_its_names_last_declared(wire: Open) -> None:
    one = wire()
    queue = one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk).queue
    assert queue.startswith("amq.gen-")
    one.call(1, c.Queue.Bind(queue="", exchange="amq.direct", routing_key=""), c.Queue.BindOk)
    one.publish("amq.direct", queue, b"by its name")  # neither name nor key: the name is the key
    got = one.call(1, c.Basic.Get(queue="", no_ack=True), c.Basic.GetOk)
    assert got.body == b"by its name"


def test_requests_are_answered_directly(connect: Connect, channel: BlockingChannel) -> None:
    service = unique("service")
    channel.queue_declare(service, exclusive=True)
    answers: list[tuple[Any, bytes]] = []

    def serve(ch: Any, method: Any, properties: Any, body: bytes) -> None:
        assert properties.reply_to.startswith("amq.rabbitmq.reply-to.")
        reply = pika.BasicProperties(correlation_id=properties.correlation_id)
        ch.basic_publish("", properties.reply_to, body.upper(), reply)

    channel.basic_consume(service, serve, auto_ack=True)
    client = connect().channel()
    client.basic_consume(
        "amq.rabbitmq.reply-to", lambda ch, m, p, b: answers.append((p, b)), auto_ack=True
    )
    # The service's queue is exclusive to its connection for consuming, not for publishing.
    properties = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="1")
    client.basic_publish("", service, b"question", properties)
    deadline = time.monotonic() + 5
    while not answers and time.monotonic() < deadline:
        channel.connection.process_data_events(0.02)
        client.connection.process_data_events(0.02)
    assert [(p.correlation_id, b) for p, b in answers] == [("1", b"QUESTION")]


def test_an_answer_to_nobody_is_unroutable(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "amq.rabbitmq.reply-to.nobody", b"x", mandatory=True)


def test_a_slow_consumer_does_not_hold_others(
    wire: Open, channel: BlockingChannel, queue: str
) -> None:
    """It takes without limit and reads nothing: what it cannot take stays in the queue."""
    slow = wire()
    slow.socket.setsockopt(1, 8, 4096)  # SO_RCVBUF
    slow.call(1, c.Basic.Consume(queue=queue, no_ack=False), c.Basic.ConsumeOk)
    put(channel, queue, *[b"x" * 100_000] * 100)
    other = channel.queue_declare("", exclusive=True).method.queue
    put(channel, other, b"prompt")
    assert get(channel, other, within=2).body == b"prompt"
    slow.close()
    assert len(drain(channel, queue, 100, within=20)) == 100
