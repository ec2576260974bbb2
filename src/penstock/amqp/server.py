"""The listening socket of the AMQP door, and what all its connections share."""

from __future__ import annotations

import asyncio
import logging
import platform
import socket
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.amqp.clients import picture
from penstock.amqp.connection import Connection
from penstock.amqp.stats import AmqpStats
from penstock.model.amqp_clients import ClientConnection
from penstock.wire.amqp.codes import CONNECTION_FORCED, AmqpError
from penstock.wire.amqp.handshake import Limits

if TYPE_CHECKING:
    from penstock.config import BrokerConfig
    from penstock.services.messaging import Messaging

log = logging.getLogger("penstock.amqp")

UNSYNCED_STOP_BYTES = 128 * 1024 * 1024
_LEAVE_S = 2.0  # how long clients may take to say goodbye when the broker stops


class AmqpServer:
    """Accepts clients up to a limit, tells them of alarms, and lets them go when it stops."""

    def __init__(self, messaging: Messaging, config: BrokerConfig, cluster_name: str) -> None:
        self.messaging = messaging
        self.loop = asyncio.get_running_loop()
        self.stats = AmqpStats()
        self.connections: set[Connection] = set()
        self.limits = Limits(
            frame_max=config.amqp_frame_max,
            channel_max=config.amqp_channel_max,
            heartbeat_s=config.amqp_heartbeat_seconds,
            max_message_bytes=config.amqp_max_message_bytes,
            max_unfinished_bytes=3 * config.amqp_max_message_bytes,
        )
        # Clients look at product and version to guess what a broker can do, so we do not claim to
        # be another one; what we can do is said in the capabilities.
        self.properties = {
            "product": "Penstock",
            "version": __version__,
            "platform": f"Python {platform.python_version()}",
            "cluster_name": cluster_name,
        }
        self._max_connections: int = config.amqp_max_connections
        self._unsynced_bytes = 0
        self._server: asyncio.Server | None = None
        self._partings: set[asyncio.Task[None]] = set()
        messaging.alarm.listeners.append(self._alarm_changed)
        messaging.users.on_changed.append(self._users_changed)

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address really bound (port 0 becomes a number)."""
        self._server = await self.loop.create_server(
            lambda: Connection(self), host, port, backlog=1024, reuse_address=True
        )
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    async def close(self) -> None:
        """Stop accepting, tell every client, and put back what they had not settled."""
        if self._server is not None:
            self._server.close()
        text = "broker forced connection closure with reason 'shutdown'"
        for connection in list(self.connections):
            connection.fail(AmqpError(CONNECTION_FORCED, text))
        deadline = self.loop.time() + _LEAVE_S
        while self.connections and self.loop.time() < deadline:
            await asyncio.sleep(0.02)
        for connection in list(self.connections):
            connection.abort()
        if self._server is not None:
            await self._server.wait_closed()
        while self._partings:
            await asyncio.wait(self._partings)

    # --- what connections tell --------------------------------------------------------------------

    def connected(self, connection: Connection, transport: asyncio.Transport) -> None:
        self.stats.connections_made += 1
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if len(self.connections) >= self._max_connections:
            self.stats.refused += 1
            log.warning("refused a connection from %s: the limit is reached", connection.peer)
            connection.abort()
            return
        self.connections.add(connection)

    def disconnected(self, connection: Connection) -> None:
        self.connections.discard(connection)
        if connection.session is not None:
            # Exclusive queues go with their connection.
            task = self.loop.create_task(connection.session.close())
            self._partings.add(task)
            task.add_done_callback(self._parted)

    def bytes_taken(self, count: int) -> None:
        """Bodies were published that are not on disk yet."""
        self._unsynced_bytes += count

    def bytes_released(self, count: int) -> None:
        was_overloaded = self.is_overloaded
        self._unsynced_bytes -= count
        if was_overloaded and not self.is_overloaded:
            for connection in list(self.connections):
                connection.flow.adjust()

    @property
    def is_overloaded(self) -> bool:
        """Whether all connections together have published more than the disk keeps up with."""
        return self._unsynced_bytes > UNSYNCED_STOP_BYTES

    def clients(self) -> list[ClientConnection]:
        """Everybody who has opened a virtual host."""
        return [picture(one) for one in self.connections if one.session is not None]

    def end(self, name: str, reason: str) -> bool:
        """Close the connection of that name; False when there is none."""
        found = [one for one in self.connections if one.session is not None and one.name == name]
        for connection in found:
            connection.fail(AmqpError(CONNECTION_FORCED, reason))
        return bool(found)

    def _users_changed(self) -> None:
        """End the connections of users and virtual hosts that were deleted."""
        users = {user.name for user in self.messaging.users.all()}
        for connection in list(self.connections):
            session = connection.session
            if session is None:
                continue
            host, name = session.vhost.name, session.user.name
            if self.messaging.vhosts.get(host) is not session.vhost:
                connection.fail(AmqpError(CONNECTION_FORCED, f"vhost '{host}' is deleted"))
            elif name not in users:
                connection.fail(AmqpError(CONNECTION_FORCED, f"user '{name}' is deleted"))

    def _parted(self, task: asyncio.Task[None]) -> None:
        self._partings.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("a connection could not be ended cleanly", exc_info=failure)

    def _alarm_changed(self, reason: str | None) -> None:
        for connection in list(self.connections):
            connection.flow.alarm_changed(reason)
