"""What one connection, and all together, may ask of the broker."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.options.option import INT_MAX, MIB, MINUTE_MS, integer, long


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class NetworkOptions:
    """Connections and limits."""

    socket_request_max_bytes: int = integer(
        100 * MIB,
        "Largest request accepted; a larger one closes the connection before it is read.",
        minimum=1,
        unit="bytes",
    )
    socket_listen_backlog_size: int = integer(
        512, "Connections that may wait to be accepted.", minimum=1
    )
    max_connections: int = integer(INT_MAX, "Connections open at once.", minimum=0, dynamic=True)
    max_connections_per_ip: int = integer(
        INT_MAX, "Connections open at once from one address.", minimum=0, dynamic=True
    )
    connections_max_idle_ms: int = long(
        10 * MINUTE_MS, "A connection that says nothing this long is closed.", minimum=1, unit="ms"
    )
    queued_max_requests: int = integer(
        500,
        "Requests of one connection that may wait for their answer before it is read no further.",
        minimum=1,
    )
    queued_max_request_bytes: int = long(
        512 * MIB,
        "Bytes of requests in memory, over all connections, before reading pauses.",
        minimum=1,
        unit="bytes",
    )
    queued_max_response_bytes: int = long(
        256 * MIB,
        "Bytes of answers that slow readers may leave unread, over all of them, before Fetch "
        "answers with little at a time.",
        minimum=1,
        unit="bytes",
    )
    fetch_max_bytes: int = integer(
        55 * MIB,
        "Most bytes in one answer to Fetch, whatever the client asks.",
        minimum=1024,
        unit="bytes",
    )
    max_incremental_fetch_session_cache_slots: int = integer(
        1000, "Fetch sessions remembered (KIP-227).", minimum=0
    )
    max_request_partition_size_limit: int = integer(
        2000, "Most partitions in one answer to DescribeTopicPartitions.", minimum=1
    )
    quota_window_num: int = integer(11, "Samples kept to measure a quota.", minimum=1)
    quota_window_size_seconds: int = integer(
        1, "Length of one sample of a quota.", minimum=1, unit="seconds"
    )
    shutdown_timeout_ms: int = integer(
        30_000, "How long a clean stop waits for requests under way.", minimum=0, unit="ms"
    )
