"""The listening socket of the Kafka door, and the limits over all its connections."""

from __future__ import annotations

import asyncio
import logging
import socket
import time

from penstock.errors import MalformedRequest
from penstock.kafka.answer_room import AnswerRoom
from penstock.kafka.connection import Connection
from penstock.kafka.context import BrokerServices
from penstock.model.kafka_stats import KafkaStats
from penstock.wire.kafka import framing

log = logging.getLogger("penstock.kafka")

_SWEEP_SECONDS = 5.0
_STALLED_SECONDS = 10.0  # an unfinished request may take this long while memory is short


class KafkaServer:
    """Accepts clients up to `max_connections`, closes idle ones, bounds queued request bytes."""

    def __init__(self, broker: BrokerServices) -> None:
        config = broker.config
        self.broker = broker
        self.stats = KafkaStats()
        self.scratch = bytearray(framing.SCRATCH_BYTES)
        self.max_request_bytes: int = config.socket_request_max_bytes
        self.answer_room = AnswerRoom(config.queued_max_response_bytes)
        self.max_queued_requests: int = config.queued_max_requests
        self.loop = asyncio.get_running_loop()
        self.connections: set[Connection] = set()
        self._idle_seconds: float = config.connections_max_idle_ms / 1000
        self._queued_bytes = 0
        self._queued_limit: int = config.queued_max_request_bytes
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the address really bound (port 0 becomes a number)."""
        self._server = await self.loop.create_server(
            lambda: Connection(self),
            host,
            port,
            backlog=self.broker.config.socket_listen_backlog_size,
            reuse_address=True,
        )
        self._sweeper = asyncio.create_task(self._sweep(), name="kafka-idle-connections")
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    async def close(self) -> None:
        """Stop accepting, answer appends that are under way, drop every client."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        produces = [task for connection in self.connections for task in connection.produces()]
        if produces:
            await asyncio.wait(produces, timeout=self.broker.config.shutdown_timeout_ms / 1000)
            await asyncio.sleep(0)  # their answers are written in callbacks
        for connection in list(self.connections):
            connection.close()
        if self._server is not None:
            await self._server.wait_closed()

    # --- what connections tell --------------------------------------------------------------------

    def connected(self, connection: Connection, transport: asyncio.Transport) -> int:
        """Take a new client in, or refuse it; returns for how long it must be silent first."""
        self.stats.connections_made += 1
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        config = self.broker.config
        same_host = 0
        if config.max_connections_per_ip < config.max_connections:
            same_host = sum(other.host == connection.host for other in self.connections)
        full = len(self.connections) >= config.max_connections
        if full or same_host >= config.max_connections_per_ip:
            self.stats.refused += 1
            log.warning("refused a connection from %s: the limit is reached", connection.host)
            connection.close()
            return 0
        self.connections.add(connection)
        return self.broker.quotas.record_connection(connection.host, self.broker.clock.now_ms())

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
            now = time.monotonic()
            for connection in list(self.connections):
                if connection.is_idle and connection.last_active < now - self._idle_seconds:
                    connection.close()
                elif self.is_overloaded and connection.is_stalled(now - _STALLED_SECONDS):
                    connection.refuse(MalformedRequest("an unfinished request held up others"))
