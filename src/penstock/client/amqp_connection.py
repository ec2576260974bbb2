"""An AMQP 0-9-1 client connection, as small as the library needs: for queues over the network.

It speaks the control plane with the broker's own codec (`wire.amqp.methods`) and reads what travels
with each message by hand. One connection has a few channels; a channel has one call under way at a
time, its unconfirmed messages, and at most one consumer. It runs on one event loop. Nothing is
tried again here: a connection that is lost fails all who wait, and the owner opens another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from typing import Any

from pamqp import commands

from penstock.client.amqp_channel import AmqpChannel, of_reply
from penstock.client.errors import PenstockError, Unavailable
from penstock.wire.amqp.methods import Method, decode_method, encode_method

_FRAME = struct.Struct(">BHI")
_METHOD, _HEADER, _BODY, _HEARTBEAT = 1, 2, 3, 8
_HELLO = b"AMQP\x00\x00\x09\x01"
_HEARTBEAT_FRAME = b"\x08\x00\x00\x00\x00\x00\x00\xce"
_HEARTBEAT_SECONDS = 30
_CAPABILITIES = (
    "publisher_confirms",
    "basic.nack",
    "consumer_cancel_notify",
    "authentication_failure_close",
)


class AmqpConnection:
    """One connection."""

    def __init__(self) -> None:
        self.frame_max = 131_072
        self.failure: PenstockError | None = None
        self.properties: dict[str, Any] = {}
        self._channels: dict[int, AmqpChannel] = {}
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._tasks: list[asyncio.Task[None]] = []
        self._heard = 0.0

    def __repr__(self) -> str:
        return f"<AmqpConnection {len(self._channels)} channels {self.failure or 'open'}>"

    # --- opening ----------------------------------------------------------------------------------

    async def open(
        self,
        host: str,
        port: int,
        *,
        username: str,
        password: str,
        vhost: str,
        tls: ssl.SSLContext | None,
        timeout: float,
    ) -> None:
        """Connect and log in; `OSError` when nobody answers, `Denied` when not let in."""
        async with asyncio.timeout(timeout):
            self._reader, self._writer = await asyncio.open_connection(host, port, ssl=tls)
            try:
                await self._shake_hands(username, password, vhost)
            except BaseException:
                self._writer.close()
                raise
        loop = asyncio.get_running_loop()
        self._heard = loop.time()
        self._tasks = [loop.create_task(self._read()), loop.create_task(self._beat())]

    async def _shake_hands(self, username: str, password: str, vhost: str) -> None:
        self._writer.write(_HELLO)
        start = await self._expect(commands.Connection.Start)
        self.properties = dict(start.server_properties or {})
        capabilities = dict.fromkeys(_CAPABILITIES, True)
        about = {"product": "penstock", "capabilities": capabilities}
        login = f"\0{username}\0{password}"
        self.write(encode_method(0, commands.Connection.StartOk, about, "PLAIN", login, "en_US"))
        tune = await self._expect(commands.Connection.Tune)
        self.frame_max = min(tune.frame_max or 131_072, 131_072)
        self._interval = min(tune.heartbeat or _HEARTBEAT_SECONDS, _HEARTBEAT_SECONDS)
        channel_max = tune.channel_max or 2047
        self.write(
            encode_method(
                0, commands.Connection.TuneOk, channel_max, self.frame_max, self._interval
            )
        )
        self.write(encode_method(0, commands.Connection.Open, vhost, "", False))
        await self._expect(commands.Connection.OpenOk)

    def can(self, capability: str) -> bool:
        """Whether the server says that it can do something beyond the specification."""
        told = self.properties.get("capabilities")
        return isinstance(told, dict) and told.get(capability) is True

    async def _expect(self, kind: type[Method]) -> Any:
        try:
            _, _, payload = await self._frame()
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Unavailable(
                "the server hung up; is this its AMQP port, and does it want tls=True?"
            ) from None
        method = decode_method(payload)
        if isinstance(method, commands.Connection.Close):
            raise of_reply(int(method.reply_code or 0), str(method.reply_text))
        if not isinstance(method, kind):
            raise Unavailable(f"the server said {method.name}, not {kind.name}")
        return method

    async def channel(self) -> AmqpChannel:
        """Another channel."""
        if self.failure is not None:
            raise self.failure
        number = next(n for n in range(1, 65_535) if n not in self._channels)
        channel = self._channels[number] = AmqpChannel(self, number)
        await channel.call(commands.Channel.Open, "")
        return channel

    def forget(self, channel: AmqpChannel) -> None:
        if self._channels.get(channel.number) is channel:
            del self._channels[channel.number]

    # --- frames -----------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self._writer.write(data)

    async def _frame(self) -> tuple[int, int, bytes]:
        head = await self._reader.readexactly(7)
        kind, channel, size = _FRAME.unpack(head)
        payload = await self._reader.readexactly(size + 1)
        return kind, channel, payload[:-1]

    async def _read(self) -> None:
        try:
            while True:
                kind, number, payload = await self._frame()
                self._heard = asyncio.get_running_loop().time()
                if number == 0:
                    if kind == _METHOD:
                        self._own_method(payload)
                    continue
                channel = self._channels.get(number)
                if channel is None:
                    continue
                if kind == _METHOD:
                    channel.method(payload)
                elif kind == _HEADER:
                    channel.header(payload)
                elif kind == _BODY:
                    channel.body(payload)
        except (OSError, asyncio.IncompleteReadError) as failure:
            self.fail(Unavailable(f"the connection was lost: {failure or 'closed'}"))
        except PenstockError as failure:
            self.fail(failure)

    def _own_method(self, payload: bytes) -> None:
        method = decode_method(payload)
        if isinstance(method, commands.Connection.Close):
            with contextlib.suppress(PenstockError):
                self.write(encode_method(0, commands.Connection.CloseOk))
            self.fail(of_reply(int(method.reply_code or 0), str(method.reply_text)))

    async def _beat(self) -> None:
        if not self._interval:
            return
        while self.failure is None:
            await asyncio.sleep(self._interval / 2)
            silent = asyncio.get_running_loop().time() - self._heard
            if silent > 2 * self._interval:
                self.fail(Unavailable("the server has been silent for too long"))
                return
            with contextlib.suppress(PenstockError):
                self.write(_HEARTBEAT_FRAME)

    # --- the end ----------------------------------------------------------------------------------

    def fail(self, failure: PenstockError) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        for channel in list(self._channels.values()):
            channel.fail(failure)
        for task in self._tasks:  # whichever of them found out ends by itself
            if task is not asyncio.current_task():
                task.cancel()
        self._writer.close()

    async def close(self) -> None:
        """Say goodbye, and do not wait long for an answer."""
        if self.failure is None:
            with contextlib.suppress(PenstockError):
                self.write(encode_method(0, commands.Connection.Close, 200, "bye", 0, 0))
                with contextlib.suppress(OSError):
                    await self._writer.drain()
            self.fail(Unavailable("the connection is closed"))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                await self._writer.wait_closed()
