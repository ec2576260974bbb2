"""Publishing: routing, confirms, returns, transactions, properties byte for byte."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pika
import pytest
from pamqp import commands as c
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError, UnroutableError

from support.amqp_pika import drain, get, is_empty, put, waiting
from support.amqp_wire import AmqpWire, publish_frames, short
from support.naming import unique

Open = Callable[..., AmqpWire]


def test_a_message_comes_out_as_it_went_in(channel: BlockingChannel, queue: str) -> None:
    headers = {"text": "ä", "number": 5, "big": 2**40, "flag": True, "none": None,
               "list": [1, "two"], "table": {"deep": {"deeper": 1}}}  # fmt: skip
    sent = pika.BasicProperties(
        content_type="application/json", content_encoding="utf-8", headers=headers,
        delivery_mode=2, priority=3, correlation_id="c-1", reply_to="answers", message_id="m-1",
        timestamp=1_700_000_000, type="order", user_id="guest", app_id="test", cluster_id="x",
    )  # fmt: skip
    channel.basic_publish("", queue, b"\x00\xffbody", sent)
    got = get(channel, queue)
    assert got.body == b"\x00\xffbody"
    assert got.properties == sent
    assert (got.method.exchange, got.method.routing_key) == ("", queue)
    assert got.method.redelivered is False


def test_header_types_are_kept_byte_for_byte(wire: Open) -> None:
    one = wire()
    queue = one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk).queue
    table = b"".join(
        [
            short("double") + b"d" + struct.pack(">d", 0.1),
            short("byte") + b"b\xff",
            short("short") + b"s\x00\x05",
            short("unsigned") + b"i\xff\xff\xff\xff",
            short("bytes") + b"x\x00\x00\x00\x02\xff\xfe",
            short("not utf-8") + b"S\x00\x00\x00\x02\xff\xfe",
            short("decimal") + b"D\x02\x00\x00\x01\x3a",
            short("zz before aa") + b"V",
            short("aa") + b"t\x01",
        ]
    )
    properties = b"\x20\x00" + struct.pack(">I", len(table)) + table
    one.send_raw(publish_frames(1, "", queue, b"x", properties))
    one.send(1, c.Basic.Get(queue=queue, no_ack=True))
    raw = one.buffer
    while properties not in raw:
        raw += one.socket.recv(65536)


@pytest.mark.parametrize("size", [0, 1, 4088, 131_064, 131_065, 1_000_000])
def test_bodies_of_any_size(channel: BlockingChannel, queue: str, size: int) -> None:
    body = bytes(i % 251 for i in range(size))
    put(channel, queue, body)
    assert get(channel, queue).body == body


def test_confirms_come_for_every_message_in_order(wire: Open) -> None:
    one = wire()
    queue = one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk).queue
    one.call(1, c.Confirm.Select(), c.Confirm.SelectOk)
    one.send_raw(publish_frames(1, "", queue, b"x") * 250)
    confirmed = 0
    while confirmed < 250:
        ack = one.expect(c.Basic.Ack)
        assert ack.delivery_tag > confirmed
        assert ack.multiple or ack.delivery_tag == confirmed + 1
        confirmed = ack.delivery_tag
    assert confirmed == 250


def test_what_has_no_queue_is_confirmed_too(wire: Open) -> None:
    one = wire()
    one.call(1, c.Confirm.Select(), c.Confirm.SelectOk)
    one.publish("", unique("nowhere"), b"x")
    assert one.expect(c.Basic.Ack).delivery_tag == 1


def test_a_mandatory_message_without_a_queue_comes_back_before_its_confirm(wire: Open) -> None:
    one = wire()
    one.call(1, c.Confirm.Select(), c.Confirm.SelectOk)
    one.publish("amq.direct", "nowhere", b"body", flags=1)
    returned = one.expect(c.Basic.Return)
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key) == ("amq.direct", "nowhere")
    assert returned.body == b"body"
    assert returned.properties.delivery_mode == 2
    assert one.expect(c.Basic.Ack).delivery_tag == 1


def test_pika_raises_for_what_cannot_be_routed(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    with pytest.raises(UnroutableError):
        channel.basic_publish("", unique("nowhere"), b"x", mandatory=True)


def test_a_full_queue_refuses_when_told_to(channel: BlockingChannel) -> None:
    queue = unique("full")
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    channel.queue_declare(queue, exclusive=True, arguments=arguments)
    channel.confirm_delivery()
    put(channel, queue, b"1", b"2")
    with pytest.raises(NackError):
        put(channel, queue, b"3")
    assert [got.body for got in drain(channel, queue, 2)] == [b"1", b"2"]
    put(channel, queue, b"4")
    assert get(channel, queue).body == b"4"


def test_confirms_never_pass_a_refused_message(wire: Open) -> None:
    one = wire()
    arguments = {"x-max-length": 3, "x-overflow": "reject-publish"}
    declare = c.Queue.Declare(queue="", exclusive=True, arguments=arguments)
    full = one.call(1, declare, c.Queue.DeclareOk).queue
    free = one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk).queue
    one.call(1, c.Confirm.Select(), c.Confirm.SelectOk)
    one.send_raw(b"".join(publish_frames(1, "", q, b"x") for q in [full] * 3))
    acked = 0
    while acked < 3:
        acked = one.expect(c.Basic.Ack).delivery_tag
    one.send_raw(b"".join(publish_frames(1, "", q, b"x") for q in (free, full, free, full, free)))
    verdicts: dict[int, str] = {}
    while len(verdicts) < 5:
        _, verdict = one.read()
        first = min({4, 5, 6, 7, 8} - set(verdicts)) if verdict.multiple else verdict.delivery_tag
        for tag in range(first, verdict.delivery_tag + 1):
            if tag not in verdicts:
                verdicts[tag] = verdict.name
    assert [verdicts[tag] for tag in range(4, 9)] == [
        "Basic.Ack", "Basic.Nack", "Basic.Ack", "Basic.Nack", "Basic.Ack",
    ]  # fmt: skip


def test_a_transaction_is_seen_when_it_is_committed(channel: BlockingChannel, queue: str) -> None:
    other = channel.connection.channel()
    channel.tx_select()
    put(channel, queue, b"1", b"2")
    assert is_empty(other, queue)
    channel.tx_commit()
    assert [got.body for got in drain(other, queue, 2)] == [b"1", b"2"]


def test_a_transaction_that_is_rolled_back_never_was(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"first")
    channel.tx_select()
    put(channel, queue, b"lost")
    tag = get(channel, queue, ack=False).method.delivery_tag
    channel.basic_ack(tag)
    channel.tx_rollback()
    channel.basic_ack(tag)  # it is unsettled again
    channel.tx_commit()
    assert waiting(channel, queue) == 0


def test_acks_of_a_transaction_count_when_it_is_committed(
    channel: BlockingChannel, queue: str, connect: Callable[..., pika.BlockingConnection]
) -> None:
    put(channel, queue, b"1", b"2")
    holder = connect().channel()
    holder.tx_select()
    first = get(holder, queue, ack=False)
    second = get(holder, queue, ack=False)
    holder.basic_ack(first.method.delivery_tag)
    holder.tx_commit()
    holder.basic_ack(second.method.delivery_tag)
    holder.connection.close()
    got = get(channel, queue)
    assert (got.body, got.method.redelivered) == (b"2", True)
    assert is_empty(channel, queue)


def test_mandatory_in_a_transaction_comes_back_at_commit(wire: Open) -> None:
    one = wire()
    one.call(1, c.Tx.Select(), c.Tx.SelectOk)
    one.publish("", unique("nowhere"), b"x", flags=1)
    one.send(1, c.Tx.Commit())
    names = {one.read()[1].__class__.__name__ for _ in range(2)}
    assert names == {"Content", "CommitOk"}


def test_copies_go_where_cc_and_bcc_say(channel: BlockingChannel) -> None:
    to, copy, blind = unique("to"), unique("cc"), unique("bcc")
    for name in (to, copy, blind):
        channel.queue_declare(name, exclusive=True)
    put(channel, to, b"x", headers={"CC": [copy, to], "BCC": [blind], "other": 1})
    for name in (to, copy, blind):
        got = get(channel, name)
        assert got.body == b"x"
        assert got.properties.headers == {"CC": [copy, to], "other": 1}
        assert is_empty(channel, name)


def test_the_user_may_say_who_they_are(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"x", user_id="guest")
    assert get(channel, queue).properties.user_id == "guest"


@pytest.mark.own_broker
def test_a_message_over_the_limit_ends_its_channel(wire: Open) -> None:
    one = wire()
    header = b"\x00\x3c\x00\x00" + struct.pack(">Q", 2**30) + b"\x00\x00"
    method = b"\x00\x3c\x00\x28\x00\x00" + short("") + short("q") + b"\x00"
    one.send_raw(struct.pack(">BHI", 1, 1, len(method)) + method + b"\xce")
    one.send_raw(struct.pack(">BHI", 2, 1, len(header)) + header + b"\xce")
    text = one.expect_error(c.Channel.Close, 406)
    assert "message size 1073741824 is larger than configured max size" in text


def test_publishing_is_in_order_over_many_channels(wire: Open) -> None:
    one = wire(channels=3)
    queue = one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk).queue
    data = b"".join(
        publish_frames(number % 3 + 1, "", queue, b"%d" % number) for number in range(300)
    )
    one.send_raw(data)
    for number in (1, 2, 3):  # a queue sees a channel's messages in the channel's order
        one.call(number, c.Channel.Flow(True), c.Channel.FlowOk)
    bodies: list[int] = []
    for _ in range(300):
        bodies.append(int(one.call(1, c.Basic.Get(queue=queue, no_ack=True), c.Basic.GetOk).body))
    for channel in range(3):
        assert [b for b in bodies if b % 3 == channel] == list(range(channel, 300, 3))


def test_what_a_channel_says_is_done_in_order(wire: Open) -> None:
    """Declare, bind, publish and get in one packet, nothing waited for."""
    one, queue = wire(), unique("pipelined")
    said: list[Any] = [
        c.Queue.Declare(queue=queue, auto_delete=True, nowait=True),
        c.Queue.Bind(queue=queue, exchange="amq.direct", routing_key=queue, nowait=True),
    ]
    from pamqp import frame

    data = b"".join(frame.marshal(method, 1) for method in said)
    data += publish_frames(1, "amq.direct", queue, b"x") * 3
    data += frame.marshal(c.Basic.Get(queue=queue, no_ack=True), 1) * 4
    one.send_raw(data)
    kinds = [type(one.read()[1]).__name__ for _ in range(4)]
    assert kinds == ["Content", "Content", "Content", "GetEmpty"]
    one.call(1, c.Queue.Delete(queue=queue), c.Queue.DeleteOk)
