"""A raw AMQP 0-9-1 connection for tests: it can say what no client library would.

Frames are written by hand and read with pamqp, which is not what the broker writes them with.
"""

from __future__ import annotations

import socket
import struct
from typing import Any, NamedTuple

from pamqp import body, commands, frame, header, heartbeat
from pamqp.base import Frame

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
CLIENT_PROPERTIES: dict[str, Any] = {
    "product": "amqp_wire",
    "capabilities": {
        "publisher_confirms": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "connection.blocked": True,
        "authentication_failure_close": True,
    },
}


class Content(NamedTuple):
    """A method that carries a message, with all of it."""

    method: Frame
    properties: commands.Basic.Properties
    body: bytes


def raw_frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end


def short(text: str | bytes) -> bytes:
    encoded = text.encode() if isinstance(text, str) else text
    return bytes((len(encoded),)) + encoded


def publish_frames(
    channel: int,
    exchange: str,
    routing_key: str,
    payload: bytes,
    properties: bytes = b"\x10\x00\x02",
    *,
    flags: int = 0,
    frame_max: int = 131072,
) -> bytes:
    """The frames of one basic.publish; `flags` are mandatory (1) and immediate (2)."""
    method = b"\x00\x3c\x00\x28\x00\x00" + short(exchange) + short(routing_key) + bytes((flags,))
    parts = [
        raw_frame(METHOD, channel, method),
        raw_frame(
            HEADER, channel, b"\x00\x3c\x00\x00" + struct.pack(">Q", len(payload)) + properties
        ),
    ]
    room = frame_max - 8
    parts += [
        raw_frame(BODY, channel, payload[at : at + room]) for at in range(0, len(payload), room)
    ]
    return b"".join(parts)


class AmqpWire:
    """One socket. `expect(X)` reads the next method and asserts that it is an X."""

    def __init__(self, host: str, port: int, *, within: float = 10.0) -> None:
        self.socket = socket.create_connection((host, port), within)
        self.socket.settimeout(within)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def close(self) -> None:
        self.socket.close()

    # --- opening ----------------------------------------------------------------------------------

    def handshake(
        self,
        *,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        client_properties: dict[str, Any] | None = None,
        heartbeat_s: int = 0,
        channel_max: int = 2047,
        frame_max: int = 131072,
    ) -> AmqpWire:
        """From the protocol header to open-ok."""
        self.send_raw(PROTOCOL_HEADER)
        self.expect(commands.Connection.Start)
        response = f"\0{user}\0{password}"
        properties = CLIENT_PROPERTIES if client_properties is None else client_properties
        self.send(0, commands.Connection.StartOk(properties, "PLAIN", response, "en_US"))
        self.expect(commands.Connection.Tune)
        self.send(0, commands.Connection.TuneOk(channel_max, frame_max, heartbeat_s))
        self.send(0, commands.Connection.Open(vhost))
        self.expect(commands.Connection.OpenOk)
        return self

    def channel(self, number: int = 1) -> AmqpWire:
        self.send(number, commands.Channel.Open())
        self.expect(commands.Channel.OpenOk)
        return self

    # --- frames -----------------------------------------------------------------------------------

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, channel: int, method: Frame) -> None:
        self.socket.sendall(frame.marshal(method, channel))

    def send_method(
        self, channel: int, class_id: int, method_id: int, arguments: bytes = b""
    ) -> None:
        """A method whose arguments pamqp would not write."""
        payload = struct.pack(">HH", class_id, method_id) + arguments
        self.send_raw(raw_frame(METHOD, channel, payload))

    def call(self, channel: int, method: Frame, answer: type[Frame]) -> Any:
        self.send(channel, method)
        return self.expect(answer)

    def publish(
        self, exchange: str, routing_key: str, payload: bytes, *, channel: int = 1, **more: Any
    ) -> None:
        self.send_raw(publish_frames(channel, exchange, routing_key, payload, **more))

    def read_frame(self) -> tuple[int, Any]:
        """(channel, frame), heartbeats left out; EOFError when the broker closed the socket."""
        while True:
            if len(self.buffer) >= 7:
                size = int.from_bytes(self.buffer[3:7], "big")
                if len(self.buffer) >= size + 8:
                    one, self.buffer = self.buffer[: size + 8], self.buffer[size + 8 :]
                    if size == 0 and one[0] == BODY:
                        return int.from_bytes(one[1:3], "big"), body.ContentBody(b"")
                    _, channel, decoded = frame.unmarshal(one)
                    if not isinstance(decoded, heartbeat.Heartbeat):
                        return channel, decoded
                    continue
            got = self.socket.recv(65536)
            if not got:
                raise EOFError
            self.buffer += got

    def read(self) -> tuple[int, Any]:
        """(channel, method), or (channel, Content) for one that carries a message."""
        channel, method = self.read_frame()
        if not isinstance(
            method, commands.Basic.Deliver | commands.Basic.GetOk | commands.Basic.Return
        ):
            return channel, method
        _, head = self.read_frame()
        assert isinstance(head, header.ContentHeader), head
        payload = b""
        while len(payload) < head.body_size:
            _, part = self.read_frame()
            payload += part.value
        return channel, Content(method, head.properties, payload)

    def expect(self, kind: type[Frame]) -> Any:
        _, got = self.read()
        method = got.method if isinstance(got, Content) else got
        assert isinstance(method, kind), f"{kind.name} expected, got {describe(method)}"
        return got

    def expect_error(self, kind: type[Frame], code: int) -> str:
        """The text of a channel.close or connection.close with that code."""
        closed = self.expect(kind)
        assert closed.reply_code == code, describe(closed)
        return str(closed.reply_text)

    def at_end(self) -> bool:
        """Whether the broker closes the socket, whatever it says before."""
        try:
            while True:
                self.read_frame()
        except (EOFError, ConnectionError):
            return True
        except TimeoutError:
            return False


def describe(method: Any) -> str:
    if isinstance(method, Frame):
        return f"{method.name} {dict(method)}"
    return repr(method)
