"""Topics and groups as the library shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.ids import TopicPartition

__all__ = ["ClusterInfo", "GroupInfo", "MemberInfo", "PartitionInfo", "TopicInfo", "TopicPartition"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """One partition. `size_bytes` is None where the server does not tell."""

    partition: int
    start_offset: int
    end_offset: int
    leader: int = -1
    size_bytes: int | None = None

    @property
    def message_count(self) -> int:
        """How many offsets it spans; compaction and transactions make it fewer messages."""
        return self.end_offset - self.start_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """One topic, with its partitions and the settings that are not defaults."""

    name: str
    partitions: tuple[PartitionInfo, ...]
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def partition_count(self) -> int:
        return len(self.partitions)

    @property
    def message_count(self) -> int:
        return sum(partition.message_count for partition in self.partitions)

    @property
    def size_bytes(self) -> int | None:
        """What it takes on disk, None where the server does not tell."""
        sizes = [partition.size_bytes for partition in self.partitions]
        return None if None in sizes else sum(size or 0 for size in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberInfo:
    """One consumer of a group."""

    member_id: str
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """One group: who is in it, what it has committed, how far it is behind."""

    name: str
    state: str
    members: tuple[MemberInfo, ...]
    offsets: Mapping[TopicPartition, int]
    lag: Mapping[TopicPartition, int]

    @property
    def consumer_count(self) -> int:
        return len(self.members)

    @property
    def total_lag(self) -> int:
        """How many offsets are left to read, in all partitions."""
        return sum(self.lag.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """The server: `brokers` has the address of each by its number."""

    cluster_id: str
    brokers: Mapping[int, str]
    topic_count: int
