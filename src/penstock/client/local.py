"""The home in this process: a whole broker on a thread and an event loop of its own.

It is the broker of `penstock serve`: the same log, groups and transactions, and doors if wanted.
What differs is the way in: no socket, no request; the faces call its services.

A process that ends without closing it loses nothing that was acknowledged. If there is time, the
broker is closed on the way out; if not, the next start recovers, as after a crash.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from penstock.app import Broker
from penstock.client.at_exit import close_at_exit, close_in_background, is_closed_now
from penstock.client.errors import (
    Closed,
    ConfigurationError,
    PenstockError,
    Unavailable,
    in_our_words,
    of_broker_error,
)
from penstock.client.home import Start, StreamOptions, WhenWritten
from penstock.client.local_admin import LocalAdmin
from penstock.client.local_loop import LoopThread
from penstock.client.local_queues import LocalQueues
from penstock.client.local_stream import LocalStream, find_offset, read_chunk
from penstock.client.local_transaction import Coordination, LocalTransaction, LocalTransactions
from penstock.client.local_writer import LocalWriter
from penstock.client.outgoing import Outgoing, Row
from penstock.client.partitioner import Partitioner
from penstock.client.progress import Chunk
from penstock.client.views import ClusterInfo, GroupInfo, TopicInfo
from penstock.config import BrokerConfig
from penstock.errors import BrokerError
from penstock.model.ids import TopicPartition
from penstock.model.topic import Topic
from penstock.runtime.clock import Clock
from penstock.runtime.disk import Disk

T = TypeVar("T")

_READ_BYTES = 1024 * 1024
_FINISH_SECONDS = 30.0
_ABANDON_SECONDS = 1.0


def broker_config(
    path: str | Path | None,
    kafka: str | None,
    http: str | None,
    options: Mapping[str, Any],
    *,
    amqp: str | None = None,
) -> BrokerConfig:
    """The broker's configuration from keyword arguments: `num_partitions=1` is num.partitions."""
    flags: dict[str, Any] = {name.replace("_", "."): value for name, value in options.items()}
    flags |= {"kafka": kafka or "off", "http": http or "off", "amqp": amqp or "off"}
    flags |= {"memory": True} if path is None else {"data": path}
    return BrokerConfig.load(flags=flags, environ={})


class LocalHome:
    """A broker in this process."""

    def __init__(
        self,
        config: BrokerConfig,
        partitioner: Partitioner,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.partitioner = partitioner
        self._closing = threading.Lock()
        self._is_closed = False
        self._fatal: BaseException | None = None
        self._streams: set[LocalStream] = set()
        self._thread = LoopThread("penstock")
        try:
            self._thread.run(self._open(config, clock, disk))
        except BaseException as failure:
            self._thread.stop()
            if isinstance(failure, OSError) and not isinstance(failure, PenstockError):
                raise ConfigurationError(_why_not(failure)) from failure
            raise
        close_at_exit(self)

    def __repr__(self) -> str:
        return f"<LocalHome {self.broker!r}{' closed' if self._is_closed else ''}>"

    async def _open(self, config: BrokerConfig, clock: Clock | None, disk: Disk | None) -> None:
        self.broker = Broker(config, clock=clock, disk=disk, on_fatal=self._broke)
        await self.broker.open()
        services = self.broker.services
        topics, partitions = services.topics, services.partitions
        self._clock = services.clock
        self._writer = LocalWriter(
            self._thread.loop, topics, partitions, services.clock, self.partitioner
        )
        self._transactions = LocalTransactions(
            Coordination(
                services.transactions, partitions, services.groups, services.clock, self._writer
            )
        )
        self._queues = LocalQueues(
            self._thread.loop,
            self.broker.messaging,
            services.clock,
            config.amqp_max_message_bytes,
        )
        self._admin = LocalAdmin(
            topics, partitions, services.groups, services.configs, config.node_id
        )
        topics.on_created.append(lambda topic: self._topics_changed())
        topics.on_changed.append(lambda topic, settings: self._topics_changed())
        topics.on_deleted.append(self._topic_deleted)

    def _broke(self, failure: BaseException) -> None:
        """A sync failed or the broker broke down. The process is not ours to end: this home is."""
        self._fatal = failure
        self._writer.fail_all(Unavailable(f"the broker has stopped: {failure}"))

    def _topics_changed(self) -> None:
        for stream in self._streams:
            stream.beat_soon()

    def wake_streams(self) -> None:
        """Somebody moved the clock: what was set aside may be due."""
        for stream in self._streams:
            stream.wake()

    async def _topic_deleted(self, topic: Topic) -> None:
        for stream in self._streams:
            stream.forget_topic(topic.name)

    # --- waiting ----------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        return self._thread.run(work, timeout)

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        return await self._thread.arun(work)

    def check_may_wait(self) -> None:
        self._check()
        self._thread.check()

    def call_soon(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Call something on the broker's loop, from any thread."""
        self._thread.soon(call, *arguments)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    @property
    def is_closed(self) -> bool:
        return self._is_closed or self._thread.is_of_parent

    @property
    def addresses(self) -> dict[str, str | None]:
        """Where the doors are: kafka, amqp, http."""
        return {
            door: None if bound is None else f"{bound[0]}:{bound[1]}"
            for door, bound in self.broker.addresses.items()
        }

    # --- publishing -------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._is_closed:
            raise Closed("it is closed; open another one")
        if self._fatal is not None:
            raise Unavailable(f"the broker has stopped: {self._fatal}")

    def enqueue(self, outgoing: Outgoing) -> None:
        self._check()
        self._writer.enqueue(outgoing)

    def write(self, topic: str, rows: Sequence[Row], done: WhenWritten) -> None:
        self._check()
        # Reading a dict that the loop's thread changes is safe, and a topic is a frozen value.
        known = self.broker.services.topics.find(topic)
        if known is None:
            with in_our_words():
                known = self.run(self._writer.ensure(topic))
        placed = self._writer.place(known, rows)
        self._thread.soon(self._writer.append_placed, topic, placed, done)

    # --- reading ----------------------------------------------------------------------------------

    async def stream(self, options: StreamOptions) -> LocalStream:
        self._check()
        services = self.broker.services
        stream = LocalStream(
            options, services.groups, services.topics, services.partitions, self._tell_peers
        )
        self._streams.add(stream)
        return stream

    def _tell_peers(self, about: LocalStream) -> None:
        """A group changed: its other members here need not wait for their next heartbeat."""
        if about.is_closed:
            self._streams.discard(about)
        for stream in self._streams:
            if stream is not about and stream.options.group == about.options.group:
                stream.beat_soon()

    async def find(self, place: TopicPartition, start: Start) -> int:
        self._check()
        with in_our_words():
            return await find_offset(
                await self.broker.services.partitions.replica(*place), start, read_committed=True
            )

    async def read(self, place: TopicPartition, offset: int) -> tuple[Sequence[Chunk], int]:
        self._check()
        with in_our_words():
            replica = await self.broker.services.partitions.replica(*place)
            end = replica.visible_end(read_committed=True)
            chunk = await read_chunk(replica, place, offset, _READ_BYTES, read_committed=True)
        return ([] if chunk is None else [chunk]), end

    # --- queues -----------------------------------------------------------------------------------

    @property
    def queues(self) -> LocalQueues:
        self._check()
        return self._queues

    # --- transactions -----------------------------------------------------------------------------

    async def begin(self, transactional_id: str, timeout: float) -> LocalTransaction:
        self._check()
        return await self._transactions.begin(transactional_id, timeout)

    # --- administration ---------------------------------------------------------------------------

    async def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._check()
        except PenstockError:
            work.close()
            raise
        try:
            return await work
        except BrokerError as failure:
            raise of_broker_error(failure) from failure

    async def create_topic(
        self,
        name: str,
        partitions: int | None,
        replication_factor: int | None,
        config: Mapping[str, str],
    ) -> None:
        await self._ask(self._admin.create_topic(name, partitions, replication_factor, config))

    async def delete_topic(self, name: str) -> None:
        await self._ask(self._admin.delete_topic(name))

    async def add_partitions(self, name: str, total: int) -> None:
        await self._ask(self._admin.add_partitions(name, total))

    async def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        await self._ask(self._admin.alter_topic(name, config))

    async def topic_config(self, name: str) -> dict[str, str]:
        return await self._ask(self._admin.topic_config(name))

    async def topic_names(self) -> list[str]:
        return await self._ask(self._admin.topic_names())

    async def topic(self, name: str) -> TopicInfo:
        return await self._ask(self._admin.topic(name))

    async def delete_records(self, place: TopicPartition, before: int) -> None:
        await self._ask(self._admin.delete_records(place, before))

    async def group_names(self) -> list[str]:
        return await self._ask(self._admin.group_names())

    async def group(self, name: str) -> GroupInfo:
        return await self._ask(self._admin.group(name))

    async def set_group_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        await self._ask(self._admin.set_group_offsets(name, offsets))

    async def delete_group(self, name: str) -> None:
        await self._ask(self._admin.delete_group(name))

    async def cluster(self) -> ClusterInfo:
        self._check()
        services = self.broker.services
        return ClusterInfo(
            cluster_id=services.cluster.cluster_id,
            brokers={node.id: f"{node.host}:{node.port}" for node in services.cluster.nodes},
            topic_count=len(await self._admin.topic_names()),
        )

    # --- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        if self._thread.is_of_parent:  # the broker is the parent's, and so is the lock
            return
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self._thread.run(self._close())
            finally:
                self._thread.stop()
                self._writer.end()
                is_closed_now(self)

    async def _close(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._writer.finish(), _FINISH_SECONDS)
        self._writer.end()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._queues.close_queues(), _FINISH_SECONDS)
        for stream in list(self._streams):
            await stream.close()
        if self._fatal is None:
            await self.broker.close()
        else:
            await self._abandon()

    async def _abandon(self) -> None:
        """After a fatal failure: let go of everything. What is written now counts for nothing, for
        the broker is not closed cleanly and the next start recovers."""
        broker = self.broker
        services = broker.services
        parts = (broker.http, broker.amqp, broker.kafka, broker.supervisor, broker.messaging)
        more = (services.share_partitions, services.transactions, services.groups)
        for part in (*parts, *more):
            if part is not None:
                with contextlib.suppress(Exception):
                    await asyncio.wait_for(part.close(), _ABANDON_SECONDS)
        await broker.store.close(clean=False)
        await broker.catalogue.close()

    def close_soon(self) -> None:
        """Close in the background: nobody is left who could wait for it."""
        if not self._is_closed:
            close_in_background(self)


def _why_not(failure: OSError) -> str:
    """Why a broker cannot open: a port that is taken, a directory that may not be written."""
    where = f"{failure.filename}: " if failure.filename else ""
    return f"the broker cannot open: {where}{failure.strerror or failure}"
