"""What holds a connection back, so that the broker's memory stays bounded whatever a client does.

| when                                             | what stops                              |
|--------------------------------------------------|-----------------------------------------|
| more than WRITE_HIGH_BYTES not read by the client | deliveries, and answers to basic.get    |
| more than WRITE_STOP_BYTES not read by the client | reading from it                         |
| a channel waits for a method to be done           | reading from it                         |
| more than PUBLISHED_STOP_BYTES not on disk yet    | reading from it                         |
| all connections together over their limit         | reading from those that publish         |
| the disk is nearly full                           | reading from those that publish; told   |

Not reading is all it takes: TCP then slows the client down.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pamqp import commands

if TYPE_CHECKING:
    from penstock.amqp.connection import Connection

WRITE_HIGH_BYTES = 1024 * 1024
WRITE_STOP_BYTES = 8 * 1024 * 1024
PUBLISHED_STOP_BYTES = 16 * 1024 * 1024
PUBLISHED_CHECK_BYTES = 1024 * 1024  # from here on it is looked at after every read


class Flow:
    """Whether a connection is read from and may be written to."""

    __slots__ = (
        "_connection", "_has_published", "_is_told", "_is_writable", "_waiters", "is_reading",
        "waiting_events",
    )  # fmt: skip

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._is_writable = True
        self._waiters: list[asyncio.Future[None]] = []
        self._has_published = False
        self._is_told = False  # that it is blocked
        self.is_reading = True
        self.waiting_events = 0  # that channels have put off

    def close(self) -> None:
        """The connection is lost: nobody waits for it to drain any more."""
        for waiter in self._waiters:
            waiter.cancel()

    @property
    def state(self) -> str:
        """RabbitMQ's words: running; blocked by an alarm; or flow, held back for a while."""
        alarm = self._connection.server.messaging.alarm.blocked
        if self._has_published and alarm is not None:
            return "blocked"
        return "running" if self.is_reading else "flow"

    # --- writing ----------------------------------------------------------------------------------

    def stop_writing(self) -> None:
        self._is_writable = False
        self.adjust()

    def resume_writing(self) -> None:
        self._is_writable = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self.adjust()

    @property
    def is_writable(self) -> bool:
        return self._is_writable

    async def drained(self) -> None:
        """Wait until the client has read most of what was written."""
        while not self._is_writable:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    @property
    def may_be_full(self) -> bool:
        """Whether `adjust` should look again after a read."""
        return self.waiting_events > 0 or not self._is_writable

    # --- reading ----------------------------------------------------------------------------------

    def adjust(self) -> None:
        """Read from the client, or not, as things are now."""
        connection = self._connection
        transport = connection.transport
        if transport is None or transport.is_closing():
            return
        published = connection.publishing.outstanding_bytes
        wanted = connection.wire.is_failed or not (
            self.waiting_events
            or published > PUBLISHED_STOP_BYTES
            or (published and connection.server.is_overloaded)
            or (not self._is_writable and transport.get_write_buffer_size() > WRITE_STOP_BYTES)
            or (self._has_published and connection.server.messaging.alarm.blocked is not None)
        )
        if wanted and not self.is_reading:
            transport.resume_reading()
        elif not wanted and self.is_reading:
            transport.pause_reading()
        self.is_reading = wanted

    def note_publish(self) -> None:
        """From now on this connection is held back when the disk is full."""
        if not self._has_published:
            self._has_published = True
            self.alarm_changed(self._connection.server.messaging.alarm.blocked)

    def alarm_changed(self, reason: str | None) -> None:
        """The disk is nearly full, or has room again: publishers are held, and told."""
        if not self._has_published:
            return
        connection = self._connection
        if connection.wire.handshake.client_capabilities.get("connection.blocked"):
            if reason is not None and not self._is_told:
                connection.wire.send(None, commands.Connection.Blocked, reason)
            elif reason is None and self._is_told:
                connection.wire.send(None, commands.Connection.Unblocked)
            self._is_told = reason is not None
            connection.flush()
        self.adjust()
