"""What the broker's options say about topics that say nothing themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class InternalTopic:
    """How one of the broker's own topics is created."""

    partitions: int = 50
    replication_factor: int = 1
    min_insync_replicas: int = 1
    segment_bytes: int = 100 * 1024 * 1024

    def config(self) -> Mapping[str, str]:
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "min.insync.replicas": str(self.min_insync_replicas),
            "segment.bytes": str(self.segment_bytes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """What the broker's options say about topics. `settings` is keyed by topic setting names."""

    partitions: int = 4
    replication_factor: int = 1
    auto_create: bool = True
    settings: Mapping[str, str] = field(default_factory=dict)
    internal: Mapping[str, InternalTopic] = field(
        default_factory=lambda: {
            OFFSETS_TOPIC: InternalTopic(),
            TRANSACTIONS_TOPIC: InternalTopic(),
        }
    )
