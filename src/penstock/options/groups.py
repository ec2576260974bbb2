"""Time-outs and sizes of consumer groups, classic and KIP-848."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.options.option import INT_MAX, MINUTE_MS, integer, names, text


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
        ("classic", "consumer"),
        "Group protocols served; consumer is KIP-848.",
        choices=("classic", "consumer"),
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
