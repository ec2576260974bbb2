"""The composition root: every part of a broker, put together once.

`Broker` opens and closes one inside a running event loop; `serve` runs one as a process, on uvloop,
until a signal. Nothing else in the package creates services or knows which implementation of disk,
clock or catalogue is in use.

    opening                                       closing
    lock the data directory                       stop listening
    read the catalogue                            end background work
    recover logs (only after a crash)             finish what is under way
    load groups and transactions                  snapshots, sync, checkpoints
    open the doors                                clean-shutdown marker, unlock
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.catalogue.sqlite import FILE_NAME, SqliteCatalogue
from penstock.catalogue.sqlite_messaging import SqliteMessagingCatalogue
from penstock.config import BrokerConfig
from penstock.errors import ConfigurationError, StorageError
from penstock.http.server import HttpServer
from penstock.http.view import BrokerView
from penstock.kafka.context import BrokerServices
from penstock.kafka.dispatch import api_name
from penstock.kafka.fetch_sessions import FetchSessions
from penstock.kafka.server import KafkaServer
from penstock.kafka.share_sessions import ShareSessions
from penstock.log.flusher import Flusher
from penstock.log.store import LogStore, check_uninhabited
from penstock.model.cluster import Cluster, Node
from penstock.model.histogram import Histogram
from penstock.model.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, topic_id_text
from penstock.options.option import Address
from penstock.runtime.clock import Clock, SystemClock
from penstock.runtime.disk import Disk, OsDisk
from penstock.runtime.loop_delay import watch_loop_delay
from penstock.runtime.memory_disk import MemoryDisk
from penstock.runtime.supervisor import Supervisor
from penstock.services.configs import Configs, topic_defaults
from penstock.services.group_config import GroupsConfig
from penstock.services.groups import Groups
from penstock.services.journal import Journal
from penstock.services.log_upkeep import keep_logs
from penstock.services.messaging import Messaging
from penstock.services.partitions import Partitions
from penstock.services.producer_ids import ProducerIds
from penstock.services.queue_upkeep import keep_queues
from penstock.services.quotas import Quotas
from penstock.services.share_dead_letters import ShareDeadLetters
from penstock.services.share_partitions import SharePartitions
from penstock.services.share_rules import ShareRules, share_rules
from penstock.services.topics import Topics, new_topic_id
from penstock.services.transaction_upkeep import keep_transactions
from penstock.services.transactions import TransactionLimits, Transactions

log = logging.getLogger("penstock")


class Broker:
    """One broker: open it, use its services, close it."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        on_fatal: Callable[[BaseException], None] | None = None,
    ) -> None:
        """`clock` and `disk` are the machine's unless given; `on_fatal` ends the process unless
        the broker is a guest in somebody else's."""
        self.config = config
        self.clock: Clock = clock or SystemClock()
        self._on_fatal = on_fatal or end_process
        self.supervisor = Supervisor(self._fatal)
        self.loop_delays = Histogram()
        self.flush_times = Histogram()
        self.disk: Disk = disk or (MemoryDisk() if config.memory else OsDisk(config.data))
        self.store = LogStore(self.disk, self.clock, most_open_files=config.log_open_files_max)
        self.flusher = Flusher(
            on_fatal=self._fatal,
            on_round=lambda seconds, _: self.flush_times.observe(seconds),
            threads=config.log_flush_threads,
        )
        self.catalogue: SqliteCatalogue
        self.services: BrokerServices
        self.messaging: Messaging
        self.kafka: KafkaServer | None = None
        self.amqp: Any = None
        self.http: HttpServer | None = None
        self.addresses: dict[str, tuple[str, int] | None] = {}
        self.is_ready = False

    def __repr__(self) -> str:
        return f"<Broker {self.disk!r} {self.addresses}>"

    # --- opening ----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Recover, load, and open every door. What fails leaves nothing locked or open."""
        path = ":memory:" if self.config.memory else str(self._place_of_catalogue())
        self.catalogue = SqliteCatalogue.open(path, on_fatal=self._fatal)
        try:
            await self._open_data()
        except BaseException:
            await self.store.close(clean=False)
            await self.catalogue.close()
            raise
        try:
            await self._open_doors()
        except BaseException:
            await self.close()
            raise
        self._start_upkeep()
        self.is_ready = True

    async def _open_data(self) -> None:
        contents = await self.catalogue.load()
        await self.store.open({row.topic.name: row.topic.id for row in contents.topics})
        self._report_recovery()
        cluster_id = self.store.properties().get("cluster.id") or new_cluster_id()
        self.store.claim(cluster_id, self.config.node_id)
        await self._build(contents, Cluster(cluster_id, self.config.node_id, []))
        await self._load_state()

    def _place_of_catalogue(self) -> Path:
        data = self.config.data
        try:
            data.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as problem:
            raise ConfigurationError(
                f"data cannot be {str(data)!r}: there is a file where a directory is needed."
            ) from problem
        place = data / FILE_NAME
        if not place.exists() or not place.stat().st_size:
            check_uninhabited(self.disk)
        return place

    async def _build(self, contents: Any, cluster: Cluster) -> None:
        config, clock = self.config, self.clock
        topics = Topics(
            self.catalogue, clock, brokers=(config.node_id,), defaults=topic_defaults(config)
        )
        await topics.load(contents.topics)
        configs = Configs(self.catalogue, topics, config, cluster)
        await configs.load(contents.configs)
        quotas = Quotas(self.catalogue, config)
        quotas.load(contents.quotas)
        partitions = Partitions(topics, self.store, self.flusher, clock, self.store.leader_epoch)
        offsets_journal = Journal(
            OFFSETS_TOPIC, config.offsets_topic_num_partitions, topics, partitions, clock
        )
        groups = Groups(
            offsets_journal,
            clock,
            GroupsConfig.of(config),
            topics=topics,
            settings=configs.group_settings,
            table=self.catalogue,
            node_id=config.node_id,
        )
        transactions_journal = Journal(
            TRANSACTIONS_TOPIC,
            config.transaction_state_log_num_partitions,
            topics,
            partitions,
            clock,
        )
        transactions = Transactions(
            transactions_journal,
            partitions,
            offsets_journal,
            ProducerIds(self.catalogue),
            clock,
            coordinator_epoch=self.store.leader_epoch,
            limits=TransactionLimits.of(configs.config),
        )
        rows = SqliteMessagingCatalogue(self.catalogue)
        self.messaging = Messaging(rows, topics, partitions, self.store, self.flusher, clock)
        partitions.on_offsets_marker = groups.on_marker
        configs.on_changed.append(self._config_changed)
        self.services = BrokerServices(
            config=configs.config,
            clock=clock,
            cluster=cluster,
            topics=topics,
            partitions=partitions,
            groups=groups,
            transactions=transactions,
            configs=configs,
            quotas=quotas,
            sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots),
            share_partitions=self._share_partitions(topics, partitions, groups, configs),
            share_sessions=ShareSessions(config.group_share_max_share_sessions),
        )

    def _share_partitions(
        self, topics: Topics, partitions: Partitions, groups: Groups, configs: Configs
    ) -> SharePartitions:
        def rules(group_id: str) -> ShareRules:
            return share_rules(configs.group_settings(group_id))

        return SharePartitions(
            groups.shares,
            topics,
            partitions,
            self.store,
            self.flusher,
            self.clock,
            rules,
            ShareDeadLetters(topics, partitions, self.clock, lambda: configs.config, rules),
        )

    def _config_changed(self, config: BrokerConfig) -> None:
        self.services.config = config
        self.services.transactions.limits = TransactionLimits.of(config)

    async def _load_state(self) -> None:
        await self.services.groups.load()
        await self.services.transactions.load()
        await self.messaging.load()

    async def _open_doors(self) -> None:
        config, cluster = self.config, self.services.cluster
        self.addresses = {"kafka": None, "amqp": None, "http": None}
        if config.kafka is not None:
            self.kafka = KafkaServer(self.services)
            bound = await self.kafka.open(config.kafka.host, config.kafka.port)
            advertised = config.advertised_kafka or Address(*reachable(bound))
            cluster.nodes[:] = [Node(config.node_id, advertised.host, advertised.port)]
            self.addresses["kafka"] = bound
        if config.amqp is not None:
            from penstock.amqp.server import AmqpServer

            self.amqp = AmqpServer(self.messaging, config, cluster.cluster_id)
            self.addresses["amqp"] = await self.amqp.open(config.amqp.host, config.amqp.port)
        if config.http is not None:
            await self.open_http(config.http)

    async def open_http(self, address: Address) -> None:
        """Open the HTTP door, which a broker may do without until somebody asks for it."""
        view = BrokerView(
            cluster=self.services.cluster,
            topics=self.services.topics,
            partitions=self.services.partitions,
            groups=self.services.groups,
            messaging=self.messaging,
            kafka=self.kafka,
            amqp=self.amqp,
            config=lambda: self.services.config,
            addresses=self.addresses,
            api_name=api_name,
            flush_histogram=self.flush_times,
            loop_delay=self.loop_delays,
            disk_free_bytes=lambda: None if self.config.memory else self.disk.free_bytes(),
            is_ready=lambda: self.is_ready,
        )
        self.http = HttpServer(lambda: http_application(view))
        self.addresses["http"] = await self.http.open(address.host, address.port)

    def _start_upkeep(self) -> None:
        config, services = self.config, self.services
        every = self.supervisor.every
        self.supervisor.start("loop delay", watch_loop_delay(self.loop_delays.observe))

        async def expire_producers() -> None:
            services.partitions.expire_producers(config.producer_id_expiration_ms)

        async def checkpoint() -> None:
            try:
                await self.store.checkpoint(services.partitions.high_watermarks())
            except OSError as failure:
                if failure.errno == errno.EIO:  # after which nothing the kernel says is certain
                    self._fatal(failure)
                raise

        every(
            config.producer_id_expiration_check_interval_ms / 1000,
            "producer expiry",
            expire_producers,
        )
        every(
            config.log_flush_offset_checkpoint_interval_ms / 1000,
            "checkpoint",
            checkpoint,
            (StorageError, OSError),
        )
        keep_logs(
            self.supervisor,
            config,
            self.store,
            services.topics,
            services.partitions,
            self.messaging.queues.needed_from,
        )
        keep_queues(
            self.supervisor,
            self.messaging,
            lambda: services.config.disk_free_limit_bytes,
            None if config.memory else self.disk.free_bytes,
        )
        keep_transactions(self.supervisor, config, services.transactions)

    def _report_recovery(self) -> None:
        for damage in self.store.damages:
            log.error("damaged data: %s", damage)
        if not self.store.was_clean and self.store.recovered:
            log.info("recovered %d partitions after an unclean stop", len(self.store.recovered))

    def _fatal(self, failure: BaseException) -> None:
        """Something that must not fail has failed: the disk is right, this process is not."""
        log.critical("stopping at once: %s", failure)
        self._on_fatal(failure)

    # --- closing ----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Stop cleanly: everything on disk, and the marker that says so."""
        self.is_ready = False
        if self.http is not None:
            await self.http.close()
        if self.amqp is not None:
            await self.amqp.close()
        if self.kafka is not None:
            await self.kafka.close()
        await self.supervisor.close()
        await self.messaging.close()
        await self.services.share_partitions.close()
        await self.services.transactions.close()
        await self.services.groups.close()
        await self.services.partitions.close()
        await self.flusher.close()
        await self.store.checkpoint(self.services.partitions.high_watermarks())
        await self.store.close()
        await self.catalogue.close()


def end_process(failure: BaseException) -> None:
    """End this process as a crash would: nothing more is written."""
    logging.shutdown()
    os._exit(70)


def http_application(view: BrokerView) -> Any:
    """The application behind the HTTP door; its libraries are imported only here."""
    from penstock.http.api import application

    return application(view)


def new_cluster_id() -> str:
    """A random id in Kafka's form: 22 characters of URL-safe base64."""
    return topic_id_text(new_topic_id())


def reachable(bound: tuple[str, int]) -> tuple[str, int]:
    """An address that a client on this machine can connect to."""
    host, port = bound
    if host in ("0.0.0.0", "::"):
        return socket.gethostname(), port
    return host, port
