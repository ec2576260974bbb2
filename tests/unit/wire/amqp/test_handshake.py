"""Opening a connection, and every way it can go wrong."""

from __future__ import annotations

import pytest
from pamqp import commands

from penstock.wire.amqp.codes import CHANNEL_ERROR, FRAME_ERROR, NOT_ALLOWED
from penstock.wire.amqp.connection import ServerConnection
from penstock.wire.amqp.events import (
    ConnectionClosed,
    ConnectionFailed,
    LoginAttempted,
    VirtualHostWanted,
)
from penstock.wire.amqp.handshake import CAPABILITIES, Limits, Step
from support.amqp_script import HEADER, marshal, raw_frame, said

START_OK = commands.Connection.StartOk(
    {"product": "t", "capabilities": {"basic.nack": True}}, "PLAIN", "\0guest\0guest", "en_US"
)


def fresh(**limits: int) -> ServerConnection:
    return ServerConnection(Limits(**limits), {"product": "Penstock", "version": "1"})


def logged_in() -> ServerConnection:
    connection = fresh()
    connection.receive(HEADER + marshal(0, START_OK))
    connection.accept_login()
    connection.take_out()
    return connection


def failure(connection: ServerConnection, data: bytes) -> int:
    (failed,) = connection.receive(data)
    assert isinstance(failed, ConnectionFailed)
    connection.fail(failed.error)
    return failed.error.code


def test_a_client_opens_a_connection() -> None:
    connection = fresh()
    assert connection.receive(HEADER) == []
    (start,) = said(connection)
    assert isinstance(start, commands.Connection.Start)
    assert start.server_properties["product"] == "Penstock"
    assert start.server_properties["capabilities"] == CAPABILITIES
    assert start.mechanisms == "PLAIN AMQPLAIN"
    (login,) = connection.receive(marshal(0, START_OK))
    assert login == LoginAttempted("PLAIN", b"\0guest\0guest", START_OK.client_properties)
    connection.accept_login()
    (tune,) = said(connection)
    assert isinstance(tune, commands.Connection.Tune)
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2047, 131072, 60)
    assert connection.receive(marshal(0, commands.Connection.TuneOk(100, 8192, 7))) == []
    (host,) = connection.receive(marshal(0, commands.Connection.Open("orders")))
    assert host == VirtualHostWanted("orders")
    connection.open_virtual_host()
    (opened,) = said(connection)
    assert isinstance(opened, commands.Connection.OpenOk)
    handshake = connection.handshake
    assert (handshake.channel_max, handshake.frame_max, handshake.heartbeat_s) == (100, 8192, 7)
    assert handshake.client_capabilities == {"basic.nack": True}


@pytest.mark.parametrize("header", [b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x09"])
def test_both_ways_to_write_the_version_are_accepted(header: bytes) -> None:
    connection = fresh()
    for byte in header:
        assert connection.receive(bytes([byte])) == []
    assert connection.handshake.step is Step.START_OK


@pytest.mark.parametrize(
    "header",
    [b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00", b"GET / HTTP/1.1\r\n", b"HELO", b"\x00"],
)
def test_another_protocol_is_told_ours_and_dropped(header: bytes) -> None:
    connection = fresh()
    (failed,) = connection.receive(header)
    assert isinstance(failed, ConnectionFailed)
    connection.fail(failed.error)
    assert connection.take_out() == [HEADER]
    assert connection.is_finished
    assert connection.receive(b"more") == []


def test_zero_in_tune_ok_means_the_limits_of_the_broker() -> None:
    connection = logged_in()
    connection.receive(marshal(0, commands.Connection.TuneOk(0, 0, 0)))
    assert connection.handshake.frame_max == 131072
    assert connection.handshake.channel_max == 2047


@pytest.mark.parametrize("tune", [(0, 100, 0), (0, 2**20, 0), (60000, 131072, 0)])
def test_limits_outside_the_offer_are_not_allowed(tune: tuple[int, int, int]) -> None:
    connection = logged_in()
    assert failure(connection, marshal(0, commands.Connection.TuneOk(*tune))) == NOT_ALLOWED
    (close,) = said(connection)
    assert isinstance(close, commands.Connection.Close)


@pytest.mark.parametrize(
    "method",
    [
        commands.Connection.Open("/"),
        commands.Connection.TuneOk(0, 0, 0),
        commands.Queue.Declare(queue="q"),
    ],
)
def test_a_step_cannot_be_left_out(method: commands.Connection.Open) -> None:
    connection = fresh()
    connection.receive(HEADER)
    assert failure(connection, marshal(0, method)) == CHANNEL_ERROR


def test_nothing_may_be_said_while_the_login_is_being_decided() -> None:
    connection = fresh()
    connection.receive(HEADER + marshal(0, START_OK))
    assert failure(connection, marshal(0, START_OK)) == CHANNEL_ERROR


def test_channels_wait_for_the_connection_to_be_open() -> None:
    connection = logged_in()
    assert failure(connection, marshal(1, commands.Channel.Open())) == CHANNEL_ERROR


def test_the_virtual_host_is_asked_for_once() -> None:
    connection = logged_in()
    connection.receive(marshal(0, commands.Connection.TuneOk(0, 0, 0)))
    connection.receive(marshal(0, commands.Connection.Open("/")))
    assert failure(connection, marshal(0, commands.Connection.Open("/"))) == CHANNEL_ERROR


def test_a_long_frame_before_the_login_is_refused_when_only_its_size_is_known() -> None:
    connection = fresh()
    connection.receive(HEADER)
    assert failure(connection, b"\x01\x00\x00\x00\x02\x00\x00" + b"x") == FRAME_ERROR
    assert connection.is_finished


def test_a_login_of_many_bytes_is_refused() -> None:
    connection = fresh()
    connection.receive(HEADER)
    assert failure(connection, raw_frame(1, 0, b"\x00\x0a\x00\x0b" + bytes(9000))) == FRAME_ERROR


def test_a_client_may_leave_before_it_is_in() -> None:
    connection = fresh()
    connection.receive(HEADER)
    (closed,) = connection.receive(
        marshal(0, commands.Connection.Close(200, "changed my mind", 0, 0))
    )
    assert closed == ConnectionClosed(200, "changed my mind")
    connection.confirm_connection_close()
    assert isinstance(said(connection)[-1], commands.Connection.CloseOk)
