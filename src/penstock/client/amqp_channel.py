"""A channel of an AMQP 0-9-1 connection as a client has it: calls, publishing with confirms, and
deliveries.

Nothing is tried again here: a channel that is closed fails all who wait, and its owner opens
another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from pamqp import commands

from penstock.client.errors import (
    Conflict,
    Denied,
    InvalidArgument,
    MessageTooLarge,
    NotFound,
    PenstockError,
    Unavailable,
)
from penstock.wire.amqp.methods import BasicRenew, Method, decode_method, encode_method

_FRAME = struct.Struct(">BHI")
_HEADER, _BODY = 2, 3
_CONTENT_METHODS = (commands.Basic.Deliver, commands.Basic.GetOk, commands.Basic.Return)

_BY_CODE: dict[int, type[PenstockError]] = {
    403: Denied,
    404: NotFound,
    405: Conflict,
    406: InvalidArgument,
    530: Denied,
    541: Unavailable,
}


def of_reply(code: int, text: str) -> PenstockError:
    """What a close of the server means."""
    words = text.split(" - ", 1)[-1]
    if "larger than configured max size" in words:  # RabbitMQ's words, and ours
        return MessageTooLarge(words)
    return _BY_CODE.get(code, Unavailable)(words)


class Content(NamedTuple):
    """A message as it came: its method, property bytes and body."""

    method: Any
    properties: bytes
    body: bytes


class Connection(Protocol):
    """What a channel needs of its connection."""

    frame_max: int

    def write(self, data: bytes) -> None:
        """Send whole frames."""

    def can(self, capability: str) -> bool:
        """Whether the server says that it can do something beyond the specification."""

    def forget(self, channel: AmqpChannel) -> None:
        """This one is over."""


class _Unconfirmed:
    """A message that was published and not confirmed yet."""

    __slots__ = ("confirmed", "exchange", "returned", "routing_key")

    def __init__(
        self, exchange: str, routing_key: str, confirmed: Callable[[PenstockError | None], None]
    ) -> None:
        self.exchange = exchange
        self.routing_key = routing_key
        self.confirmed = confirmed
        self.returned: PenstockError | None = None


class AmqpChannel:
    """One channel."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.deliveries: deque[Content] = deque()
        self.arrived = asyncio.Event()
        self.failure: PenstockError | None = None
        self.is_cancelled = False
        self._answer: asyncio.Future[Any] | None = None
        self._turn = asyncio.Lock()
        self._content: tuple[Any, bytes, int, list[bytes]] | None = None
        self._published = 0
        self._unconfirmed: OrderedDict[int, _Unconfirmed] = OrderedDict()

    def __repr__(self) -> str:
        return f"<AmqpChannel {self.number} {self.failure or 'open'}>"

    # --- calls ------------------------------------------------------------------------------------

    async def call(self, kind: type[Method], *values: object) -> Any:
        """Say something and wait for the answer to it."""
        async with self._turn:
            self._check()
            self._answer = asyncio.get_running_loop().create_future()
            try:
                self.connection.write(encode_method(self.number, kind, *values))
                return await self._answer
            finally:
                self._answer = None

    def renew(self, tag: int) -> None:
        """A delivery takes longer. Only our own servers know of that."""
        self.say(BasicRenew, tag)

    def say(self, kind: type[Method], *values: object) -> None:
        """Say something that has no answer."""
        self._check()
        self.connection.write(encode_method(self.number, kind, *values))

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    # --- messages ---------------------------------------------------------------------------------

    def publish(
        self,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes,
        confirmed: Callable[[PenstockError | None], None],
    ) -> None:
        """Send a message; `confirmed` hears of its confirm. The channel is in confirm mode."""
        self._check()
        self._published += 1
        self._unconfirmed[self._published] = _Unconfirmed(exchange, routing_key, confirmed)
        number, room = self.number, self.connection.frame_max - 8
        parts = [
            encode_method(number, commands.Basic.Publish, 0, exchange, routing_key, True, False),
            _FRAME.pack(_HEADER, number, 12 + len(properties)),
            b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big"),
            properties,
            b"\xce",
        ]
        for at in range(0, len(body), room):
            part = body[at : at + room]
            parts += [_FRAME.pack(_BODY, number, len(part)), part, b"\xce"]
        self.connection.write(b"".join(parts))

    def _confirm(self, tag: int, multiple: bool, failure: PenstockError | None) -> None:
        if multiple:
            tags = [each for each in self._unconfirmed if each <= tag]
        else:
            tags = [tag] if tag in self._unconfirmed else []
        for each in tags:
            message = self._unconfirmed.pop(each)
            message.confirmed(failure or message.returned)

    def _came_back(self, returned: commands.Basic.Return) -> None:
        """No queue took a message. It is confirmed afterwards; which one it was, only where it was
        sent to tells: the first of those that has not come back yet."""
        where = (str(returned.exchange), str(returned.routing_key))
        for message in self._unconfirmed.values():
            if message.returned is None and (message.exchange, message.routing_key) == where:
                message.returned = NotFound(f"no queue took it: {returned.reply_text}")
                return

    # --- what comes -------------------------------------------------------------------------------

    def method(self, payload: bytes) -> None:
        method = decode_method(payload)
        match method:
            case commands.Basic.Ack(delivery_tag=tag, multiple=multiple):
                self._confirm(int(tag or 0), bool(multiple), None)
            case commands.Basic.Nack(delivery_tag=tag, multiple=multiple):
                self._confirm(int(tag or 0), bool(multiple), Unavailable("the queue refused it"))
            case commands.Basic.Cancel():
                self.is_cancelled = True
                self.arrived.set()
            case commands.Channel.Close():
                with contextlib.suppress(PenstockError):
                    self.say(commands.Channel.CloseOk)
                self.fail(of_reply(int(method.reply_code or 0), str(method.reply_text)))
            case commands.Channel.Flow():
                self.say(commands.Channel.FlowOk, method.active)
            case _ if isinstance(method, _CONTENT_METHODS):
                self._content = (method, b"", -1, [])
            case _:
                self._answered(method)

    def _answered(self, answer: Any) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def header(self, payload: bytes) -> None:
        if self._content is None:
            return
        size = int.from_bytes(payload[4:12], "big")
        self._content = (self._content[0], payload[12:], size, [])
        if not size:
            self._complete()

    def body(self, payload: bytes) -> None:
        if self._content is None:
            return
        method, properties, left, parts = self._content
        parts.append(payload)
        self._content = (method, properties, left - len(payload), parts)
        if left <= len(payload):
            self._complete()

    def _complete(self) -> None:
        assert self._content is not None
        method, properties, _, parts = self._content
        self._content = None
        content = Content(method, properties, b"".join(parts))
        if isinstance(method, commands.Basic.Deliver):
            self.deliveries.append(content)
            self.arrived.set()
        elif isinstance(method, commands.Basic.Return):
            self._came_back(method)
        else:
            self._answered(content)

    def fail(self, failure: PenstockError) -> None:
        """The channel is over, and so is all that was under way in it."""
        if self.failure is not None:
            return
        self.failure = failure
        self.connection.forget(self)
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(failure)
        unconfirmed, self._unconfirmed = self._unconfirmed, OrderedDict()
        for message in unconfirmed.values():
            message.confirmed(failure)
        self.arrived.set()

    async def close(self) -> None:
        if self.failure is None:
            with contextlib.suppress(PenstockError):
                await self.call(commands.Channel.Close, 200, "bye", 0, 0)
            self.fail(Unavailable("the channel is closed"))
