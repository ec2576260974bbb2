"""The listening socket of the Kafka door, and the limits over all its connections."""

from __future__ import annotations

import asyncio
import logging
import socket
import time

from penstock.kafka.connection import Connection
from penstock.kafka.context import BrokerServices
from penstock.kafka.stats import KafkaStats
from penstock.wire.kafka import framing

log = logging.getLogger("penstock.kafka")

_SWEEP_SECONDS = 5.0


class KafkaServer:
    """Accepts clients up to `max_connections`, closes idle ones, bounds queued request bytes."""

    def __init__(self, broker: BrokerServices) -> None:
        config = broker.config
        self.broker = broker
        self.stats = KafkaStats()
        self.scratch = bytearray(framing.SCRATCH_BYTES)
        self.max_request_bytes: int = config.socket_request_max_bytes
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self._max_connections: int = config.max_connections
        self._max_per_host: int = config.max_connections_per_ip
        self._idle_seconds: float = config.connections_max_idle_ms / 1000
        self._queued_bytes = 0
        self._queued_limit: int = config.queued_max_request_bytes
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address really bound (port 0 becomes a number)."""
        self._server = await self.loop.create_server(
            lambda: Connection(self), host, port, backlog=1024, reuse_address=True
        )
        self._sweeper = asyncio.create_task(self._sweep(), name="kafka-idle-connections")
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    async def close(self) -> None:
        """Stop accepting, drop every client."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.close()
        if self._server is not None:
            await self._server.wait_closed()

    # --- what connections tell --------------------------------------------------------------------

    def connected(self, connection: Connection) -> None:
        self.stats.connections_made += 1
        transport = connection._transport
        assert transport is not None
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        same_host = 0
        if self._max_per_host < self._max_connections:
            same_host = sum(other.host == connection.host for other in self.connections)
        if len(self.connections) >= self._max_connections or same_host >= self._max_per_host:
            self.stats.refused += 1
            log.warning("refused a connection from %s: the limit is reached", connection.host)
            connection.close()
            return
        self.connections.add(connection)

    def disconnected(self, connection: Connection) -> None:
        self.connections.discard(connection)

    def requests_queued(self, size: int) -> None:
        self._queued_bytes += size

    def requests_dequeued(self, size: int) -> None:
        was_overloaded = self.is_overloaded
        self._queued_bytes -= size
        if was_overloaded and not self.is_overloaded:
            for connection in list(self.connections):
                connection.room_again()

    @property
    def is_overloaded(self) -> bool:
        """Whether the requests in memory have reached `queued.max.request.bytes`."""
        return self._queued_bytes > self._queued_limit

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, self._idle_seconds / 2))
            oldest = time.monotonic() - self._idle_seconds
            for connection in list(self.connections):
                if connection.is_idle and connection.last_active < oldest:
                    connection.close()
