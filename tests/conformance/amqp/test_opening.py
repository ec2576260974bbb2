"""Opening and closing connections: login, tuning, virtual hosts, heartbeats, close both ways."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pamqp import commands as c
from pamqp import encode

from support.amqp_wire import CLIENT_PROPERTIES, PROTOCOL_HEADER, AmqpWire, raw_frame

Open = Callable[..., AmqpWire]


def started(wire: Open) -> AmqpWire:
    one = wire(raw=True)
    one.send_raw(PROTOCOL_HEADER)
    one.expect(c.Connection.Start)
    return one


def logged_in(wire: Open) -> AmqpWire:
    one = started(wire)
    one.send(0, c.Connection.StartOk(CLIENT_PROPERTIES, "PLAIN", "\0guest\0guest", "en_US"))
    one.expect(c.Connection.Tune)
    return one


def test_the_broker_says_what_it_can(wire: Open) -> None:
    one = wire(raw=True)
    one.send_raw(PROTOCOL_HEADER)
    start = one.expect(c.Connection.Start)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert set(start.mechanisms.split()) >= {"PLAIN", "AMQPLAIN"}
    capabilities = start.server_properties["capabilities"]
    for name in (
        "publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
        "connection.blocked", "consumer_priorities", "authentication_failure_close",
        "per_consumer_qos", "direct_reply_to",
    ):  # fmt: skip
        assert capabilities[name] is True


def test_amqplain_works_too(wire: Open) -> None:
    one = started(wire)
    table = encode.field_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:].decode("latin-1")
    one.send(0, c.Connection.StartOk(CLIENT_PROPERTIES, "AMQPLAIN", table, "en_US"))
    one.expect(c.Connection.Tune)


def test_a_wrong_password_is_told(wire: Open) -> None:
    one = started(wire)
    one.send(0, c.Connection.StartOk(CLIENT_PROPERTIES, "PLAIN", "\0guest\0wrong", "en_US"))
    text = one.expect_error(c.Connection.Close, 403)
    assert text.startswith(
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN"
    )


def test_a_client_that_cannot_be_told_finds_the_socket_closed(wire: Open) -> None:
    one = started(wire)
    one.send(0, c.Connection.StartOk({}, "PLAIN", "\0guest\0wrong", "en_US"))
    assert one.at_end()


@pytest.mark.own_broker
def test_an_unknown_mechanism_is_an_invalid_command(wire: Open) -> None:
    one = started(wire)
    one.send(0, c.Connection.StartOk(CLIENT_PROPERTIES, "MAGIC", "", "en_US"))
    assert "MAGIC" in one.expect_error(c.Connection.Close, 503)


def test_a_missing_virtual_host_is_not_allowed(wire: Open) -> None:
    one = logged_in(wire)
    one.send(0, c.Connection.TuneOk(2047, 131072, 0))
    one.send(0, c.Connection.Open("zork"))
    assert one.expect_error(c.Connection.Close, 530) == "NOT_ALLOWED - vhost zork not found"


@pytest.mark.own_broker
@pytest.mark.parametrize("tune", [(0, 100, 0), (0, 2**20, 0), (60_000, 131_072, 0)])
def test_limits_outside_the_offer_are_not_allowed(wire: Open, tune: tuple[int, int, int]) -> None:
    one = logged_in(wire)
    one.send(0, c.Connection.TuneOk(*tune))
    assert "negotiated" in one.expect_error(c.Connection.Close, 530)


@pytest.mark.parametrize("header", [b"AMQP\x00\x01\x00\x00", b"GET / HTTP/1.1\r\n", b"HELO1234"])
def test_another_protocol_is_told_ours(wire: Open, header: bytes) -> None:
    one = wire(raw=True)
    one.send_raw(header)
    assert one.socket.recv(8) == PROTOCOL_HEADER
    assert one.at_end()


def test_the_broker_beats(wire: Open) -> None:
    one = wire(heartbeat_s=1)
    one.socket.settimeout(3)
    for _ in range(3):
        assert one.socket.recv(8) == raw_frame(8, 0, b"")
        one.send_raw(raw_frame(8, 0, b""))


def test_a_silent_client_is_given_up(wire: Open) -> None:
    silent, beating = wire(heartbeat_s=1), wire(heartbeat_s=1)
    started = time.monotonic()
    silent.socket.settimeout(1)
    gone = False
    while not gone and time.monotonic() - started < 10:
        beating.send_raw(raw_frame(8, 0, b""))
        try:
            gone = silent.socket.recv(100) == b""
        except TimeoutError:
            continue
        except ConnectionResetError:
            gone = True
    assert gone
    assert time.monotonic() - started > 1.5
    beating.call(1, c.Channel.Flow(True), c.Channel.FlowOk)


def test_the_client_closes(wire: Open) -> None:
    one = wire()
    one.call(1, c.Channel.Close(200, "done", 0, 0), c.Channel.CloseOk)
    one.channel(1)
    one.call(0, c.Connection.Close(200, "bye", 0, 0), c.Connection.CloseOk)


def test_everything_said_before_a_close_is_done(wire: Open) -> None:
    one, other = wire(), wire()
    queue = other.call(1, c.Queue.Declare(queue="", durable=True), c.Queue.DeclareOk).queue
    one.send(1, c.Queue.Bind(queue=queue, exchange="amq.direct", routing_key=queue, nowait=True))
    for number in range(50):
        one.publish("amq.direct", queue, b"%d" % number)
    one.call(0, c.Connection.Close(200, "bye", 0, 0), c.Connection.CloseOk)
    deleted = other.call(1, c.Queue.Delete(queue=queue), c.Queue.DeleteOk)
    assert deleted.message_count == 50


def test_a_new_secret_is_taken_and_changes_nothing(wire: Open) -> None:
    one = wire()
    for secret in ("guest", "a token that this broker knows nothing of"):
        one.call(0, c.Connection.UpdateSecret(secret, "renewed"), c.Connection.UpdateSecretOk)
    one.call(1, c.Queue.Declare(queue="", exclusive=True), c.Queue.DeclareOk)
