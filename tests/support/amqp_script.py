"""What a client would send, as bytes, for tests of the connection without a socket."""

from __future__ import annotations

import struct

from pamqp import commands, frame
from pamqp.base import Frame

from penstock.wire.amqp.connection import ServerConnection
from penstock.wire.amqp.events import LoginAttempted, VirtualHostWanted
from penstock.wire.amqp.handshake import Limits

HEADER = b"AMQP\x00\x00\x09\x01"


def marshal(channel: int, method: Frame) -> bytes:
    return frame.marshal(method, channel)


def handshake_bytes(
    *, heartbeat_s: int = 0, frame_max: int = 131072, channel_max: int = 2047
) -> bytes:
    """Everything a client says until the connection is open, except the protocol header."""
    start_ok = commands.Connection.StartOk({"product": "t"}, "PLAIN", "\0guest\0guest", "en_US")
    tune_ok = commands.Connection.TuneOk(channel_max, frame_max, heartbeat_s)
    return b"".join(marshal(0, m) for m in (start_ok, tune_ok, commands.Connection.Open("/")))


def open_connection(*channels: int, limits: Limits | None = None, **tune: int) -> ServerConnection:
    """A connection that is running, with channels, and nothing left to write."""
    connection = ServerConnection(limits or Limits(), {"product": "Penstock"})
    connection.receive(HEADER)
    start_ok = commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")
    (login,) = connection.receive(marshal(0, start_ok))
    assert isinstance(login, LoginAttempted)
    connection.accept_login()
    wanted = {"channel_max": 2047, "frame_max": 131072, "heartbeat": 0, **tune}
    (host,) = connection.receive(
        marshal(0, commands.Connection.TuneOk(**wanted)) + marshal(0, commands.Connection.Open("/"))
    )
    assert isinstance(host, VirtualHostWanted)
    connection.open_virtual_host()
    for number in channels:
        (opened,) = connection.receive(marshal(number, commands.Channel.Open()))
        connection.open_channel(opened.channel)  # type: ignore[union-attr]
    connection.take_out()
    return connection


def raw_frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def publish(
    channel: int,
    body: bytes,
    *,
    exchange: bytes = b"e",
    routing_key: bytes = b"k",
    properties: bytes = b"\x10\x00\x02",
    announced: int | None = None,
    room: int = 131064,
) -> bytes:
    """The frames of one message; `announced` lies about its size, `room` cuts its body."""
    method = b"".join(
        (
            b"\x00\x3c\x00\x28\x00\x00",
            bytes([len(exchange)]) + exchange,
            bytes([len(routing_key)]) + routing_key,
            b"\x00",
        )
    )
    size = len(body) if announced is None else announced
    parts = [
        raw_frame(1, channel, method),
        raw_frame(2, channel, b"\x00\x3c\x00\x00" + size.to_bytes(8, "big") + properties),
        *(raw_frame(3, channel, body[at : at + room]) for at in range(0, len(body), room)),
    ]
    return b"".join(parts)


def settle(channel: int, method_id: int, tag: int, bits: int) -> bytes:
    return raw_frame(1, channel, struct.pack(">HHQB", 60, method_id, tag, bits))


def said(connection: ServerConnection) -> list[Frame]:
    """The methods the broker wrote since the last time."""
    data = b"".join(connection.take_out())
    methods = []
    while data:
        consumed, _, method = frame.unmarshal(data)
        methods.append(method)
        data = data[consumed:]
    return methods
