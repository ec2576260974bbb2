"""Opening a connection: protocol header, login, tuning, virtual host.

    client                                   broker
    AMQP 0 0 9 1          ───►
                          ◄───               start (properties, mechanisms)
    start-ok (response)   ───►               LoginAttempted ── the door decides
                          ◄───               tune (channel-max, frame-max, heartbeat)
    tune-ok               ───►
    open (virtual host)   ───►               VirtualHostWanted ── the door decides
                          ◄───               open-ok

Clients may send open right behind tune-ok, and tune-ok right behind start-ok: nothing here waits
for an answer to have been read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pamqp import commands

from penstock.wire.amqp.codes import (
    CHANNEL_ERROR,
    FRAME_MIN_SIZE,
    NOT_ALLOWED,
    PROTOCOL_HEADER,
    AmqpError,
)
from penstock.wire.amqp.events import LoginAttempted, VirtualHostWanted
from penstock.wire.amqp.methods import Method, encode_method, method_ids

# AMQP 0-9 clients wrote the version in another order; what they speak is 0-9-1 all the same.
ACCEPTED_HEADERS: Final = (PROTOCOL_HEADER, b"AMQP\x01\x01\x00\x09")

CAPABILITIES: Final[Mapping[str, object]] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "basic.renew": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one connection may ask of the broker."""

    frame_max: int = 131_072
    first_frame_max: int = 8_192  # until the peer has logged in and tuned
    channel_max: int = 2_047
    heartbeat_s: int = 60
    max_message_bytes: int = 16 * 1024 * 1024
    max_unfinished_bytes: int = 64 * 1024 * 1024  # of messages still arriving, all channels


class Step(Enum):
    """What the broker waits for."""

    HEADER = "protocol header"
    START_OK = "starting"
    DECISION = "authenticating"  # of the door about the login
    TUNE_OK = "tuning"
    OPEN = "opening"
    RUNNING = "running"


class Handshake:
    """Walks through the steps; afterwards holds what was agreed."""

    __slots__ = (
        "_limits", "_wanted_host", "channel_max", "client_properties", "frame_max", "heartbeat_s",
        "mechanism", "server_properties", "step",
    )  # fmt: skip

    def __init__(self, limits: Limits, server_properties: Mapping[str, object]) -> None:
        self._limits = limits
        self.server_properties = {"capabilities": CAPABILITIES, **server_properties}
        self.step = Step.HEADER
        self.channel_max = limits.channel_max
        self.frame_max = limits.first_frame_max
        self.heartbeat_s = 0
        self.client_properties: dict[str, object] = {}
        self.mechanism = ""
        self._wanted_host = False

    def start(self) -> bytes:
        """The client speaks our protocol: connection.start."""
        self.step = Step.START_OK
        mechanisms, locales = "PLAIN AMQPLAIN", "en_US"
        start = commands.Connection.Start
        return encode_method(0, start, 0, 9, self.server_properties, mechanisms, locales)

    def accept_login(self) -> bytes:
        """connection.tune; from here on frames may be as long as they ever will."""
        assert self.step is Step.DECISION
        self.step = Step.TUNE_OK
        limits = self._limits
        tune = commands.Connection.Tune
        return encode_method(0, tune, limits.channel_max, limits.frame_max, limits.heartbeat_s)

    def receive(self, method: Method) -> LoginAttempted | VirtualHostWanted | None:
        """A method on channel 0 before the connection is open."""
        match self.step, method:
            case Step.START_OK, commands.Connection.StartOk():
                return self._login(method)
            case Step.TUNE_OK, commands.Connection.TuneOk():
                self._tune(method)
                return None
            case Step.OPEN, commands.Connection.Open() if not self._wanted_host:
                self._wanted_host = True
                return VirtualHostWanted(method.virtual_host)
        text = f"unexpected method in connection state {self.step.value}"
        raise AmqpError(CHANNEL_ERROR, text, method_ids(method))

    def open(self) -> bytes:
        """The virtual host is there and the user may use it: connection.open-ok."""
        assert self.step is Step.OPEN
        self.step = Step.RUNNING
        return encode_method(0, commands.Connection.OpenOk, "")

    @property
    def client_capabilities(self) -> Mapping[str, object]:
        told = self.client_properties.get("capabilities")
        return told if isinstance(told, Mapping) else {}

    def _login(self, method: commands.Connection.StartOk) -> LoginAttempted:
        self.step = Step.DECISION
        self.client_properties = dict(method.client_properties or {})
        self.mechanism = method.mechanism
        response = method.response.encode("utf-8", "surrogateescape")
        return LoginAttempted(method.mechanism, response, self.client_properties)

    def _tune(self, method: commands.Connection.TuneOk) -> None:
        limits, ids = self._limits, method_ids(method)
        # 0 means "no limit of mine": ours then holds.
        frame_max = method.frame_max or limits.frame_max
        channel_max = method.channel_max or limits.channel_max
        for name, wanted, most in (
            ("frame_max", frame_max, limits.frame_max),
            ("channel_max", channel_max, limits.channel_max),
        ):
            if wanted > most:
                text = f"negotiated {name} = {wanted} is higher than the maximum allowed ({most})"
                raise AmqpError(NOT_ALLOWED, text, ids)
        if frame_max < FRAME_MIN_SIZE:
            text = (
                f"negotiated frame_max = {frame_max} is lower than the minimum allowed"
                f" ({FRAME_MIN_SIZE})"
            )
            raise AmqpError(NOT_ALLOWED, text, ids)
        self.frame_max, self.channel_max = frame_max, channel_max
        self.heartbeat_s = method.heartbeat
        self.step = Step.OPEN
