"""What a connection hands to the door: one event per thing the client said.

The first three come with messages, so they are tuples; all others are rare.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from penstock.wire.amqp.codes import AmqpError
from penstock.wire.amqp.content import ACK, NACK, REJECT, PublishTarget
from penstock.wire.amqp.methods import Method

if TYPE_CHECKING:
    from penstock.wire.amqp.channel import ChannelState


_TAG = struct.Struct(">QB")


class Publish(NamedTuple):
    """Messages that differ in nothing but their bodies.

    `properties` are as the publisher wrote them, not looked at yet.
    """

    target: PublishTarget
    properties: bytes
    bodies: list[bytes]


class Published(NamedTuple):
    """Messages that follow each other on one channel, in order."""

    channel: ChannelState
    groups: list[Publish]


class Acknowledged(NamedTuple):
    """basic.ack from a consumer."""

    channel: ChannelState
    delivery_tag: int
    multiple: bool


class Rejected(NamedTuple):
    """basic.reject or basic.nack from a consumer."""

    channel: ChannelState
    delivery_tag: int
    multiple: bool
    requeue: bool
    method: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Called:
    """A method of the control plane on an open channel."""

    channel: ChannelState
    method: Method


@dataclass(frozen=True, slots=True)
class LoginAttempted:
    """start-ok or secure-ok: the door decides, then calls `accept_login` or `refuse_login`."""

    mechanism: str
    response: bytes
    client_properties: dict[str, object]


@dataclass(frozen=True, slots=True)
class VirtualHostWanted:
    """connection.open: the door calls `open_virtual_host` or `fail`."""

    name: str


@dataclass(frozen=True, slots=True)
class SecretUpdated:
    """connection.update-secret: the door answers with `send`."""

    secret: bytes


@dataclass(frozen=True, slots=True)
class ChannelOpened:
    """The door calls `open_channel`."""

    channel: ChannelState


@dataclass(frozen=True, slots=True)
class ChannelClosed:
    """The client closed it; the door puts back what was unsettled, then calls `confirm_close`."""

    channel: ChannelState


@dataclass(frozen=True, slots=True)
class ChannelFailed:
    """A rule of the protocol was broken on this channel: the door calls `fail_channel`."""

    channel: ChannelState
    error: AmqpError


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """The client said connection.close: the door finishes, then `confirm_connection_close`."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class ConnectionFailed:
    """A rule of the protocol was broken: the door calls `fail`. Only CloseAnswered can follow."""

    error: AmqpError


@dataclass(frozen=True, slots=True)
class CloseAnswered:
    """The client answered our connection.close: the socket may be closed."""


Event = (
    Published
    | Acknowledged
    | Rejected
    | Called
    | LoginAttempted
    | VirtualHostWanted
    | SecretUpdated
    | ChannelOpened
    | ChannelClosed
    | ChannelFailed
    | ConnectionClosed
    | ConnectionFailed
    | CloseAnswered
)


_new = tuple.__new__


def read_settlement(channel: ChannelState, payload: bytes) -> Acknowledged | Rejected | None:
    """basic.ack, nack or reject, whose 13 bytes end with a delivery tag u64 and some bits."""
    ids = payload[:4]
    tag, bits = _TAG.unpack_from(payload, 4)
    if ids == ACK:
        return _new(Acknowledged, (channel, tag, bits & 1 != 0))
    if ids == NACK:
        return Rejected(channel, tag, bits & 1 != 0, bits & 2 != 0, (60, 120))
    if ids == REJECT:
        return Rejected(channel, tag, False, bits & 1 != 0, (60, 90))
    return None
