"""An AMQP connection as the broker sees it: bytes in, events out; nothing here waits or writes.

The door gives what the socket read to `receive` and gets events; it answers with the methods below,
each of which appends frames to `out`, and writes `out` to the socket when it likes. A frame's size
is checked before any of it is kept, so a peer never makes us hold more than one frame, plus the
bodies of unfinished messages, which `Limits` bounds as well.

A broken rule ends the channel or the connection, as the specification says: an event tells the door
after everything that came before it, what follows is ignored, and the door answers with
`fail_channel` or `fail`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from pamqp import commands

from penstock.wire.amqp import content
from penstock.wire.amqp.channel import NOT_A_METHOD, ChannelState, Phase
from penstock.wire.amqp.codes import (
    CHANNEL_ERROR,
    COMMAND_INVALID,
    FRAME_BODY,
    FRAME_END,
    FRAME_ERROR,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    NOT_ALLOWED,
    PROTOCOL_HEADER,
    UNEXPECTED_FRAME,
    AmqpError,
)
from penstock.wire.amqp.content import PUBLISH, Buffers
from penstock.wire.amqp.events import (
    Called,
    ChannelClosed,
    ChannelFailed,
    ChannelOpened,
    CloseAnswered,
    ConnectionClosed,
    ConnectionFailed,
    Event,
    Publish,
    Published,
    SecretUpdated,
    read_settlement,
)
from penstock.wire.amqp.handshake import ACCEPTED_HEADERS, Handshake, Limits, Step
from penstock.wire.amqp.methods import CALLS, Method, decode_method, encode_method, method_ids
from penstock.wire.amqp.publish_reader import PublishReader

_FRAME = struct.Struct(">BHI")
_SLACK = 8  # quite a few clients count the frame's overhead twice or not at all
_OPEN: Final = Phase.OPEN


class ServerConnection:
    """The state of one connection. `out` holds what is to be written next."""

    __slots__ = (
        "_channels", "_deaf", "_finished", "_limits", "_need", "_payload_max", "_publishes",
        "_rest", "close_written", "handshake", "out", "unfinished_bytes",
    )  # fmt: skip

    def __init__(self, limits: Limits, server_properties: Mapping[str, object]) -> None:
        self._limits = limits
        self.handshake = Handshake(limits, server_properties)
        self.out: Buffers = []
        self.unfinished_bytes = 0  # of bodies that are still arriving
        self._channels: dict[int, ChannelState] = {}
        self._publishes = PublishReader(limits)
        self._payload_max = limits.first_frame_max - FRAME_OVERHEAD
        self._rest = bytearray()  # the beginning of a frame that is not whole
        self._need = 8  # how long `_rest` must be to be worth a look
        self._deaf = False  # the connection has failed: only close and close-ok count
        self.close_written = False  # and therefore an answer to it may come
        self._finished = False  # nothing that arrives is looked at

    def __repr__(self) -> str:
        return f"<ServerConnection {self.handshake.step.value} channels={len(self._channels)}>"

    @property
    def is_finished(self) -> bool:
        """Nothing that arrives is looked at any more."""
        return self._finished

    @property
    def is_failed(self) -> bool:
        return self._deaf

    @property
    def frame_max(self) -> int:
        return self.handshake.frame_max

    @property
    def channels(self) -> list[ChannelState]:
        return list(self._channels.values())

    # --- what arrives -----------------------------------------------------------------------------

    def receive(self, data: bytes) -> list[Event]:
        """What the client said in these bytes, together with what was left of the last ones."""
        events: list[Event] = []
        if self._finished:
            return events
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need:
                return events
            data = bytes(self._rest)
            self._rest = bytearray()
        try:
            position = self._read(data, events)
        except AmqpError as error:
            # Where the next frame begins is not known any more.
            self._finished = True
            self._break(error, events)
            return events
        if position < len(data) and not self._finished:
            self._rest = bytearray(memoryview(data)[position:])
        return events

    def _read(self, data: bytes, events: list[Event]) -> int:
        """Reads every whole frame; returns where the first that is not whole begins."""
        position, end = 0, len(data)
        if self.handshake.step is Step.HEADER:
            position = self._read_protocol_header(data)
        self._need = 8
        targets = self._publishes.targets
        while end - position >= 8 and not self._finished:
            kind, number, size = _FRAME.unpack_from(data, position)
            if size > self._payload_max:
                text = f"a frame of {size} bytes, at most {self._payload_max} were agreed on"
                raise AmqpError(FRAME_ERROR, text)
            after = position + size + FRAME_OVERHEAD
            if after > end:
                self._need = after - position
                break
            if data[after - 1] != FRAME_END:
                text = f"a frame of type {kind} does not end with {FRAME_END:#x}"
                raise AmqpError(FRAME_ERROR, text)
            try:
                channel = self._channels.get(number)
                if (
                    kind == FRAME_METHOD
                    and channel is not None
                    and channel.phase is _OPEN
                    and channel.target is None
                ):
                    payload = data[position + 7 : after - 1]
                    target = targets.get(payload)
                    if target is None and payload[:4] == PUBLISH:
                        target = self._publishes.remember(payload)
                    if target is not None:
                        position = self._publishes.read(
                            data, position, after, target, channel, events
                        )
                        continue
                    if size == 13 and (settled := read_settlement(channel, payload)):
                        events.append(settled)
                        position = after
                        continue
                self._take_frame(kind, number, data[position + 7 : after - 1], events)
            except AmqpError as error:
                self._break(error, events)
            position = after
        return position

    def _break(self, error: AmqpError, events: list[Event]) -> None:
        if not self._deaf:
            self._fall_silent()
            events.append(ConnectionFailed(error))

    def _fall_silent(self) -> None:
        self._deaf = True
        self.unfinished_bytes = 0
        for channel in self._channels.values():
            channel.phase = Phase.CLOSING
            channel.forget_content()

    def _read_protocol_header(self, data: bytes) -> int:
        if data[:8] in ACCEPTED_HEADERS:
            self.out.append(self.handshake.start())
            return 8
        if len(data) < 8 and PROTOCOL_HEADER.startswith(data[:4]):
            return 0
        # AMQP 0-9-1 §4.2.2: answer with the version we speak, and close.
        self.out.append(PROTOCOL_HEADER)
        self._finished = True
        raise AmqpError(FRAME_ERROR, f"it began with {data[:8]!r}")

    def _take_frame(self, kind: int, number: int, payload: bytes, events: list[Event]) -> None:
        if kind == FRAME_METHOD:
            self._take_method(number, payload, events)
        elif self._deaf:
            return
        elif kind in (FRAME_HEADER, FRAME_BODY):
            self._take_content(kind, number, payload, events)
        elif kind != FRAME_HEARTBEAT or payload:
            raise AmqpError(FRAME_ERROR, f"a frame of type {kind} with {len(payload)} bytes")
        elif number != 0:
            raise AmqpError(UNEXPECTED_FRAME, f"a heartbeat on channel {number}")

    def _take_content(self, kind: int, number: int, payload: bytes, events: list[Event]) -> None:
        channel = self._channels.get(number)
        if channel is None:
            raise AmqpError(UNEXPECTED_FRAME, NOT_A_METHOD)
        if channel.phase is not Phase.OPEN:
            return
        others = self.unfinished_bytes - channel.buffered_bytes
        try:
            if kind == FRAME_HEADER:
                channel.take_header(payload, self._limits.max_message_bytes)
            else:
                channel.take_body(
                    payload, self._limits.max_unfinished_bytes - self.unfinished_bytes
                )
        except AmqpError as error:
            if error.ends_connection:
                raise
            channel.phase = Phase.CLOSING
            channel.forget_content()
            events.append(ChannelFailed(channel, error))
        whole = channel.finish_content()
        if whole is not None:
            target, properties, body = whole
            events.append(Published(channel, [Publish(target, properties, [body])]))
        self.unfinished_bytes = others + channel.buffered_bytes

    # --- methods ----------------------------------------------------------------------------------

    def _take_method(self, number: int, payload: bytes, events: list[Event]) -> None:
        channel = self._channels.get(number)
        if channel is not None and channel.target is not None and channel.phase is _OPEN:
            text = "expected content header for class 60, got non content header frame instead"
            raise AmqpError(UNEXPECTED_FRAME, text, content.PUBLISH_IDS)
        method = decode_method(payload)
        if self._deaf:
            self._take_while_deaf(number, method, events)
        elif number == 0:
            self._take_connection_method(method, events)
        elif self.handshake.step is not Step.RUNNING:
            text = f"a method on channel {number} before the connection is open"
            raise AmqpError(CHANNEL_ERROR, text, method_ids(method))
        elif channel is None:
            self._open_channel(number, method, events)
        else:
            self._take_channel_method(channel, method, events)

    def _take_while_deaf(self, number: int, method: Method, events: list[Event]) -> None:
        if number == 0 and isinstance(method, commands.Connection.CloseOk):
            self._finished = True
            events.append(CloseAnswered())
        elif number == 0 and isinstance(method, commands.Connection.Close):
            self.out.append(encode_method(0, commands.Connection.CloseOk))

    def _take_connection_method(self, method: Method, events: list[Event]) -> None:
        if isinstance(method, commands.Connection.Close):
            self._finished = True
            events.append(ConnectionClosed(method.reply_code or 0, method.reply_text or ""))
        elif self.handshake.step is not Step.RUNNING:
            event = self.handshake.receive(method)
            if self.handshake.step is Step.OPEN:
                self._payload_max = self.handshake.frame_max - FRAME_OVERHEAD + _SLACK
                self._publishes.payload_max = self._payload_max
            if event is not None:
                events.append(event)
        elif isinstance(method, commands.Connection.UpdateSecret):
            secret = (method.new_secret or "").encode("utf-8", "surrogateescape")
            events.append(SecretUpdated(secret))
        else:
            text = "unexpected method in connection state running"
            raise AmqpError(CHANNEL_ERROR, text, method_ids(method))

    def _open_channel(self, number: int, method: Method, events: list[Event]) -> None:
        if not isinstance(method, commands.Channel.Open):
            raise AmqpError(CHANNEL_ERROR, "expected 'channel.open'", method_ids(method))
        if len(self._channels) >= self.handshake.channel_max:
            text = (
                f"number of channels opened ({len(self._channels)}) has reached the negotiated"
                f" channel_max ({self.handshake.channel_max})"
            )
            raise AmqpError(NOT_ALLOWED, text)
        channel = self._channels[number] = ChannelState(number)
        events.append(ChannelOpened(channel))

    def _take_channel_method(
        self, channel: ChannelState, method: Method, events: list[Event]
    ) -> None:
        if channel.phase is Phase.CLOSING:
            if isinstance(method, commands.Channel.CloseOk):
                del self._channels[channel.number]
            elif isinstance(method, commands.Channel.Close):
                channel.left_by_client = True
                self.send(channel, commands.Channel.CloseOk)
            elif isinstance(method, commands.Channel.Open) and channel.left_by_client:
                # Its close crossed ours, and to the client that was the end of the channel.
                del self._channels[channel.number]
                self._open_channel(channel.number, method, events)
        elif channel.phase is Phase.LEAVING:
            return  # said behind its own channel.close
        elif isinstance(method, commands.Channel.Close):
            channel.phase = Phase.LEAVING
            channel.left_by_client = True
            events.append(ChannelClosed(channel))
        elif isinstance(method, commands.Channel.Open):
            raise AmqpError(CHANNEL_ERROR, "second 'channel.open' seen", method_ids(method))
        elif isinstance(method, CALLS):
            events.append(Called(channel, method))
        else:
            raise AmqpError(COMMAND_INVALID, "unimplemented method", method_ids(method))

    # --- what the door says -----------------------------------------------------------------------

    def send(self, channel: ChannelState | None, kind: type[Method], *arguments: object) -> None:
        """A method on a channel, or on the connection when there is none."""
        self.out.append(encode_method(channel.number if channel else 0, kind, *arguments))

    def accept_login(self) -> None:
        self.out.append(self.handshake.accept_login())

    def open_virtual_host(self) -> None:
        self.out.append(self.handshake.open())

    def open_channel(self, channel: ChannelState) -> None:
        self.send(channel, commands.Channel.OpenOk, "")

    def confirm_close(self, channel: ChannelState) -> None:
        """The channel the client closed is done with: its number may be used again."""
        if channel.phase is Phase.LEAVING:
            # Forgotten before close-ok leaves, because the client may open it again at once.
            del self._channels[channel.number]
        self.send(channel, commands.Channel.CloseOk)

    def fail_channel(self, channel: ChannelState, error: AmqpError) -> None:
        """channel.close with the error; what the client still sends on it is ignored."""
        self.unfinished_bytes -= channel.buffered_bytes
        channel.phase = Phase.CLOSING
        channel.forget_content()
        self.send(channel, commands.Channel.Close, error.code, error.reply_text, *error.method)

    def fail(self, error: AmqpError) -> None:
        """connection.close with the error; only its answer is still read."""
        if self.close_written:
            return
        self._fall_silent()
        if self.handshake.step is Step.HEADER:
            self._finished = True  # it does not speak AMQP: there is nothing to say
            return
        self.close_written = True
        close = commands.Connection.Close
        self.send(None, close, error.code, error.reply_text, *error.method)

    def confirm_connection_close(self) -> None:
        """The client closed the connection and the door has finished with its channels."""
        self.send(None, commands.Connection.CloseOk)

    def take_out(self) -> Buffers:
        """What is to be written, handed over."""
        out, self.out = self.out, []
        return out
