"""The home over the network: librdkafka, by way of confluent-kafka.

Its coroutines never suspend: they block, like everything of librdkafka. `run` goes through one
where it stands, `arun` in a thread of the home's pool. Nothing of the broker is loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.client.at_exit import close_at_exit, close_in_background, is_closed_now
from penstock.client.errors import Closed, NotSupported, OffsetLost, PenstockError
from penstock.client.features import Features, ask_features, parse_servers
from penstock.client.home import LATEST, Start, StreamOptions, WhenWritten
from penstock.client.login import log_in
from penstock.client.outgoing import Outgoing, Row
from penstock.client.partitioner import Partitioner
from penstock.client.progress import Chunk
from penstock.client.queue_home import QueueHome
from penstock.client.remote_admin import RemoteAdmin
from penstock.client.remote_errors import kafka_errors
from penstock.client.remote_reader import RemoteReader
from penstock.client.remote_settings import RemoteSettings
from penstock.client.remote_stream import RemoteStream
from penstock.client.remote_transaction import RemoteTransaction, RemoteTransactions
from penstock.client.remote_writer import RemoteWriter
from penstock.client.views import ClusterInfo, GroupInfo, TopicInfo
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from penstock.client.remote_queues import RemoteQueues

T = TypeVar("T")

_THREADS = 128  # each subscription that waits keeps one busy; they are made when needed


class RemoteHome:
    """Connections to a Kafka server."""

    def __init__(self, settings: RemoteSettings, partitioner: Partitioner) -> None:
        self.partitioner = partitioner
        self.clock: Callable[[], int] = _now_ms  # tests move it
        self.features, self._settings = _introduced(settings)
        settings = self._settings
        self._lock = threading.RLock()
        self._is_closed = False
        self._pid = os.getpid()
        self._pool: ThreadPoolExecutor | None = None
        self._writer: RemoteWriter | None = None
        self._admin: RemoteAdmin | None = None
        self._streams: list[RemoteStream] = []
        self._queues: RemoteQueues | None = None
        self._reader = RemoteReader(settings)
        self._transactions = RemoteTransactions(settings, self._choose)
        if settings.security.mechanism is not None and settings.log_in:
            self._admin = RemoteAdmin(log_in(settings), settings.timeout)
        close_at_exit(self)

    def __repr__(self) -> str:
        return f"<RemoteHome {self._settings.servers}{' closed' if self._is_closed else ''}>"

    # --- waiting ----------------------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        self._check_process(work)
        return _through(work)

    def _check_process(self, work: Coroutine[Any, Any, Any] | None = None) -> None:
        """librdkafka's threads do not live on in a child: who waits for them waits for ever."""
        if os.getpid() != self._pid:
            if work is not None:
                work.close()
            raise Closed(
                "this was connected before the process forked and cannot be used in the child; "
                "connect after the fork"
            )

    async def arun(self, work: Coroutine[Any, Any, T]) -> T:
        self._check_process(work)
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="penstock-client")
        return await asyncio.get_running_loop().run_in_executor(self._pool, _through, work)

    def check_may_wait(self) -> None:
        if self._writer is not None:
            self._writer.check_may_wait()

    def now_ms(self) -> int:
        return self.clock()

    @property
    def is_closed(self) -> bool:
        return self._is_closed or os.getpid() != self._pid

    def _check(self) -> None:
        self._check_process()
        if self._is_closed:
            raise Closed("it is closed; connect again")

    # --- publishing -------------------------------------------------------------------------------

    @property
    def writer(self) -> RemoteWriter:
        if self._writer is None:
            with self._lock:
                if self._writer is None:
                    self._writer = self._new_writer()
        return self._writer

    def _new_writer(self) -> RemoteWriter:
        from confluent_kafka import Producer

        with kafka_errors("connecting"):
            producer = Producer(self._settings.producer(idempotent=self.features.idempotence))
        return RemoteWriter(
            producer, self.partitioner, lambda topic: self.admin.partition_count(topic)
        )

    def _choose(self, topic: str, partition: int, key: bytes | None) -> int:
        return self.writer.choose(topic, partition, key)

    def enqueue(self, outgoing: Outgoing) -> None:
        self._check()
        self.writer.enqueue(outgoing)

    def write(self, topic: str, rows: Sequence[Row], done: WhenWritten) -> None:
        self._check()
        self.writer.write(topic, rows, done)

    # --- reading ----------------------------------------------------------------------------------

    async def stream(self, options: StreamOptions) -> RemoteStream:
        self._check()
        new_groups = self.features.new_groups and self._settings.new_groups
        stream = RemoteStream(options, self._settings, new_groups, self._find_offsets)
        with self._lock:
            self._streams = [each for each in self._streams if not each.is_closed]
            self._streams.append(stream)
        return stream

    async def find(self, place: TopicPartition, start: Start) -> int:
        self._check()
        return self._find_offsets({place: start}, True)[place]

    def _find_offsets(
        self, wanted: Mapping[TopicPartition, Start], read_committed: bool
    ) -> dict[TopicPartition, int]:
        return self.admin.find_offsets(wanted, read_committed=read_committed)

    async def read(self, place: TopicPartition, offset: int) -> tuple[Sequence[Chunk], int]:
        self._check()
        end = self._find_offsets({place: LATEST}, True)[place]
        if offset > end:
            raise OffsetLost(f"offset {offset} is not in {place}, which ends at {end}")
        return (self._reader.read(place, offset, end) if offset < end else []), end

    # --- queues -----------------------------------------------------------------------------------

    @property
    def queues(self) -> QueueHome:
        self._check()
        with self._lock:
            if self._queues is None:
                from penstock.client.remote_queues import RemoteQueues

                self._queues = RemoteQueues(self._settings.queues())
            return self._queues

    # --- transactions -----------------------------------------------------------------------------

    async def begin(self, transactional_id: str, timeout: float) -> RemoteTransaction:
        self._check()
        self.features.require("transaction")
        return self._transactions.begin(transactional_id, timeout)

    # --- administration ---------------------------------------------------------------------------

    @property
    def admin(self) -> RemoteAdmin:
        self._check()
        if self._admin is None:
            with self._lock:
                if self._admin is None:
                    self._admin = RemoteAdmin(self._new_admin_client(), self._settings.timeout)
        return self._admin

    def _new_admin_client(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        with kafka_errors("connecting"):
            return AdminClient(self._settings.common())

    async def create_topic(
        self,
        name: str,
        partitions: int | None,
        replication_factor: int | None,
        config: Mapping[str, str],
    ) -> None:
        self.admin.create_topic(name, partitions, replication_factor, config)

    async def delete_topic(self, name: str) -> None:
        self.admin.delete_topic(name)

    async def add_partitions(self, name: str, total: int) -> None:
        self.features.require("add_partitions")
        self.admin.add_partitions(name, total)

    async def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        self.features.require("alter_topic")
        self.admin.alter_topic(name, config)

    async def topic_config(self, name: str) -> dict[str, str]:
        return self.admin.topic_config(name)

    async def topic_names(self) -> list[str]:
        return self.admin.topic_names()

    async def topic(self, name: str) -> TopicInfo:
        return self.admin.topic(name)

    async def delete_records(self, place: TopicPartition, before: int) -> None:
        self.features.require("delete_records")
        self.admin.delete_records(place, before)

    async def group_names(self) -> list[str]:
        return self.admin.group_names()

    async def group(self, name: str) -> GroupInfo:
        return self.admin.group(name)

    async def set_group_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        self.admin.set_group_offsets(name, offsets)

    async def delete_group(self, name: str) -> None:
        self.features.require("delete_group")
        self.admin.delete_group(name)

    async def cluster(self) -> ClusterInfo:
        return self.admin.cluster()

    # --- the end ----------------------------------------------------------------------------------

    def close(self) -> None:
        if os.getpid() != self._pid:  # the connections are the parent's, and so is the lock
            return
        with self._lock:
            if self._is_closed:
                return
            if self._queues is not None:
                self._queues.close()
            if self._writer is not None:
                self._writer.close(self._settings.timeout)
            self._is_closed = True
            is_closed_now(self)
            streams, self._streams = self._streams, []
        for stream in streams:
            with contextlib.suppress(PenstockError):
                _through(stream.close())
        self._reader.close()
        self._transactions.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False)

    def close_soon(self) -> None:
        """Close in the background: nobody is left who could wait for it."""
        close_in_background(self)


def _introduced(settings: RemoteSettings) -> tuple[Features, RemoteSettings]:
    """What the server can do, and the settings for it; raises for what cannot be right."""
    settings.check()
    security = settings.security
    features = ask_features(
        parse_servers(settings.servers),
        security.context(),
        settings.timeout,
        anonymous=security.mechanism is None,
    )
    if features.logins or security.mechanism is None:
        return features, settings
    if security.sasl_mechanism is not None:
        raise NotSupported(
            f"{settings.servers} has no logins at its Kafka door; leave sasl_mechanism out, then "
            "username and password are for its AMQP and HTTP doors only"
        )
    return features, settings._replace(log_in=False)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _through(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    work.close()
    raise AssertionError("a call over the network suspended")
