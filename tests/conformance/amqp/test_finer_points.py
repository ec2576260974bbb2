"""Finer points of RabbitMQ's behaviour, each seen there first: words, order, and odd values."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import Any

import pika
import pytest
from pamqp import commands as c
from pamqp import encode
from pika.adapters.blocking_connection import BlockingChannel

from support.amqp_pika import drain, get, is_empty, put, settle_for, until, waiting
from support.amqp_wire import AmqpWire, publish_frames, short
from support.naming import unique

Connect = Callable[..., pika.BlockingConnection]
Open = Callable[..., AmqpWire]
Declare = Callable[..., str]
SOON = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


def refused(one: AmqpWire, said: Any, code: int = 406) -> str:
    one.send_raw(said) if isinstance(said, bytes) else one.send(1, said)
    text = one.expect_error(c.Channel.Close, code)
    one.send(1, c.Channel.CloseOk())
    one.channel(1)
    return text.split(" - ", 1)[1]


# --- declaring ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("x-max-length", 100_000, ""),
        ("x-max-length", SOON, '"expected integer, got timestamp"'),
        ("x-message-ttl", 2**40, "{value_too_large,1099511627776}"),
        ("x-queue-version", 300_000, "\"unsupported queue version '300000'\""),
        ("x-overflow", 100_000, "{unacceptable_type,signedint}"),
    ],
)
def test_what_is_wrong_with_an_argument_is_said(
    wire: Open, name: str, value: object, text: str
) -> None:
    one, queue = wire(), unique("argument")
    said = c.Queue.Declare(queue=queue, exclusive=True, arguments={name: value})
    if not text:
        one.call(1, said, c.Queue.DeclareOk)
        text = f"inequivalent arg '{name}' for queue '{queue}' in vhost '/': received none but "
        text += f"current is the value '{value}' of type 'signedint'"
        assert refused(one, c.Queue.Declare(queue=queue, exclusive=True)) == text
    else:
        where = f"queue '{queue}' in vhost '/'"
        assert refused(one, said) == f"invalid arg '{name}' for {where}: {text}"


def test_a_queue_that_is_there_is_compared_before_arguments_are_checked(wire: Open) -> None:
    one, queue = wire(), unique("there")
    one.call(1, c.Queue.Declare(queue=queue, arguments={"x-queue-mode": "lazy"}), c.Queue.DeclareOk)
    for name, value in (("x-max-length", "many"), ("x-queue-mode", "default")):
        arguments = {"x-queue-mode": "lazy", name: value}
        text = refused(one, c.Queue.Declare(queue=queue, arguments=arguments))
        assert text.startswith(f"inequivalent arg '{name}' for queue '{queue}'")
    said = c.Queue.Declare(queue=queue, exclusive=True, durable=True)
    assert refused(one, said, 405).startswith("cannot obtain exclusive access to locked queue")
    one.call(1, c.Queue.Delete(queue=queue), c.Queue.DeleteOk)


def test_an_exclusive_queue_is_never_durable(wire: Open) -> None:
    one, queue = wire(), unique("exclusive")
    for durable in (True, False, True):
        said = c.Queue.Declare(queue=queue, exclusive=True, durable=durable)
        one.call(1, said, c.Queue.DeclareOk)


def test_the_last_declared_queue_is_not_meant_by_a_passive_declaration(wire: Open) -> None:
    one = wire()
    one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk)
    assert refused(one, c.Queue.Declare(queue="", passive=True), 404) == "no queue '' in vhost '/'"


def test_no_system_exchange_is_deleted_not_even_one_that_is_missing(wire: Open) -> None:
    text = refused(wire(), c.Exchange.Delete(exchange="amq.nope"), 403)
    assert text == "deletion of system exchange 'amq.nope' in vhost '/' not allowed"


@pytest.mark.parametrize(("value", "kind"), [(True, "bool"), (None, "void"), ([1], "array")])
def test_an_alternate_exchange_has_a_name(wire: Open, value: object, kind: str) -> None:
    name = unique("alternate")
    said = c.Exchange.Declare(exchange=name, arguments={"alternate-exchange": value})
    where = f"exchange '{name}' in vhost '/'"
    assert refused(wire(), said) == f"invalid type '{kind}' for arg 'alternate-exchange' in {where}"


def test_a_reply_text_that_was_cut_ends_in_dots(wire: Open) -> None:
    text = refused(wire(), c.Queue.Declare(queue="x" * 255, passive=True), 404)
    assert text.endswith("xxx...")
    assert len("NOT_FOUND - " + text) == 255


def test_the_priority_of_a_consumer_is_a_number(wire: Open) -> None:
    one, queue = wire(), unique("priority")
    one.call(1, c.Queue.Declare(queue=queue, exclusive=True), c.Queue.DeclareOk)
    text = refused(one, c.Basic.Consume(queue=queue, arguments={"x-priority": "high"}))
    where = f"queue '{queue}' in vhost '/'"
    assert text == f"invalid arg 'x-priority' for {where}: \"expected integer, got longstr\""


# --- streams --------------------------------------------------------------------------------------

STREAM = {"x-queue-type": "stream"}


@pytest.mark.parametrize(
    "name", ["x-message-ttl", "x-max-length", "x-max-priority", "x-delivery-limit"]
)
def test_nothing_happens_to_the_messages_of_a_stream(wire: Open, name: str) -> None:
    said = c.Queue.Declare(queue="never", durable=True, arguments={**STREAM, name: 5})
    where = "queue 'never' in vhost '/'"
    assert (
        refused(wire(), said)
        == f"invalid arg '{name}' for {where} of queue type rabbit_stream_queue"
    )


def test_what_a_stream_cannot_do_ends_the_connection(wire: Open) -> None:
    stream = unique("stream")
    wire().call(1, c.Queue.Declare(queue=stream, durable=True, arguments=STREAM), c.Queue.DeclareOk)
    for said, what in (
        (c.Basic.Get(queue=stream), "basic.get"),
        (c.Queue.Purge(queue=stream), "queue.purge"),
        (c.Basic.Consume(queue=stream, no_ack=True), "automatic acknowledgement"),
    ):
        one = wire()
        one.call(1, c.Basic.Qos(prefetch_count=5), c.Basic.QosOk)
        one.send(1, said)
        text = one.expect_error(c.Connection.Close, 540)
        where = f"queue '{stream}' in vhost '/'"
        assert text == f"NOT_IMPLEMENTED - {what} not supported by stream queues {where}"
    text = refused(wire(), c.Basic.Consume(queue=stream))
    assert text == f"consumer prefetch count is not set for 'queue '{stream}' in vhost '/''"
    wire().call(1, c.Queue.Delete(queue=stream), c.Queue.DeleteOk)


# --- publishing and routing -----------------------------------------------------------------------


def test_an_empty_key_has_no_words(channel: BlockingChannel, exchange: Declare) -> None:
    name, found = exchange("topic"), {}
    for pattern in ("#", "*", "", "#.*", "*.#"):
        found[pattern] = str(channel.queue_declare("", exclusive=True).method.queue)
        channel.queue_bind(found[pattern], name, pattern)
    channel.confirm_delivery()
    put(channel, "", b"to those without words", exchange=name)
    fitting = [pattern for pattern, queue in found.items() if waiting(channel, queue)]
    assert fitting == ["#", ""]


def test_headers_are_compared_as_numbers_and_as_text(
    wire: Open, channel: BlockingChannel, exchange: Declare
) -> None:
    name, queue = exchange("headers"), str(channel.queue_declare("", exclusive=True).method.queue)
    channel.queue_bind(queue, name, "", {"x-match": "all", "a": 1})
    one = wire()
    for value in (1, 2**40, 1.5, 1.0, True, "1", 2):
        headers = b"\x20\x00" + encode.field_table({"a": value})
        one.send_raw(publish_frames(1, name, "", repr(value).encode(), headers))
    one.call(1, c.Channel.Flow(True), c.Channel.FlowOk)
    assert [one.body for one in drain(channel, queue, 2)] == [b"1", b"1.0"]
    assert is_empty(channel, queue)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("some", 'value <<"some">>; expected all, any, all-with-x, or any-with-x'),
        (100_000, "type signedint (value 100000); expected longstr"),
        (True, "type bool (value true); expected longstr"),
    ],
)
def test_a_headers_binding_says_how_it_matches(wire: Open, value: object, text: str) -> None:
    one, queue = wire(), unique("headers")
    one.call(1, c.Queue.Declare(queue=queue, exclusive=True), c.Queue.DeclareOk)
    said = c.Queue.Bind(queue=queue, exchange="amq.headers", arguments={"x-match": value})
    assert refused(one, said) == f"Invalid x-match field {text}"


def with_expiration(value: str) -> bytes:
    return publish_frames(1, "", "nowhere", b"1", b"\x01\x00" + short(value))


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("1.5", '{leftover_string,".5"}'),
        ("5 ", '{leftover_string," "}'),
        ("315360000001", "{value_too_large,315360000001}"),
    ],
)
def test_what_is_wrong_with_an_expiration_is_said(wire: Open, value: str, problem: str) -> None:
    assert refused(wire(), with_expiration(value)) == f"invalid expiration '{value}': {problem}"


def test_an_expiration_may_have_a_sign(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"soon gone", expiration="+1")
    time.sleep(0.2)
    assert is_empty(channel, queue)


def test_copies_go_by_what_is_a_string(wire: Open, channel: BlockingChannel, queue: str) -> None:
    put(channel, "nowhere", b"1", headers={"CC": [5, queue], "BCC": []})
    assert get(channel, queue).properties.headers == {"CC": [5, queue]}
    put(channel, queue, b"2", headers={"BCC": ["nowhere"]})
    assert get(channel, queue).properties.headers == {}
    header = encode.field_table({"CC": "x"})
    text = refused(wire(), publish_frames(1, "", "x", b"1", b"\x20\x00" + header))
    assert text == 'invalid message: {unacceptable_type_in_header,"CC",longstr}'


def test_a_returned_message_tells_of_no_blind_copies(wire: Open) -> None:
    one = wire()
    headers = b"\x20\x00" + encode.field_table({"BCC": ["nowhere"], "CC": ["neither"]})
    one.send_raw(publish_frames(1, "", "nobody", b"back", headers, flags=1))
    assert one.expect(c.Basic.Return).properties.headers == {"CC": ["neither"]}
    one.call(1, c.Tx.Select(), c.Tx.SelectOk)
    one.send_raw(publish_frames(1, "", "nobody", b"back", headers, flags=1))
    one.send(1, c.Tx.Commit())
    assert one.expect(c.Basic.Return).properties.headers == {"CC": ["neither"]}


# --- limits and dead letters ----------------------------------------------------------------------


def declared(channel: BlockingChannel, target: str, **arguments: Any) -> str:
    """A queue whose dead letters go to the other one."""
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
    given = {name.replace("_", "-"): value for name, value in arguments.items()}
    queue = channel.queue_declare("", exclusive=True, arguments={**dead, **given}).method.queue
    return str(queue)


def test_bytes_beyond_the_limit_are_refused_and_smaller_messages_are_not(
    channel: BlockingChannel, queue: str
) -> None:
    limited = declared(channel, queue, x_max_length_bytes=10, x_overflow="reject-publish")
    channel.confirm_delivery()
    for body in (b"aaaa", b"bbbb", b"cccc", b"dd"):
        if body == b"cccc":
            with pytest.raises(pika.exceptions.NackError):
                put(channel, limited, body)
        else:
            put(channel, limited, body)
    assert [one.body for one in drain(channel, limited, 3)] == [b"aaaa", b"bbbb", b"dd"]
    assert is_empty(channel, queue)


def test_refused_messages_are_dead_letters_in_their_order(
    channel: BlockingChannel, queue: str
) -> None:
    limited = declared(channel, queue, x_max_length=0, x_overflow="reject-publish-dlx")
    bodies = [b"%d" % number for number in range(30)]
    put(channel, limited, *bodies)
    assert [one.body for one in drain(channel, queue, 30)] == bodies


def test_a_dead_letter_with_a_key_of_the_queue_loses_its_other_keys(
    channel: BlockingChannel, queue: str
) -> None:
    source, other = declared(channel, queue), declared(channel, queue)
    put(channel, source, b"copied", headers={"CC": [other], "mine": 1})
    assert get(channel, other).properties.headers == {"CC": [other], "mine": 1}
    channel.basic_reject(get(channel, source, ack=False).method.delivery_tag, requeue=False)
    headers = get(channel, queue).properties.headers
    assert "CC" not in headers
    assert headers["mine"] == 1
    assert headers["x-death"][0]["routing-keys"] == [source, other]
    assert is_empty(channel, other)


def test_who_dies_again_is_only_counted(channel: BlockingChannel, queue: str) -> None:
    source = declared(channel, queue)
    put(channel, source, b"x", expiration="60000")
    channel.basic_reject(get(channel, source, ack=False).method.delivery_tag, requeue=False)
    first = get(channel, queue).properties.headers["x-death"][0]
    assert first["original-expiration"] == "60000"
    put(channel, source, b"x", headers={"x-death": [first]})
    channel.basic_reject(get(channel, source, ack=False).method.delivery_tag, requeue=False)
    headers = get(channel, queue).properties.headers
    assert headers["x-death"] == [{**first, "count": 2}]
    assert "x-first-death-queue" not in headers  # it was not the first, says the publisher


# --- taking turns ---------------------------------------------------------------------------------


def test_consumers_take_turns(connect: Connect, channel: BlockingChannel, queue: str) -> None:
    others = [connect().channel() for _ in range(3)]
    got: list[list[bytes]] = [[], [], []]
    for other, mine in zip(others, got, strict=True):
        other.basic_consume(queue, lambda _, m, p, b, mine=mine: mine.append(b), auto_ack=True)
    put(channel, queue, *[b"%d" % number for number in range(12)])
    deadline = time.monotonic() + 20
    while sum(map(len, got)) < 12 and time.monotonic() < deadline:
        for other in others:
            other.connection.process_data_events(0.05)
    assert sorted(got) == sorted([[b"%d" % n for n in range(first, 12, 3)] for first in range(3)])


def test_consumers_that_share_a_prefetch_take_turns_in_order(
    channel: BlockingChannel, queue: str
) -> None:
    channel.basic_qos(prefetch_count=3, global_qos=True)
    got: list[tuple[str, bytes]] = []
    for tag in ("a", "b", "c"):
        channel.basic_consume(
            queue, lambda _, m, p, b: got.append((m.consumer_tag, b)), consumer_tag=tag
        )
    put(channel, queue, *[b"%d" % number for number in range(9)])
    for count in (3, 6, 9):
        until(channel.connection, lambda count=count: len(got) == count)
        settle_for(channel.connection, 0.1)
        assert len(got) == count
        channel.basic_ack(0, multiple=True)
    assert [body for _, body in got] == [b"%d" % number for number in range(9)]
    assert {tag for tag, _ in got[:3]} == {"a", "b", "c"}
