"""Everything about groups that can be configured, as the services take it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, cast

from penstock.config import BrokerConfig
from penstock.machines.consumer_group_steps import ConsumerGroupLimits
from penstock.machines.group_commands import GroupLimits
from penstock.machines.share_group_heartbeat import ShareGroupLimits

Migration = Literal["disabled", "upgrade", "downgrade", "bidirectional"]

_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class OffsetLimits:
    """By Kafka's `offset.*` and `offsets.*` settings."""

    max_metadata_bytes: int = 4_096
    retention_ms: int = 7 * 24 * 60 * _MINUTE_MS
    check_interval_ms: int = 10 * _MINUTE_MS


@dataclass(frozen=True, slots=True)
class ConsumerGroupsConfig:
    """For KIP-848 groups; a group's own configuration comes before."""

    limits: ConsumerGroupLimits = field(default_factory=ConsumerGroupLimits)
    migration: Migration = "bidirectional"
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class ShareGroupsConfig:
    """For share groups; a group's own configuration comes before."""

    limits: ShareGroupLimits = field(default_factory=ShareGroupLimits)
    enabled: bool = True


@dataclass(frozen=True, slots=True)
class GroupsConfig:
    """Groups of all kinds, and offsets."""

    classic: GroupLimits = field(default_factory=GroupLimits)
    consumer: ConsumerGroupsConfig = field(default_factory=ConsumerGroupsConfig)
    offsets: OffsetLimits = field(default_factory=OffsetLimits)
    share: ShareGroupsConfig = field(default_factory=ShareGroupsConfig)

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupsConfig:
        """As the broker's options say."""
        return cls(
            GroupLimits(
                min_session_timeout_ms=config.group_min_session_timeout_ms,
                max_session_timeout_ms=config.group_max_session_timeout_ms,
                initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
                max_size=config.group_max_size,
            ),
            ConsumerGroupsConfig(
                ConsumerGroupLimits(
                    session_timeout_ms=config.group_consumer_session_timeout_ms,
                    heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
                    max_size=config.group_consumer_max_size,
                    assignors=config.group_consumer_assignors,
                ),
                cast(Migration, config.group_consumer_migration_policy),
                "consumer" in config.group_coordinator_rebalance_protocols,
            ),
            OffsetLimits(
                max_metadata_bytes=config.offset_metadata_max_bytes,
                retention_ms=config.offsets_retention_minutes * _MINUTE_MS,
                check_interval_ms=config.offsets_retention_check_interval_ms,
            ),
            ShareGroupsConfig(
                ShareGroupLimits(
                    session_timeout_ms=config.group_share_session_timeout_ms,
                    heartbeat_interval_ms=config.group_share_heartbeat_interval_ms,
                    max_size=config.group_share_max_size,
                ),
                "share" in config.group_coordinator_rebalance_protocols,
            ),
        )


def group_limits(config: BrokerConfig) -> dict[str, str]:
    """The options that are defaults or bounds of a group's settings, by name, as text."""
    limits = {
        "group.consumer.session.timeout.ms": config.group_consumer_session_timeout_ms,
        "group.consumer.min.session.timeout.ms": config.group_consumer_min_session_timeout_ms,
        "group.consumer.max.session.timeout.ms": config.group_consumer_max_session_timeout_ms,
        "group.consumer.heartbeat.interval.ms": config.group_consumer_heartbeat_interval_ms,
        "group.consumer.min.heartbeat.interval.ms": config.group_consumer_min_heartbeat_interval_ms,
        "group.consumer.max.heartbeat.interval.ms": config.group_consumer_max_heartbeat_interval_ms,
        "group.share.session.timeout.ms": config.group_share_session_timeout_ms,
        "group.share.min.session.timeout.ms": config.group_share_min_session_timeout_ms,
        "group.share.max.session.timeout.ms": config.group_share_max_session_timeout_ms,
        "group.share.heartbeat.interval.ms": config.group_share_heartbeat_interval_ms,
        "group.share.min.heartbeat.interval.ms": config.group_share_min_heartbeat_interval_ms,
        "group.share.max.heartbeat.interval.ms": config.group_share_max_heartbeat_interval_ms,
        "group.share.record.lock.duration.ms": config.group_share_record_lock_duration_ms,
        "group.share.min.record.lock.duration.ms": config.group_share_min_record_lock_duration_ms,
        "group.share.max.record.lock.duration.ms": config.group_share_max_record_lock_duration_ms,
        "group.share.delivery.count.limit": config.group_share_delivery_count_limit,
        "group.share.min.delivery.count.limit": config.group_share_min_delivery_count_limit,
        "group.share.max.delivery.count.limit": config.group_share_max_delivery_count_limit,
        "group.share.partition.max.record.locks": config.group_share_partition_max_record_locks,
        "group.share.min.partition.max.record.locks": (
            config.group_share_min_partition_max_record_locks
        ),
        "group.share.max.partition.max.record.locks": (
            config.group_share_max_partition_max_record_locks
        ),
    }
    return {name: str(value) for name, value in limits.items()}
