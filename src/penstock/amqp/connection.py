"""One client's socket: what it says is done in order, what it may make us hold is bounded.

All frames of one read are handled in one go: settlements at once, publishes gathered and handed
over together, methods that wait as tasks of their channel. Reading stops, and TCP slows the client
down, while a channel has methods waiting, while too many published bytes are not on disk yet, while
the client does not read what it asked for, and while the broker is out of disk. Deliveries stop as
soon as the socket is full.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Collection, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from penstock.amqp import opening
from penstock.amqp.channel import Channel
from penstock.amqp.dispatch import HANDLERS
from penstock.amqp.errors import amqp_error
from penstock.amqp.flow import PUBLISHED_CHECK_BYTES, WRITE_HIGH_BYTES, Flow
from penstock.amqp.publishing import Publishing
from penstock.errors import BrokerError
from penstock.wire.amqp import heartbeat
from penstock.wire.amqp.codes import INTERNAL_ERROR, AmqpError
from penstock.wire.amqp.connection import ServerConnection
from penstock.wire.amqp.content import PUBLISH_IDS
from penstock.wire.amqp.events import (
    Acknowledged,
    Called,
    ChannelClosed,
    ChannelFailed,
    ChannelOpened,
    CloseAnswered,
    ConnectionClosed,
    ConnectionFailed,
    Event,
    LoginAttempted,
    Published,
    Rejected,
    SecretUpdated,
    VirtualHostWanted,
)
from penstock.wire.amqp.heartbeat import Heartbeat
from penstock.wire.amqp.methods import method_ids

if TYPE_CHECKING:
    from penstock.amqp.server import AmqpServer
    from penstock.services.session import Session
    from penstock.services.users import User

log = logging.getLogger("penstock.amqp")

Address = tuple[str, int]
HANDSHAKE_S = 10.0
_WITH_EVERY_MESSAGE: Final = (Published, Acknowledged, Rejected)
_ON_A_CHANNEL: Final = (Called, ChannelClosed, ChannelFailed)
CLOSE_S = 5.0  # how long a client may take to answer connection.close


class Connection(asyncio.Protocol):
    """Reads, does, writes. `wire` is the protocol's state, `session` the service's side."""

    def __init__(self, server: AmqpServer) -> None:
        self.server = server
        self.stats = server.stats
        self.wire = ServerConnection(server.limits, server.properties)
        self.user: User | None = None
        self.session: Session | None = None
        self.virtual_host = ""
        self.publishing = Publishing(self)
        self.fetching = asyncio.Lock()
        self.peer = "unknown"
        self.ends: tuple[Address, Address] = (("", 0), ("", 0))  # ours, the client's
        self.is_loopback = False
        self.connected_at_ms = server.messaging.queues.clock.now_ms()
        self.bytes_in = self.bytes_out = 0
        self.heartbeat = Heartbeat(0, server.loop.time())
        self._transport: asyncio.Transport | None = None
        self._channels: set[Channel] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.flow = Flow(self)
        self._timer = server.loop.call_later(HANDSHAKE_S, self._too_slow)

    def __repr__(self) -> str:
        name = self.user.name if self.user else "nobody"
        return f"<Connection {self.peer} {name} {self.virtual_host!r} {self.wire}>"

    @property
    def name(self) -> str:
        """Both ends, as RabbitMQ names connections."""
        (host, port), (peer_host, peer_port) = self.ends
        return f"{peer_host}:{peer_port} -> {host}:{port}"

    @property
    def channels(self) -> Collection[Channel]:
        return self._channels

    # --- what asyncio calls -----------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport behaves as an asyncio.Transport and is not a subclass of it.
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.peer = f"{peer[0]}:{peer[1]}"
            self.ends = transport.get_extra_info("sockname")[:2], peer[:2]
            self.is_loopback = ipaddress.ip_address(peer[0]).is_loopback
        self.server.connected(self, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._close_channels()
        self.flow.close()
        self.server.disconnected(self)

    def data_received(self, data: bytes) -> None:
        self.heartbeat.received_at = self.server.loop.time()
        self.stats.bytes_in += len(data)
        self.bytes_in += len(data)
        try:
            self._handle(self.wire.receive(data))
        except Exception as failure:
            self.fail_unexpectedly(failure)
        if self.flow.may_be_full or self.publishing.outstanding_bytes > PUBLISHED_CHECK_BYTES:
            self.flow.adjust()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.flow.stop_writing()

    def resume_writing(self) -> None:
        self.flow.resume_writing()

    # --- events -----------------------------------------------------------------------------------

    def _handle(self, events: Iterable[Event]) -> None:
        for event in events:
            if isinstance(event, _WITH_EVERY_MESSAGE):
                channel: Channel = event.channel.owner
                if channel.task is not None:
                    self._put_off(channel, event)
                elif not channel.is_closed:
                    self._do(channel, event)
            elif isinstance(event, _ON_A_CHANNEL):
                channel = event.channel.owner
                if channel.task is not None:
                    self._put_off(channel, event)
                else:
                    self._do_rare(channel, event)
            else:
                self._handle_connection_event(event)
        self.publishing.flush()
        self.flush()

    def _put_off(self, channel: Channel, event: Event) -> None:
        channel.waiting.append(event)
        self.flow.waiting_events += 1

    def _do(self, channel: Channel, event: Published | Acknowledged | Rejected) -> None:
        """What comes with every message."""
        try:
            if isinstance(event, Published):
                channel.publish(event)
            elif isinstance(event, Acknowledged):
                channel.acknowledge(event)
            else:
                channel.reject(event)
        except AmqpError as error:
            self._fail_by(channel, error)

    def _do_rare(self, channel: Channel, event: Event) -> None:
        self.publishing.flush()  # a method sees what was published before it
        if isinstance(event, Called):
            self._call(channel, event)
        elif isinstance(event, ChannelFailed):
            self._fail_by(channel, event.error)
        else:
            assert isinstance(event, ChannelClosed)
            self._forget(channel)
            self.wire.confirm_close(channel.state)

    def _call(self, channel: Channel, event: Called) -> None:
        if channel.is_closed:
            return
        method = event.method
        try:
            work = HANDLERS[type(method)](channel, method)
        except (AmqpError, BrokerError) as failure:
            self._fail_by(channel, _as_amqp(failure, method_ids(method)))
            return
        if work is not None:
            channel.task = self.start(self._finish(channel, work, method_ids(method)))

    async def _finish(
        self, channel: Channel, work: Coroutine[Any, Any, None], ids: tuple[int, int]
    ) -> None:
        """Wait for a method, then do what the client said on the channel meanwhile."""
        failed: AmqpError | None = None
        try:
            await work
        except (AmqpError, BrokerError) as failure:
            failed = _as_amqp(failure, ids)
        channel.task = None
        if failed is not None:
            self._fail_by(channel, failed)
        waiting = channel.waiting
        while waiting and channel.task is None:
            event = waiting.popleft()
            self.flow.waiting_events -= 1
            if isinstance(event, _WITH_EVERY_MESSAGE):
                if not channel.is_closed:
                    self._do(channel, event)
            else:
                self._do_rare(channel, event)
        self.publishing.flush()
        self.flush()
        self.flow.adjust()

    def _handle_connection_event(self, event: Event) -> None:
        match event:
            case ChannelOpened():
                channel = event.channel.owner = Channel(self, event.channel)
                self._channels.add(channel)
                self.stats.channels += 1
                self.wire.open_channel(event.channel)
            case ConnectionClosed():
                self.start(self._leave())
            case ConnectionFailed():
                self.publishing.flush()
                self.fail(event.error)
            case CloseAnswered():
                self.close()
            case LoginAttempted():
                self.start(opening.log_in(self, event))
            case VirtualHostWanted():
                self.start(opening.open_virtual_host(self, event))
            case SecretUpdated():
                opening.update_secret(self)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that waits, as long as the connection lives."""
        task = self.server.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            self.fail_unexpectedly(failure)

    # --- opening and closing ----------------------------------------------------------------------

    def opened(self, virtual_host: str) -> None:
        """The handshake is over."""
        self.virtual_host = virtual_host
        self._timer.cancel()
        now = self.server.loop.time()
        self.heartbeat = Heartbeat(self.wire.handshake.heartbeat_s, now)
        if self.heartbeat.check_every_s:
            self._timer = self.server.loop.call_later(self.heartbeat.check_every_s, self._beat)

    def _too_slow(self) -> None:
        log.warning("closed the connection of %s: no handshake in %s s", self.peer, HANDSHAKE_S)
        self.close()

    def _beat(self) -> None:
        now = self.server.loop.time()
        if not self.flow.is_reading:
            self.heartbeat.received_at = now  # it is us who do not listen
        if self.heartbeat.is_lost(now):
            log.warning("closed the connection of %s: no heartbeat", self.peer)
            self.abort()
            return
        if self.heartbeat.is_due(now):
            self.wire.out.append(heartbeat.FRAME)
            self.flush()
        self._timer = self.server.loop.call_later(self.heartbeat.check_every_s, self._beat)

    async def _leave(self) -> None:
        """The client said connection.close: finish what it said before, then let it go."""
        while busy := [channel.task for channel in self._channels if channel.task is not None]:
            await asyncio.wait(busy)
        await self.publishing.settled()
        self._close_channels()
        if self.session is not None:
            await self.session.close()
        self.wire.confirm_connection_close()
        self.flush()
        self.close()

    def _close_channels(self) -> None:
        for channel in list(self._channels):
            self._forget(channel)

    def _forget(self, channel: Channel) -> None:
        if channel in self._channels:
            self._channels.discard(channel)
            self.flow.waiting_events -= len(channel.waiting)
            self.stats.channels -= 1
            channel.close()

    def _fail_by(self, channel: Channel, error: AmqpError) -> None:
        """The client did something wrong on this channel."""
        if error.ends_connection:
            self.fail(error)
            return
        if channel.is_closed:
            return
        self.publishing.flush()
        self._forget(channel)
        log.info("closed channel %s of %s: %s", channel.number, self.peer, error.reply_text)
        self.wire.fail_channel(channel.state, error)

    def fail(self, error: AmqpError) -> None:
        """Say connection.close and wait a little for the answer."""
        if self._transport is None:
            return
        self.stats.failed += 1
        log.warning("closed the connection of %s: %s", self.peer, error.reply_text)
        self._close_channels()
        self.wire.fail(error)
        self.flush()
        self._timer.cancel()
        if not self.wire.close_written:
            self.close()
            return
        self._timer = self.server.loop.call_later(CLOSE_S, self.close)
        self.flow.adjust()

    def fail_unexpectedly(self, failure: BaseException) -> None:
        """Something that is not the client's fault."""
        if isinstance(failure, BrokerError):
            self.fail(amqp_error(failure, PUBLISH_IDS))
            return
        log.error("the connection of %s failed", self.peer, exc_info=failure)
        self.fail(AmqpError(INTERNAL_ERROR, "an internal error, see the log of the broker"))

    def close(self) -> None:
        """Close the socket when everything has been written, or when that takes too long."""
        if self._transport is not None:
            self._transport.close()
            self._timer.cancel()
            self._timer = self.server.loop.call_later(CLOSE_S, self.abort)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # --- writing ----------------------------------------------------------------------------------

    @property
    def transport(self) -> asyncio.Transport | None:
        """None when the connection is lost."""
        return self._transport

    def flush(self) -> None:
        """Write what has been said."""
        transport = self._transport
        out = self.wire.take_out()
        if not out or transport is None:
            return
        self.heartbeat.sent_at = self.server.loop.time()
        data = out[0] if len(out) == 1 else b"".join(out)
        self.stats.bytes_out += len(data)
        self.bytes_out += len(data)
        transport.write(data)


def _as_amqp(failure: AmqpError | BrokerError, ids: tuple[int, int]) -> AmqpError:
    return failure if isinstance(failure, AmqpError) else amqp_error(failure, ids)
