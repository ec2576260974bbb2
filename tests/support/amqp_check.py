"""One check for every fuzzer of the AMQP parser."""

from __future__ import annotations

import contextlib

from penstock.errors import MalformedRequest
from penstock.model import message_properties
from penstock.wire.amqp.connection import ServerConnection
from penstock.wire.amqp.events import (
    ChannelClosed,
    ChannelFailed,
    ChannelOpened,
    ConnectionClosed,
    ConnectionFailed,
    LoginAttempted,
    Published,
    VirtualHostWanted,
)
from penstock.wire.amqp.handshake import Limits
from support.amqp_script import open_connection

LIMITS = Limits(max_message_bytes=100_000, max_unfinished_bytes=200_000)


def check_stream(data: bytes, *, logged_in: bool) -> None:
    """Feeds `data` as a door would, and asserts what must hold after any bytes at all."""
    connection = open_connection(1, limits=LIMITS) if logged_in else ServerConnection(LIMITS, {})
    failures = 0
    for start in range(0, len(data), 37):
        for event in connection.receive(data[start : start + 37]):
            match event:
                case Published():
                    for _, properties, bodies in event.groups:
                        assert max(map(len, bodies)) <= LIMITS.max_message_bytes
                        with contextlib.suppress(MalformedRequest):
                            message_properties.parse(properties)
                case LoginAttempted():
                    connection.accept_login()
                case VirtualHostWanted():
                    connection.open_virtual_host()
                case ChannelOpened():
                    connection.open_channel(event.channel)
                case ChannelClosed():
                    connection.confirm_close(event.channel)
                case ChannelFailed():
                    connection.fail_channel(event.channel, event.error)
                case ConnectionClosed():
                    connection.confirm_connection_close()
                case ConnectionFailed():
                    failures += 1
                    connection.fail(event.error)
        held = connection.unfinished_bytes + len(connection._rest)
        assert held <= LIMITS.max_unfinished_bytes + LIMITS.frame_max + 16
    assert failures <= 1
    assert connection.unfinished_bytes == sum(c.buffered_bytes for c in connection.channels)
