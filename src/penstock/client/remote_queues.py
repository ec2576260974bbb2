"""Queues and exchanges over the network: the AMQP door, and HTTP for what AMQP cannot ask.

The connection lives on an event loop of its own and is opened when queues are first used. When it
is lost, publishers are told, and consumers come back as soon as the server does; what they had not
settled is delivered again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from pamqp import commands

from penstock.client.amqp_channel import AmqpChannel
from penstock.client.amqp_connection import AmqpConnection
from penstock.client.burst import Burst
from penstock.client.errors import (
    Conflict,
    InvalidArgument,
    NotFound,
    NotSupported,
    PenstockError,
    QueueFull,
    Unavailable,
)
from penstock.client.local_loop import LoopThread
from penstock.client.management import Management
from penstock.client.message import Message, Receipt
from penstock.client.queue_home import (
    Arguments,
    Posted,
    QueueConsumer,
    QueueOptions,
    QueueStats,
    Redriven,
    Taken,
)
from penstock.client.remote_browse import message_of_json
from penstock.client.remote_consumer import RemoteConsumer
from penstock.client.security import of_tls_failure

log = logging.getLogger("penstock")

T = TypeVar("T")


class AmqpSettings(NamedTuple):
    """Where the AMQP and HTTP doors are, and who we are there."""

    amqp: tuple[str, int]
    http: tuple[str, int]
    username: str
    password: str
    vhost: str
    tls: ssl.SSLContext | None
    timeout: float


class RemoteQueues:
    """The queues of one virtual host. `post` is for any thread, the rest blocks its caller."""

    def __init__(self, settings: AmqpSettings) -> None:
        self._settings = settings
        self._thread = LoopThread("penstock-amqp")
        self._management = Management(
            settings.http, settings.username, settings.password, settings.timeout, settings.tls
        )
        self._connection: AmqpConnection | None = None
        self._control: AmqpChannel | None = None
        self._publisher: AmqpChannel | None = None
        self._opening = asyncio.Lock()
        self._calling = asyncio.Lock()
        self._publishing = asyncio.Lock()  # bursts that come while it is opened keep their order
        self._burst: Burst[Posted] = Burst(self._thread.loop, self._publish)
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsettled = 0
        self._consumers: set[RemoteConsumer] = set()

    # --- the connection, on its own loop ----------------------------------------------------------

    async def connection(self) -> AmqpConnection:
        async with self._opening:
            if self._connection is None or self._connection.failure is not None:
                self._connection = await self._connect()
            return self._connection

    async def _connect(self) -> AmqpConnection:
        settings = self._settings
        host, port = settings.amqp
        connection = AmqpConnection()
        try:
            await connection.open(
                host,
                port,
                username=settings.username,
                password=settings.password,
                vhost=settings.vhost,
                tls=settings.tls,
                timeout=settings.timeout,
            )
        except ssl.SSLError as failure:
            raise of_tls_failure(f"{host}:{port}", failure) from failure
        except (OSError, TimeoutError) as failure:
            if self._connection is not None:
                raise Unavailable(
                    f"the server does not answer at {host}:{port} any more "
                    f"({failure or type(failure).__name__}); it is tried again with each call"
                ) from failure
            raise NotSupported(
                f"queues need an AMQP door (Penstock's or RabbitMQ's), and none answers at "
                f"{host}:{port} ({failure or type(failure).__name__}); give "
                "connect(amqp='host:port')"
            ) from failure
        return connection

    async def _call(self, kind: type[Any], *values: object) -> Any:
        """A call of the control plane. A refusal closes the channel; the next opens another."""
        async with self._calling:  # a refusal must not reach those who call at the same time
            if self._control is None or self._control.failure is not None:
                self._control = await (await self.connection()).channel()
            return await self._control.call(kind, *values)

    def _ask(self, kind: type[Any], *values: object) -> Any:
        return self._thread.run(self._call(kind, *values))

    def _manage(self, method: str, *path: str, body: object = None, query: str = "") -> Any:
        self._thread.check()
        return self._management.ask(method, *path, body=body, query=query)

    # --- publishing -------------------------------------------------------------------------------

    def post(self, posted: Posted) -> None:
        self._thread.check()
        self._burst.put(posted)

    def _publish(self, burst: Sequence[Posted]) -> None:
        self._unsettled += len(burst)
        channel = self._publisher
        if channel is not None and channel.failure is None:
            self._send(channel, burst)
            return
        task = self._thread.loop.create_task(self._open_and_send(burst))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open_and_send(self, burst: Sequence[Posted]) -> None:
        async with self._publishing:
            channel = self._publisher
            try:
                if channel is None or channel.failure is not None:
                    channel = await (await self.connection()).channel()
                    await channel.call(commands.Confirm.Select, False)
                    self._publisher = channel
            except PenstockError as failure:
                for posted in burst:
                    self._settled(posted, failure)
                return
            self._send(channel, burst)

    def _send(self, channel: AmqpChannel, burst: Sequence[Posted]) -> None:
        for posted in burst:
            try:
                channel.publish(
                    posted.exchange,
                    posted.routing_key,
                    posted.properties,
                    posted.body,
                    self._confirmed(posted),
                )
            except PenstockError as failure:
                self._settled(posted, failure)

    def _confirmed(self, posted: Posted) -> Callable[[PenstockError | None], None]:
        def confirmed(failure: PenstockError | None) -> None:
            if isinstance(failure, Unavailable) and str(failure) == "the queue refused it":
                failure = QueueFull(f"queue {posted.routing_key!r} is full")
            self._settled(posted, failure)

        return confirmed

    def _settled(self, posted: Posted, failure: PenstockError | None) -> None:
        self._unsettled -= 1
        if failure is None:
            posted.settle(Receipt(posted.routing_key, 0, -1), None)
        else:
            posted.settle(None, failure)

    async def finish(self) -> None:
        """Return when everything that was posted has been settled."""
        while self._unsettled or len(self._burst):
            await asyncio.sleep(0.005)

    # --- queues -----------------------------------------------------------------------------------

    async def declare_queue(self, name: str, options: QueueOptions) -> str:
        target = options.dead_letter_queue(name)
        if target is not None and not await self.queue_exists(target):
            self._declare(target, options.durable, False, False, {})
        return self._declare(
            name,
            options.durable,
            options.exclusive,
            options.auto_delete,
            options.as_arguments(name),
        )

    def _declare(
        self, name: str, durable: bool, exclusive: bool, auto_delete: bool, arguments: Arguments
    ) -> str:
        try:
            found = self._ask(
                commands.Queue.Declare,
                0,
                name,
                False,
                durable,
                exclusive,
                auto_delete,
                False,
                arguments,
            )
        except InvalidArgument as failure:
            if "inequivalent" in str(failure):
                raise Conflict(str(failure)) from failure
            raise
        return str(found.queue)

    async def queue_exists(self, name: str) -> bool:
        try:
            self._passive(name)
        except NotFound:
            return False
        return True

    def _passive(self, name: str) -> Any:
        return self._ask(commands.Queue.Declare, 0, name, True, False, False, False, False, {})

    async def delete_queue(self, name: str) -> int:
        found = self._ask(commands.Queue.Delete, 0, name, False, False, False)
        return int(found.message_count)

    async def purge_queue(self, name: str) -> int:
        return int(self._ask(commands.Queue.Purge, 0, name, False).message_count)

    async def queue_names(self) -> list[str]:
        rows = self._manage("GET", "queues", self._settings.vhost)
        return sorted(row["name"] for row in rows)

    async def queue_stats(self, name: str) -> QueueStats:
        try:
            row = self._manage("GET", "queues", self._settings.vhost, name)
        except NotSupported:
            found = self._passive(name)
            return QueueStats(name, int(found.message_count), int(found.consumer_count))
        return QueueStats(
            name,
            row["messages_ready"] or 0,
            row["consumers"],
            row["messages_unacknowledged"],
            row.get("messages_scheduled"),
            row.get("oldest_age"),
            row.get("message_bytes"),
        )

    async def peek(self, name: str, count: int) -> list[Message]:
        query = f"?count={count}&encoding=base64"
        rows = self._manage("GET", "queues", self._settings.vhost, name, "messages", query=query)
        return [message_of_json(name, row) for row in rows]

    async def redrive(
        self, name: str, source: str | None, to: str | None, limit: int | None
    ) -> Redriven:
        wishes = {"queue": source, "to": to, "limit": limit}
        body = {key: value for key, value in wishes.items() if value is not None}
        row = self._manage("POST", "dead-letters", self._settings.vhost, name, "redrive", body=body)
        return Redriven(row["moved"], row["homeless"], row["refused"])

    # --- consuming --------------------------------------------------------------------------------

    async def consumer(
        self, name: str, prefetch: int, *, exclusive: bool, priority: int
    ) -> RemoteConsumer:
        consumer = RemoteConsumer(self, name, prefetch, exclusive=exclusive, priority=priority)
        self._thread.run(consumer.open())
        self._consumers.add(consumer)
        return consumer

    def forget(self, consumer: RemoteConsumer) -> None:
        self._consumers.discard(consumer)

    async def get(self, name: str) -> tuple[Taken, QueueConsumer] | None:
        return self._thread.run(self._get(name))

    async def _get(self, name: str) -> tuple[Taken, QueueConsumer] | None:
        holder = RemoteConsumer(self, name, 0, exclusive=False, priority=0)
        await holder.open_quietly()
        got = await holder.get()
        if got is None:
            await holder.aclose()
            return None
        return got, holder

    # --- exchanges --------------------------------------------------------------------------------

    async def declare_exchange(
        self, name: str, kind: str, *, durable: bool, auto_delete: bool, arguments: Arguments
    ) -> None:
        try:
            self._ask(
                commands.Exchange.Declare,
                0,
                name,
                kind,
                False,
                durable,
                auto_delete,
                False,
                False,
                arguments,
            )
        except InvalidArgument as failure:
            if "inequivalent" in str(failure):
                raise Conflict(str(failure)) from failure
            raise

    async def delete_exchange(self, name: str) -> None:
        self._ask(commands.Exchange.Delete, 0, name, False, False)

    async def exchange_names(self) -> list[str]:
        rows = self._manage("GET", "exchanges", self._settings.vhost)
        names = [row["name"] for row in rows]
        return sorted(n for n in names if n and not n.startswith(("amq.", "penstock.")))

    async def bind(self, queue: str, exchange: str, routing_key: str, arguments: Arguments) -> None:
        self._ask(commands.Queue.Bind, 0, queue, exchange, routing_key, False, arguments)

    async def unbind(
        self, queue: str, exchange: str, routing_key: str, arguments: Arguments
    ) -> None:
        self._ask(commands.Queue.Unbind, 0, queue, exchange, routing_key, arguments)

    # --- the end ----------------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._thread.loop

    def on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the connection's loop, and wait for it here."""
        return self._thread.run(work)

    def close(self) -> None:
        with contextlib.suppress(PenstockError):
            self._thread.run(self._close())
        self._thread.stop()

    async def close_queues(self) -> None:
        self.close()

    async def _close(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.finish(), self._settings.timeout)
        for consumer in list(self._consumers):
            await consumer.aclose()
        if self._connection is not None:
            await self._connection.close()
