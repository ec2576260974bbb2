"""The whole table of errors: the right code, on the channel or the connection, and nobody else."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from pamqp import commands as c
from pamqp import encode

from support.amqp_wire import AmqpWire, publish_frames, raw_frame, short
from support.naming import unique

Open = Callable[..., AmqpWire]
PUBLISH = raw_frame(1, 1, b"\x00\x3c\x00\x28\x00\x00" + short("") + short("x") + b"\x00")
HEADER = b"\x00\x3c\x00\x00"


def properties(flag: int, value: bytes) -> bytes:
    return struct.pack(">H", flag) + value


# --- what ends the connection ---------------------------------------------------------------------

HARD: dict[str, tuple[bytes, int]] = {
    "unknown frame type": (raw_frame(4, 1, b"abc"), 501),
    "bad end octet": (raw_frame(1, 1, b"\x00\x0a\x00\x32", end=b"\x00"), 501),
    "oversize frame": (struct.pack(">BHI", 3, 1, 200_000) + b"x" * 300, 501),
    "empty method frame": (raw_frame(1, 1, b""), 501),
    "cut arguments": (raw_frame(1, 1, b"\x00\x32\x00\x0a\x00"), 501),
    "name not UTF-8": (raw_frame(1, 1, b"\x00\x32\x00\x0a\x00\x00\x02\xff\xfe\x00\0\0\0\0"), 501),
    "heartbeat with payload": (raw_frame(8, 0, b"abc"), 501),
    "header too short": (PUBLISH + raw_frame(2, 1, HEADER + bytes(4)), 501),
    "heartbeat on a channel": (raw_frame(8, 1, b""), 505),
    "header without method": (raw_frame(2, 1, HEADER + bytes(10)), 505),
    "body without method": (raw_frame(3, 1, b"abc"), 505),
    "header on a closed channel": (raw_frame(2, 7, HEADER + bytes(10)), 505),
    "method instead of header": (PUBLISH + raw_frame(1, 1, b"\x00\x14\x00\x14\x01"), 505),
    "body instead of header": (PUBLISH + raw_frame(3, 1, b"x"), 505),
    "header of another class": (PUBLISH + raw_frame(2, 1, b"\x00\x32" + bytes(12)), 505),
    "queue method on channel 0": (raw_frame(1, 0, b"\x00\x32\x00\x1e\0\0\x01q\0"), 504),
    "open on channel 0": (raw_frame(1, 0, b"\x00\x14\x00\x0a\0"), 504),
    "second open": (raw_frame(1, 1, b"\x00\x14\x00\x0a\0"), 504),
    "method on a closed channel": (raw_frame(1, 5, b"\x00\x32\x00\x1e\0\0\x01q\0"), 504),
    "close of a closed channel": (raw_frame(1, 5, b"\x00\x14\x00\x28\0\0\0\0\0\0\0"), 504),
    "connection.open again": (raw_frame(1, 0, b"\x00\x0a\x00\x28\x01/\0\0"), 504),
    "a reply as a request": (raw_frame(1, 1, b"\x00\x32\x00\x0b\x01q" + bytes(8)), 503),
    "connection method on a channel": (raw_frame(1, 1, b"\x00\x0a\x00\x28\x01/\0\0"), 503),
    "close-ok unasked": (raw_frame(1, 1, b"\x00\x14\x00\x29"), 503),
    "immediate": (publish_frames(1, "", "x", b"1", flags=2), 540),
    "prefetch size": (raw_frame(1, 1, b"\x00\x3c\x00\x0a" + struct.pack(">IHB", 5, 1, 0)), 540),
    "flow off": (raw_frame(1, 1, b"\x00\x14\x00\x14\x00"), 540),
    "recover without requeue": (raw_frame(1, 1, b"\x00\x3c\x00\x6e\x00"), 540),
}


@pytest.mark.parametrize(("data", "code"), HARD.values(), ids=list(HARD))
def test_a_broken_connection_rule_ends_only_that_connection(
    wire: Open, data: bytes, code: int
) -> None:
    bystander = wire()
    broken = wire()
    broken.send_raw(data)
    text = broken.expect_error(c.Connection.Close, code)
    assert text.split(" - ")[0] in {
        "FRAME_ERROR", "COMMAND_INVALID", "CHANNEL_ERROR", "UNEXPECTED_FRAME", "NOT_IMPLEMENTED",
    }  # fmt: skip
    broken.send(0, c.Connection.CloseOk())
    assert broken.at_end()
    bystander.call(1, c.Channel.Flow(True), c.Channel.FlowOk)


@pytest.mark.own_broker  # RabbitMQ resets the socket or waits for ever
@pytest.mark.parametrize(
    ("data", "code"),
    [
        (raw_frame(1, 1, b"\x00\x63\x00\x0a"), 503),
        (raw_frame(1, 1, b"\x00\x3c\x00\x63"), 503),
        (PUBLISH + raw_frame(2, 1, HEADER + bytes(8) + b"\x80\x00\x09ab"), 501),
        (
            PUBLISH
            + raw_frame(2, 1, HEADER + struct.pack(">Q", 2) + b"\0\0")
            + raw_frame(3, 1, b"xyz"),
            501,
        ),
        (raw_frame(1, 1, b"\x00\x32\x00\x0a\0\0\x01q\0\0\0\0\x05\x01aZ12"), 501),
    ],
    ids=["unknown class", "unknown method", "bad properties", "body too long", "bad table"],
)
def test_what_others_crash_on_has_a_code_here(wire: Open, data: bytes, code: int) -> None:
    broken = wire()
    broken.send_raw(data)
    broken.expect_error(c.Connection.Close, code)


def test_a_consumer_tag_is_used_once_on_a_channel(wire: Open) -> None:
    one = wire()
    one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk)
    one.call(1, c.Basic.Consume(queue="", consumer_tag="a"), c.Basic.ConsumeOk)
    one.send(1, c.Basic.Consume(queue="", consumer_tag="a"))
    text = one.expect_error(c.Connection.Close, 530)
    assert text == "NOT_ALLOWED - attempt to reuse consumer tag 'a'"


def test_there_are_only_so_many_channels(wire: Open) -> None:
    one = wire(channels=2, channel_max=2)
    one.send(3, c.Channel.Open())
    text = one.expect_error(c.Connection.Close, 530)
    assert "has reached the negotiated channel_max (2)" in text


# --- what ends the channel ------------------------------------------------------------------------

SOFT: dict[str, tuple[Any, int, str]] = {
    "publish to a missing exchange": (
        publish_frames(1, "nope", "x", b"1"), 404, "no exchange 'nope' in vhost '/'"),
    "passive declare of a missing queue": (
        c.Queue.Declare(queue="nope", passive=True), 404, "no queue 'nope' in vhost '/'"),
    "passive declare of a missing exchange": (
        c.Exchange.Declare(exchange="nope", passive=True), 404, "no exchange 'nope' in vhost '/'"),
    "consume from a missing queue": (
        c.Basic.Consume(queue="nope"), 404, "no queue 'nope' in vhost '/'"),
    "get from a missing queue": (c.Basic.Get(queue="nope"), 404, "no queue 'nope' in vhost '/'"),
    "purge of a missing queue": (c.Queue.Purge(queue="nope"), 404, "no queue 'nope' in vhost '/'"),
    "bind to a missing exchange": (
        c.Queue.Bind(queue="nope", exchange="nopex", routing_key="x"), 404,
        "no exchange 'nopex' in vhost '/'"),
    "bind of a missing exchange": (
        c.Exchange.Bind(destination="nope", source="amq.direct", routing_key="x"), 404,
        "no exchange 'nope' in vhost '/'"),
    "no queue declared yet": (c.Basic.Consume(queue=""), 404, "no previously declared queue"),
    "a reserved queue name": (
        c.Queue.Declare(queue="amq.foo"), 403,
        "queue name 'amq.foo' contains reserved prefix 'amq.*'"),
    "a reserved exchange name": (
        c.Exchange.Declare(exchange="amq.foo"), 403,
        "exchange name 'amq.foo' contains reserved prefix 'amq.*'"),
    "declare the default exchange": (
        raw_frame(1, 1, b"\0\x28\0\x0a\0\0" + short("") + short("direct") + b"\0\0\0\0\0"), 403,
        "operation not permitted on the default exchange"),
    "delete the default exchange": (
        raw_frame(1, 1, b"\0\x28\0\x14\0\0" + short("") + b"\0"), 403,
        "operation not permitted on the default exchange"),
    "delete a system exchange": (
        c.Exchange.Delete(exchange="amq.direct"), 403,
        "deletion of system exchange 'amq.direct' in vhost '/' not allowed"),
    "another type for an exchange": (
        c.Exchange.Declare(exchange="amq.direct", exchange_type="fanout", durable=True), 406,
        "inequivalent arg 'type' for exchange 'amq.direct' in vhost '/':"
        " received 'fanout' but current is 'direct'"),
    "ack of an unknown tag": (c.Basic.Ack(99, False), 406, "unknown delivery tag 99"),
    "nack of an unknown tag": (c.Basic.Nack(99, False, True), 406, "unknown delivery tag 99"),
    "reject of an unknown tag": (c.Basic.Reject(99, True), 406, "unknown delivery tag 99"),
    "ack of tag zero alone": (c.Basic.Ack(0, False), 406, "unknown delivery tag 0"),
    "ack of many up to an unknown tag": (c.Basic.Ack(5, True), 406, "unknown delivery tag 5"),
    "commit without select": (c.Tx.Commit(), 406, "channel is not transactional"),
    "rollback without select": (c.Tx.Rollback(), 406, "channel is not transactional"),
    "an expiration that is no number": (
        publish_frames(1, "", "x", b"1", properties(1 << 8, short("abc"))), 406,
        "invalid expiration 'abc': no_integer"),
    "a negative expiration": (
        publish_frames(1, "", "x", b"1", properties(1 << 8, short("-5"))), 406,
        "invalid expiration '-5': {value_negative,-5}"),
    "somebody else's user id": (
        publish_frames(1, "", "x", b"1", properties(1 << 4, short("bob"))), 406,
        "user_id property set to 'bob' but authenticated user was 'guest'"),
    "CC that is no list": (
        publish_frames(1, "", "x", b"1", properties(1 << 13, encode.field_table({"CC": "x"}))),
        406, "invalid message: "),
    "reply-to without a consumer": (
        publish_frames(1, "", "x", b"1", properties(1 << 9, short("amq.rabbitmq.reply-to"))),
        406, "fast reply consumer does not exist"),
    "reply-to consumer that acknowledges": (
        c.Basic.Consume(queue="amq.rabbitmq.reply-to"), 406, "reply consumer cannot acknowledge"),
}  # fmt: skip
NAMES = {
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
}


@pytest.mark.parametrize(("said", "code", "text"), SOFT.values(), ids=list(SOFT))
def test_a_broken_channel_rule_ends_only_that_channel(
    wire: Open, said: Any, code: int, text: str
) -> None:
    one = wire(channels=2)
    one.send_raw(said) if isinstance(said, bytes) else one.send(1, said)
    assert one.expect_error(c.Channel.Close, code).startswith(f"{NAMES[code]} - {text}")
    one.call(2, c.Channel.Flow(True), c.Channel.FlowOk)
    one.send(1, c.Channel.CloseOk())
    one.channel(1)
    one.call(1, c.Channel.Flow(True), c.Channel.FlowOk)


def refused(one: AmqpWire, said: Any, code: int) -> str:
    one.send(1, said)
    text = one.expect_error(c.Channel.Close, code)
    assert text.startswith(NAMES[code] + " - ")
    return text.split(" - ", 1)[1]


def declare(one: AmqpWire, name: str, **options: Any) -> None:
    one.call(1, c.Queue.Declare(queue=name, auto_delete=True, **options), c.Queue.DeclareOk)


LENGTH_5, LENGTH_6 = {"arguments": {"x-max-length": 5}}, {"arguments": {"x-max-length": 6}}
DEAD = {"arguments": {"x-dead-letter-exchange": "a"}}


@pytest.mark.parametrize(
    ("first", "second", "name", "text"),
    [
        ({}, {"durable": True}, "durable", "received 'true' but current is 'false'"),
        (LENGTH_5, LENGTH_6, "x-max-length", "received '6' but current is '5'"),
        (LENGTH_5, {}, "x-max-length", "received none but current is the value '5'"),
        ({}, DEAD, "x-dead-letter-exchange", "received the value 'a'"),
    ],
    ids=["durable", "another value", "value missing", "value added"],
)
def test_a_queue_is_declared_again_only_as_it_is(
    wire: Open, first: dict[str, Any], second: dict[str, Any], name: str, text: str
) -> None:
    one, queue = wire(), unique("again")
    declare(one, queue, **first)
    declare(one, queue, **first)
    said = refused(one, c.Queue.Declare(queue=queue, auto_delete=True, **second), 406)
    assert said.startswith(f"inequivalent arg '{name}' for queue '{queue}' in vhost '/': {text}")


def test_an_unknown_argument_is_accepted_and_does_not_count(wire: Open) -> None:
    one, name = wire(), unique("unknown")
    declare(one, name, arguments={"x-of-my-own": 7})
    declare(one, name, arguments={"x-of-my-own": 8})


ARGUMENTS: list[tuple[str, Any]] = [
    ("x-max-length", -1), ("x-max-length", "a"), ("x-max-length-bytes", -5),
    ("x-message-ttl", -1), ("x-message-ttl", "soon"), ("x-expires", 0), ("x-expires", -1),
    ("x-max-priority", 256), ("x-max-priority", -1), ("x-overflow", "zork"), ("x-overflow", 5),
    ("x-dead-letter-exchange", 5), ("x-dead-letter-routing-key", "x"),
    ("x-queue-mode", "zork"), ("x-queue-type", "zork"), ("x-queue-type", 7),
    ("x-single-active-consumer", 5),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value"), ARGUMENTS)
def test_a_known_argument_is_checked(wire: Open, key: str, value: Any) -> None:
    one, name = wire(), unique("argument")
    text = refused(one, c.Queue.Declare(queue=name, durable=True, arguments={key: value}), 406)
    assert f"'{key}'" in text
    assert f"queue '{name}' in vhost '/'" in text


def test_an_exclusive_queue_belongs_to_its_connection(wire: Open) -> None:
    owner, name = wire(), unique("exclusive")
    owner.call(1, c.Queue.Declare(queue=name, exclusive=True), c.Queue.DeclareOk)
    for said in (
        c.Queue.Declare(queue=name, passive=True),
        c.Queue.Declare(queue=name, exclusive=True),
        c.Basic.Consume(queue=name),
        c.Basic.Get(queue=name),
        c.Queue.Purge(queue=name),
        c.Queue.Delete(queue=name),
        c.Queue.Bind(queue=name, exchange="amq.direct", routing_key="k"),
    ):
        text = refused(wire(), said, 405)
        assert text.startswith(f"cannot obtain exclusive access to locked queue '{name}'")
    owner.call(1, c.Queue.Declare(queue=name, passive=True), c.Queue.DeclareOk)


def test_an_exclusive_consumer_is_alone(wire: Open) -> None:
    one = wire()
    queue = one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk).queue
    one.call(1, c.Basic.Consume(queue="", consumer_tag="a", exclusive=True), c.Basic.ConsumeOk)
    text = refused(one, c.Basic.Consume(queue="", consumer_tag="b"), 403)
    assert text == f"queue '{queue}' in vhost '/' in exclusive use"


def test_nobody_becomes_exclusive_beside_others(wire: Open) -> None:
    one = wire()
    queue = one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk).queue
    one.call(1, c.Basic.Consume(queue="", consumer_tag="a"), c.Basic.ConsumeOk)
    text = refused(one, c.Basic.Consume(queue="", consumer_tag="b", exclusive=True), 403)
    assert text == f"queue '{queue}' in vhost '/' in exclusive use"


def test_a_queue_in_use_or_not_empty_is_kept_when_asked(wire: Open) -> None:
    one, name = wire(channels=2), unique("kept")
    one.call(1, c.Queue.Declare(queue=name), c.Queue.DeclareOk)
    one.publish("", name, b"1", channel=2)
    one.call(2, c.Channel.Flow(True), c.Channel.FlowOk)
    text = refused(one, c.Queue.Delete(queue=name, if_empty=True), 406)
    assert text == f"queue '{name}' in vhost '/' not empty"
    one.send(1, c.Channel.CloseOk())
    one.channel(1)
    one.call(2, c.Queue.Purge(queue=name), c.Queue.PurgeOk)
    one.call(2, c.Basic.Consume(queue=name), c.Basic.ConsumeOk)
    text = refused(one, c.Queue.Delete(queue=name, if_unused=True), 406)
    assert text == f"queue '{name}' in vhost '/' in use"
    one.send(2, c.Queue.Delete(queue=name))
    assert {one.read()[1].name, one.read()[1].name} == {"Basic.Cancel", "Queue.DeleteOk"}


def test_an_exchange_in_use_is_kept_when_asked(wire: Open) -> None:
    one, name = wire(), unique("used")
    one.call(1, c.Exchange.Declare(exchange=name, auto_delete=True), c.Exchange.DeclareOk)
    one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk)
    one.call(1, c.Queue.Bind(queue="", exchange=name, routing_key="k"), c.Queue.BindOk)
    text = refused(one, c.Exchange.Delete(exchange=name, if_unused=True), 406)
    assert text == f"exchange '{name}' in vhost '/' in use"


def test_an_internal_exchange_takes_no_publishes(wire: Open) -> None:
    one, name = wire(), unique("internal")
    declare = c.Exchange.Declare(exchange=name, internal=True, auto_delete=True)
    one.call(1, declare, c.Exchange.DeclareOk)
    one.publish(name, "x", b"1")
    text = one.expect_error(c.Channel.Close, 403)
    assert text == f"ACCESS_REFUSED - cannot publish to internal exchange '{name}' in vhost '/'"


def test_the_default_exchange_takes_no_bindings(wire: Open) -> None:
    one = wire()
    one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk)
    bind = b"\0\x32\0\x14\0\0" + short("") + short("") + short("k") + b"\0\0\0\0\0"
    one.send_raw(raw_frame(1, 1, bind))
    text = one.expect_error(c.Channel.Close, 403)
    assert text == "ACCESS_REFUSED - operation not permitted on the default exchange"


def test_confirms_and_transactions_exclude_each_other(wire: Open) -> None:
    one = wire(channels=2)
    one.call(1, c.Confirm.Select(), c.Confirm.SelectOk)
    assert refused(one, c.Tx.Select(), 406) == "cannot switch from confirm to tx mode"
    one.call(2, c.Tx.Select(), c.Tx.SelectOk)
    one.send(2, c.Confirm.Select())
    text = one.expect_error(c.Channel.Close, 406)
    assert text == "PRECONDITION_FAILED - cannot switch from tx to confirm mode"


def test_a_tag_is_settled_once(wire: Open) -> None:
    one = wire()
    one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk)
    one.send_raw(publish_frames(1, "amq.direct", "nowhere", b"x"))
    queue = one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk).queue
    one.publish("", queue, b"1")
    one.call(1, c.Channel.Flow(True), c.Channel.FlowOk)
    one.call(1, c.Basic.Get(queue=queue), c.Basic.GetOk)
    one.send(1, c.Basic.Ack(1, False))
    assert refused(one, c.Basic.Ack(1, False), 406) == "unknown delivery tag 1"


# --- what is no error -----------------------------------------------------------------------------

FINE = {
    "delete of a missing queue": (c.Queue.Delete(queue="nope"), c.Queue.DeleteOk),
    "delete of a missing exchange": (c.Exchange.Delete(exchange="nope"), c.Exchange.DeleteOk),
    "unbind of what is not bound": (
        c.Queue.Unbind(queue="nope", exchange="amq.direct", routing_key="x"),
        c.Queue.UnbindOk,
    ),
    "cancel of an unknown tag": (c.Basic.Cancel("zork"), c.Basic.CancelOk),
    "recover of nothing": (c.Basic.Recover(True), c.Basic.RecoverOk),
    "flow on": (c.Channel.Flow(True), c.Channel.FlowOk),
}


@pytest.mark.parametrize(("said", "answer"), FINE.values(), ids=list(FINE))
def test_these_are_no_errors(wire: Open, said: Any, answer: Any) -> None:
    wire().call(1, said, answer)


def test_acknowledging_everything_is_fine_when_there_is_nothing(wire: Open) -> None:
    one = wire()
    one.send(1, c.Basic.Ack(0, True))
    one.call(1, c.Channel.Flow(True), c.Channel.FlowOk)


def test_old_clients_may_ask_for_access(wire: Open) -> None:
    one = wire()
    one.send_method(1, 30, 10, short("/data") + b"\x1f")
    assert one.socket.recv(100) == raw_frame(1, 1, b"\x00\x1e\x00\x0b\x00\x01")
