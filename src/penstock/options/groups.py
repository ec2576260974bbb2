"""Time-outs and sizes of groups: classic, KIP-848, and share groups (KIP-932)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.options.option import INT_MAX, MINUTE_MS, boolean, integer, names, text


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class GroupsOptions:
    """Groups."""

    group_min_session_timeout_ms: int = integer(
        6_000, "Shortest session time-out a member may ask for.", minimum=1, unit="ms"
    )
    group_max_session_timeout_ms: int = integer(
        30 * MINUTE_MS, "Longest session time-out a member may ask for.", minimum=1, unit="ms"
    )
    # Kafka waits 3 s. At 0, one kafka-python consumer in twenty joined before it knew the topic's
    # partitions, was given none and stayed so for minutes; a tenth of a second is enough for it.
    group_initial_rebalance_delay_ms: int = integer(
        100,
        "How long a new group waits for more members before its first assignment.",
        minimum=0,
        unit="ms",
    )
    group_max_size: int = integer(INT_MAX, "Members a group may have.", minimum=1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = names(
        ("classic", "consumer", "share"),
        "Group protocols served; consumer is KIP-848, share is KIP-932.",
        choices=("classic", "consumer", "share"),
    )
    group_consumer_session_timeout_ms: int = integer(
        45_000, "Session time-out of KIP-848 groups.", minimum=1, unit="ms"
    )
    group_consumer_min_session_timeout_ms: int = integer(
        45_000, "Lowest session time-out a KIP-848 group may be given.", minimum=1, unit="ms"
    )
    group_consumer_max_session_timeout_ms: int = integer(
        60_000, "Highest session time-out a KIP-848 group may be given.", minimum=1, unit="ms"
    )
    group_consumer_heartbeat_interval_ms: int = integer(
        5_000, "Heartbeat interval of KIP-848 groups.", minimum=1, unit="ms"
    )
    group_consumer_min_heartbeat_interval_ms: int = integer(
        5_000, "Lowest heartbeat interval a KIP-848 group may be given.", minimum=1, unit="ms"
    )
    group_consumer_max_heartbeat_interval_ms: int = integer(
        15_000, "Highest heartbeat interval a KIP-848 group may be given.", minimum=1, unit="ms"
    )
    group_consumer_max_size: int = integer(INT_MAX, "Members a KIP-848 group may have.", minimum=1)
    group_consumer_assignors: tuple[str, ...] = names(
        ("uniform", "range"),
        "Server-side assignors; the first is the default.",
        choices=("uniform", "range"),
    )
    group_consumer_migration_policy: str = text(
        "bidirectional",
        "Which live groups may change between the classic and the KIP-848 protocol.",
        choices=("disabled", "upgrade", "downgrade", "bidirectional"),
    )
    group_share_session_timeout_ms: int = integer(
        45_000, "Session time-out of share groups.", minimum=1, unit="ms"
    )
    group_share_min_session_timeout_ms: int = integer(
        45_000, "Lowest session time-out a share group may be given.", minimum=1, unit="ms"
    )
    group_share_max_session_timeout_ms: int = integer(
        60_000, "Highest session time-out a share group may be given.", minimum=1, unit="ms"
    )
    group_share_heartbeat_interval_ms: int = integer(
        5_000, "Heartbeat interval of share groups.", minimum=1, unit="ms"
    )
    group_share_min_heartbeat_interval_ms: int = integer(
        5_000, "Lowest heartbeat interval a share group may be given.", minimum=1, unit="ms"
    )
    group_share_max_heartbeat_interval_ms: int = integer(
        15_000, "Highest heartbeat interval a share group may be given.", minimum=1, unit="ms"
    )
    group_share_record_lock_duration_ms: int = integer(
        30_000, "How long a member of a share group keeps a record.", minimum=1, unit="ms"
    )
    group_share_min_record_lock_duration_ms: int = integer(
        15_000, "Shortest lock duration a share group may be given.", minimum=1, unit="ms"
    )
    group_share_max_record_lock_duration_ms: int = integer(
        60_000, "Longest lock duration a share group may be given.", minimum=1, unit="ms"
    )
    group_share_delivery_count_limit: int = integer(
        5, "How often a share group is given a record at most.", minimum=2
    )
    group_share_min_delivery_count_limit: int = integer(
        2, "Lowest delivery limit a share group may be given.", minimum=2
    )
    group_share_max_delivery_count_limit: int = integer(
        10, "Highest delivery limit a share group may be given.", minimum=2
    )
    group_share_partition_max_record_locks: int = integer(
        2_000, "Records of a partition that the members of a share group may hold.", minimum=1
    )
    group_share_min_partition_max_record_locks: int = integer(
        100, "Lowest number of record locks a share group may be given.", minimum=1
    )
    group_share_max_partition_max_record_locks: int = integer(
        4_000, "Highest number of record locks a share group may be given.", minimum=1
    )
    group_share_max_size: int = integer(200, "Members a share group may have.", minimum=1)
    group_share_max_share_sessions: int = integer(
        2_000, "Share sessions this broker keeps.", minimum=1
    )
    errors_deadletterqueue_topic_name_prefix: str = text(
        "dlq.", "How the names of topics for dead letters of share groups begin (KIP-1191)."
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = boolean(
        False, "Whether a share group's topic for dead letters is created when it is missing."
    )
