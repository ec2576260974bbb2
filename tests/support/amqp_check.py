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
    """What must hold after any bytes at all, however they are cut into reads."""
    in_pieces = feed(data, 37, logged_in=logged_in)
    at_once = feed(data, len(data) or 1, logged_in=logged_in)
    assert _until_answered(in_pieces) == _until_answered(at_once), "it depends on the reads"


def _until_answered(said: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """What came before a channel ended: the rest hangs on when the door says so, between reads."""
    ends = [at for at, one in enumerate(said) if one[0] in (ChannelClosed, ChannelFailed)]
    return said[: ends[0]] if ends else said


def feed(data: bytes, piece: int, *, logged_in: bool) -> list[tuple[object, ...]]:
    """Feeds `data` as a door would; returns what was said, message by message."""
    connection = open_connection(1, limits=LIMITS) if logged_in else ServerConnection(LIMITS, {})
    failures = 0
    said: list[tuple[object, ...]] = []
    for start in range(0, len(data), piece):
        for event in connection.receive(data[start : start + piece]):
            if not isinstance(event, Published):
                said.append((type(event),))
            match event:
                case Published():
                    for target, properties, bodies in event.groups:
                        assert max(map(len, bodies)) <= LIMITS.max_message_bytes
                        with contextlib.suppress(MalformedRequest):
                            message_properties.parse(properties)
                        where = (event.channel.number, target.exchange, target.routing_key)
                        flags = (target.mandatory, target.immediate)
                        said += [(*where, *flags, properties, bytes(body)) for body in bodies]
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
    return said
