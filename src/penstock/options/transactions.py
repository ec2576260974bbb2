"""Time-outs of transactions and of idempotent producers."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.options.option import DAY_MS, HOUR_MS, MIB, MINUTE_MS, boolean, integer


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class TransactionsOptions:
    """Producers and transactions."""

    transaction_max_timeout_ms: int = integer(
        15 * MINUTE_MS, "Longest time-out a transaction may ask for.", minimum=1, unit="ms"
    )
    transactional_id_expiration_ms: int = integer(
        7 * DAY_MS, "An idle transactional id is forgotten after this time.", minimum=1, unit="ms"
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        10_000,
        "Time between two looks for transactions that ran out of time.",
        minimum=1,
        unit="ms",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        HOUR_MS, "Time between two looks for transactional ids to forget.", minimum=1, unit="ms"
    )
    transaction_partition_verification_enable: bool = boolean(
        True,
        "Refuse transactional records of a partition that is not in a transaction (KIP-890).",
        dynamic=True,
    )
    transaction_state_log_num_partitions: int = integer(
        50, "Partitions of __transaction_state; fixed when the topic is created.", minimum=1
    )
    transaction_state_log_replication_factor: int = integer(
        1, "Replicas of __transaction_state.", minimum=1, maximum=32767
    )
    transaction_state_log_min_isr: int = integer(
        1, "Replicas of __transaction_state that must have a record.", minimum=1
    )
    transaction_state_log_segment_bytes: int = integer(
        100 * MIB, "Segment size of __transaction_state.", minimum=MIB, unit="bytes"
    )
    producer_id_expiration_ms: int = integer(
        DAY_MS,
        "A partition forgets an idle idempotent producer after this time.",
        minimum=1,
        unit="ms",
        dynamic=True,
    )
    producer_id_expiration_check_interval_ms: int = integer(
        10 * MINUTE_MS, "Time between two looks for producers to forget.", minimum=1, unit="ms"
    )
