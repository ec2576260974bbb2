"""The metadata half of a broker, put together for real: catalogue, topics, settings, quotas, logs.

`ask` sends a request through the same bytes a client would send, so that what a handler answers has
been written and read back in exactly the version asked for.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from penstock.catalogue.sqlite import SqliteCatalogue
from penstock.config import BrokerConfig
from penstock.kafka.context import BrokerServices, RequestContext
from penstock.kafka.handlers import cluster, configs, quotas, topics
from penstock.log.flusher import Flusher
from penstock.log.store import LogStore
from penstock.model.cluster import Cluster, Node
from penstock.runtime.clock import ManualClock
from penstock.runtime.memory_disk import MemoryDisk
from penstock.services.configs import Configs, topic_defaults
from penstock.services.partitions import Partitions
from penstock.services.quotas import Quotas
from penstock.services.topics import Topics
from penstock.wire.kafka import codec
from support.wire import build

HANDLERS: dict[int, Any] = {
    3: topics.metadata,
    19: topics.create_topics,
    20: topics.delete_topics,
    32: configs.describe_configs,
    33: configs.alter_configs,
    35: cluster.describe_log_dirs,
    37: topics.create_partitions,
    43: cluster.elect_leaders,
    44: configs.incremental_alter_configs,
    45: cluster.alter_partition_reassignments,
    46: cluster.list_partition_reassignments,
    48: quotas.describe_client_quotas,
    49: quotas.alter_client_quotas,
    60: cluster.describe_cluster,
    74: configs.list_config_resources,
    75: topics.describe_topic_partitions,
}
METADATA, CREATE_TOPICS, DELETE_TOPICS, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 19, 20, 32, 33
DESCRIBE_LOG_DIRS, CREATE_PARTITIONS, ELECT_LEADERS, INCREMENTAL_ALTER_CONFIGS = 35, 37, 43, 44
ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS, DESCRIBE_QUOTAS, ALTER_QUOTAS = 45, 46, 48, 49
DESCRIBE_CLUSTER, LIST_CONFIG_RESOURCES, DESCRIBE_TOPIC_PARTITIONS = 60, 74, 75

NODE = 1


class Admin:
    """One broker's services, and a client of them."""

    def __init__(
        self, services: BrokerServices, clock: ManualClock, catalogue: SqliteCatalogue
    ) -> None:
        self.services = services
        self.clock = clock
        self.catalogue = catalogue
        self.topics = services.topics
        self.configs = services.configs
        self.quotas = services.quotas
        self.throttle_ms = 0  # of the last request

    async def ask(
        self, api_key: int, version: int, *, client_id: str = "test", **request: Any
    ) -> Any:
        """The answer as kio's dataclass, after a round trip through bytes both ways."""
        out = io.BytesIO()
        schema = load_request_schema(api_key, version)
        entity_writer(schema)(out, build(schema, request))
        decoded = codec.decode_request(api_key, version, memoryview(out.getvalue()))
        ctx = RequestContext(
            broker=self.services,
            api_key=api_key,
            api_version=version,
            client_id=client_id,
            client_host="127.0.0.1",
        )
        payload = await HANDLERS[api_key](ctx, decoded)
        self.throttle_ms = ctx.throttle_ms
        body = bytes(codec.encode_response(api_key, version, payload))
        answer, size = entity_reader(load_response_schema(api_key, version))(body, 0)
        assert size == len(body)
        return answer


@asynccontextmanager
async def admin(
    catalogue_path: Path | str = ":memory:", *, clock: ManualClock | None = None, **options: Any
) -> AsyncIterator[Admin]:
    """A broker's metadata half; the same path gives back what was kept."""
    async with AsyncExitStack() as stack:
        yield await _open(stack, catalogue_path, clock, options)


async def _open(
    stack: AsyncExitStack,
    catalogue_path: Path | str,
    clock: ManualClock | None,
    options: dict[str, Any],
) -> Admin:
    clock = clock or ManualClock()
    config = BrokerConfig(memory=True, node_id=NODE, **options)
    catalogue = SqliteCatalogue.open(catalogue_path)
    stack.push_async_callback(catalogue.close)
    contents = await catalogue.load()
    topics = Topics(catalogue, clock, brokers=(NODE,), defaults=topic_defaults(config))
    await topics.load(contents.topics)
    picture = Cluster("a-cluster-of-one", NODE, [Node(NODE, "127.0.0.1", 9092)])
    configs = Configs(catalogue, topics, config, picture)
    await configs.load(contents.configs)
    quotas = Quotas(catalogue, config)
    quotas.load(contents.quotas)
    store = LogStore(MemoryDisk(), clock)
    stack.push_async_callback(store.close)
    await store.open({topic.name: topic.id for topic in topics.all()})
    flusher = Flusher(on_fatal=_stop)
    stack.push_async_callback(flusher.close)
    nothing = cast(Any, None)  # services that no handler here asks for
    services = BrokerServices(
        config=config,
        clock=clock,
        cluster=picture,
        topics=topics,
        partitions=Partitions(topics, store, flusher, clock, store.leader_epoch),
        groups=nothing,
        transactions=nothing,
        configs=configs,
        quotas=quotas,
        sessions=nothing,
        share_partitions=nothing,
        share_sessions=nothing,
    )
    return Admin(services, clock, catalogue)


def _stop(failure: BaseException) -> None:
    raise AssertionError("the disk failed") from failure
