"""What the HTTP door shows of a broker, as plain values. Reads only; opens no partition for it
unless one topic is asked for by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, Protocol

from penstock import __version__
from penstock.config import BrokerConfig
from penstock.errors import GroupIdNotFound
from penstock.model.amqp_clients import ClientConnection
from penstock.model.cluster import Cluster
from penstock.model.histogram import Histogram
from penstock.model.kafka_stats import KafkaStats
from penstock.model.offsets_topic import CommittedOffset
from penstock.model.topic import topic_id_text
from penstock.services.groups import Groups
from penstock.services.messaging import Messaging
from penstock.services.partitions import Partitions
from penstock.services.topics import Topics

Lag = tuple[str, str, int, int, int]  # group, topic, partition, committed offset, lag (-1 unknown)


class KafkaDoor(Protocol):
    """What is shown of the Kafka door."""

    @property
    def stats(self) -> KafkaStats: ...

    @property
    def connections(self) -> Sized: ...


class AmqpCounts(Protocol):
    """What the AMQP door counts."""

    connections_made: int
    refused: int
    failed: int
    channels: int
    bytes_in: int
    bytes_out: int
    published: int
    returned: int
    delivered: int
    acknowledged: int
    requeued: int
    rejected: int


class AmqpDoor(Protocol):
    """What is shown of the AMQP door."""

    @property
    def stats(self) -> AmqpCounts: ...

    @property
    def connections(self) -> Sized: ...

    def clients(self) -> Sequence[ClientConnection]: ...

    def end(self, name: str, reason: str) -> bool: ...


@dataclass(slots=True, kw_only=True)
class BrokerView:
    """The parts of a broker that the HTTP door reads."""

    cluster: Cluster
    topics: Topics
    partitions: Partitions
    groups: Groups
    messaging: Messaging
    kafka: KafkaDoor | None
    amqp: AmqpDoor | None
    config: Callable[[], BrokerConfig]  # settings change while the broker runs
    addresses: Mapping[str, tuple[str, int] | None]  # of the doors
    api_name: Callable[[int], str]
    flush_histogram: Histogram
    loop_delay: Histogram
    disk_free_bytes: Callable[[], int | None]
    is_ready: Callable[[], bool]

    def not_ready_because(self) -> str:
        return "" if self.is_ready() else "the broker is starting or stopping"

    def log_bytes(self) -> int:
        return sum(replica.log.size_bytes for replica in self.partitions)

    # --- cluster and topics -----------------------------------------------------------------------

    def cluster_summary(self) -> dict[str, Any]:
        return {
            "version": __version__,
            "cluster_id": self.cluster.cluster_id,
            "node_id": self.cluster.node_id,
            "nodes": [
                {"id": node.id, "host": node.host, "port": node.port} for node in self.cluster.nodes
            ],
            "topics": len(self.topics),
            "groups": self.group_count(),
            "connections": len(self.kafka.connections) if self.kafka is not None else 0,
        }

    def topic_summary(self, name: str) -> dict[str, Any]:
        topic = self.topics.get(name)
        settings = self.topics.settings(name)
        return {
            "name": name,
            "id": topic_id_text(topic.id),
            "partitions": topic.partition_count,
            "replication_factor": topic.replication_factor,
            "internal": topic.internal,
            "created_at_ms": topic.created_at_ms,
            "retention_ms": settings.retention_ms,
            "cleanup_policy": sorted(settings.cleanup_policy),
            "config": dict(topic.config),
        }

    async def topic_detail(self, name: str) -> dict[str, Any]:
        topic = self.topics.get(name)
        rows = []
        for partition in range(topic.partition_count):
            replica = await self.partitions.replica(name, partition)
            rows.append(
                {
                    "partition": partition,
                    "leader": self.cluster.node_id,
                    "leader_epoch": replica.leader_epoch,
                    "start_offset": replica.log.start_offset,
                    "last_stable_offset": replica.last_stable_offset,
                    "high_watermark": replica.high_watermark,
                    "end_offset": replica.log.end_offset,
                    "size_bytes": replica.log.size_bytes,
                }
            )
        return self.topic_summary(name) | {"partition_details": rows}

    # --- groups -----------------------------------------------------------------------------------

    def group_count(self) -> int:
        return len(self.groups.list_groups())

    def group_lags(self, group_id: str | None = None) -> list[Lag]:
        """Where groups stand; a partition that nobody opened since the start has an unknown lag."""
        names = [group_id] if group_id else [group.group_id for group in self.groups.list_groups()]
        return [
            (name, at.topic, at.partition, found.offset, self._lag(at.topic, at.partition, found))
            for name in names
            for at, found in self.groups.offsets.fetch_all(name, require_stable=False)
            if isinstance(found, CommittedOffset) and found.offset >= 0
        ]

    def _lag(self, topic: str, partition: int, committed: CommittedOffset) -> int:
        end = self.partitions.end_offset(topic, partition)
        return -1 if end is None else max(0, end - committed.offset)

    def group_summaries(self) -> list[dict[str, Any]]:
        lags: dict[str, int] = {}
        for name, _, _, _, lag in self.group_lags():
            lags[name] = lags.get(name, 0) + max(lag, 0)
        return [
            {
                "group_id": group.group_id,
                "state": group.state,
                "type": group.group_type,
                "protocol_type": group.protocol_type,
                "lag": lags.get(group.group_id, 0),
            }
            for group in self.groups.list_groups()
        ]

    def group_detail(self, group_id: str) -> dict[str, Any]:
        found = [group for group in self.groups.list_groups() if group.group_id == group_id]
        if not found:
            raise GroupIdNotFound(f"there is no group {group_id!r}")
        return {
            "group_id": group_id,
            "state": found[0].state,
            "type": found[0].group_type,
            "offsets": [
                {"topic": topic, "partition": partition, "committed": offset, "lag": lag}
                for _, topic, partition, offset, lag in self.group_lags(group_id)
            ],
        }
