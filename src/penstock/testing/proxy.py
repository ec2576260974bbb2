"""A door in front of a door: connections go through here, so that they can be disturbed.

Bytes are passed on as they come. A test can cut every connection, refuse new ones as a closed port
does, or let the answers come late.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from typing import cast


def listening_socket() -> socket.socket:
    """A socket on a free port, which is known before anybody listens."""
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", 0))
    return found


class Proxy:
    """One such door. All of it runs on one event loop."""

    def __init__(self, bound: socket.socket) -> None:
        self.address: tuple[str, int] = bound.getsockname()
        self.delay_s = 0.0
        self._socket: socket.socket | None = bound
        self._target = ("", 0)
        self._server: asyncio.Server | None = None
        self._pairs: set[_Inner] = set()

    def __repr__(self) -> str:
        return f"<Proxy {self.address} to {self._target} with {len(self._pairs)} connections>"

    async def open(self, target: tuple[str, int]) -> None:
        """Let connections through to `target`."""
        self._target = target
        await self.accept()

    async def accept(self) -> None:
        """Take connections (again)."""
        if self._server is not None:
            return
        if self._socket is None:
            self._socket = socket.socket()
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(self.address)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Outer(self), sock=self._socket)

    async def refuse(self) -> None:
        """Be a port where nobody listens; connections that are there are cut."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._socket = None
        self.cut()
        await asyncio.sleep(0)

    def cut(self) -> int:
        """End every connection at once, both ways; how many there were."""
        pairs, self._pairs = self._pairs, set()
        for inner in pairs:
            inner.abort()
        return len(pairs)

    async def close(self) -> None:
        await self.refuse()

    async def connect(self, outer: _Outer) -> None:
        """Somebody has connected: connect to the target for them."""
        loop = asyncio.get_running_loop()
        try:
            _, inner = await loop.create_connection(lambda: _Inner(self, outer), *self._target)
        except OSError:
            outer.abort()
            return
        outer.joined(inner)
        self._pairs.add(inner)

    def ended(self, inner: _Inner) -> None:
        self._pairs.discard(inner)


class _Outer(asyncio.Protocol):
    """The side of the client."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._early: list[bytes] = []
        self._inner: _Inner | None = None
        self.transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by birth
        self._task = asyncio.get_running_loop().create_task(self._proxy.connect(self))

    def joined(self, inner: _Inner) -> None:
        self._inner = inner
        if self.transport is None:
            inner.abort()
            return
        for data in self._early:
            inner.send(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        if self._inner is None:
            self._early.append(data)
        else:
            self._inner.send(data)

    def connection_lost(self, failure: Exception | None) -> None:
        self.transport = None
        if self._inner is not None:
            self._inner.abort()

    def send(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()


class _Inner(asyncio.Protocol):
    """The side of the broker."""

    def __init__(self, proxy: Proxy, outer: _Outer) -> None:
        self._proxy = proxy
        self._outer = outer
        self._late: deque[bytes] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are none by birth

    def data_received(self, data: bytes) -> None:
        if not self._proxy.delay_s and not self._late:
            self._outer.send(data)
            return
        self._late.append(data)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._proxy.delay_s, self._pass_on)

    def _pass_on(self) -> None:
        with contextlib.suppress(IndexError):
            self._outer.send(self._late.popleft())

    def connection_lost(self, failure: Exception | None) -> None:
        self.transport = None
        self._proxy.ended(self)
        self._outer.abort()

    def send(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def abort(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.transport is not None:
            self.transport.abort()
        self._outer.abort()
