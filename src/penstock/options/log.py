"""Segments, retention, compaction and timestamps. Most are defaults of a topic setting, named by
`topic=`; a topic can have its own."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.options.option import (
    DAY_MS,
    HOUR_MS,
    LONG_MAX,
    MIB,
    MINUTE_MS,
    boolean,
    double,
    integer,
    long,
    names,
    text,
)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class LogOptions:
    """The log."""

    log_segment_bytes: int = integer(
        1024 * MIB,
        "A segment file is closed at this size.",
        minimum=MIB,
        unit="bytes",
        dynamic=True,
        topic="segment.bytes",
    )
    log_roll_ms: int = long(
        7 * DAY_MS,
        "A segment file is closed at this age.",
        minimum=1,
        unit="ms",
        dynamic=True,
        topic="segment.ms",
    )
    log_roll_jitter_ms: int = long(
        0,
        "Random part taken off log.roll.ms, so that segments do not all close at once.",
        minimum=0,
        unit="ms",
        dynamic=True,
        topic="segment.jitter.ms",
    )
    log_index_interval_bytes: int = integer(
        4096,
        "Bytes of log between two entries of the index.",
        minimum=0,
        unit="bytes",
        dynamic=True,
        topic="index.interval.bytes",
    )
    log_index_size_max_bytes: int = integer(
        10 * MIB,
        "Largest size of an index file.",
        minimum=4,
        unit="bytes",
        dynamic=True,
        topic="segment.index.bytes",
    )
    log_cleanup_policy: tuple[str, ...] = names(
        ("delete",),
        "delete old segments, compact them by key, or both.",
        choices=("delete", "compact"),
        dynamic=True,
        topic="cleanup.policy",
    )
    log_retention_ms: int = long(
        7 * DAY_MS,
        "Records older than this may be deleted; -1 keeps them.",
        minimum=-1,
        unit="ms",
        dynamic=True,
        topic="retention.ms",
    )
    log_retention_bytes: int = long(
        -1,
        "A partition larger than this loses its oldest segments; -1 is no limit.",
        minimum=-1,
        unit="bytes",
        dynamic=True,
        topic="retention.bytes",
    )
    log_retention_check_interval_ms: int = long(
        5 * MINUTE_MS, "Time between two looks for segments to delete.", minimum=1, unit="ms"
    )
    log_initial_task_delay_ms: int = long(
        30_000, "Pause after the start before background work begins.", minimum=0, unit="ms"
    )
    log_segment_delete_delay_ms: int = long(
        MINUTE_MS,
        "Time between renaming a deleted file and removing it.",
        minimum=0,
        unit="ms",
        dynamic=True,
        topic="file.delete.delay.ms",
    )
    log_cleaner_enable: bool = boolean(True, "Whether compaction runs.")
    log_cleaner_backoff_ms: int = long(
        15_000,
        "Pause of the compaction when there is nothing to do.",
        minimum=0,
        unit="ms",
        dynamic=True,
    )
    log_cleaner_min_cleanable_ratio: float = double(
        0.5,
        "Share of uncompacted bytes at which compaction starts.",
        minimum=0.0,
        maximum=1.0,
        dynamic=True,
        topic="min.cleanable.dirty.ratio",
    )
    log_cleaner_min_compaction_lag_ms: int = long(
        0,
        "A record stays uncompacted at least this long.",
        minimum=0,
        unit="ms",
        dynamic=True,
        topic="min.compaction.lag.ms",
    )
    log_cleaner_max_compaction_lag_ms: int = long(
        LONG_MAX,
        "A record stays uncompacted at most this long.",
        minimum=1,
        unit="ms",
        dynamic=True,
        topic="max.compaction.lag.ms",
    )
    log_cleaner_delete_retention_ms: int = long(
        DAY_MS,
        "A tombstone can be read at least this long.",
        minimum=0,
        unit="ms",
        dynamic=True,
        topic="delete.retention.ms",
    )
    log_message_timestamp_type: str = text(
        "CreateTime",
        "Whose clock stamps records: the producer's or the broker's.",
        choices=("CreateTime", "LogAppendTime"),
        dynamic=True,
        topic="message.timestamp.type",
    )
    log_message_timestamp_before_max_ms: int = long(
        LONG_MAX,
        "How far a record's timestamp may lie in the past.",
        minimum=0,
        unit="ms",
        dynamic=True,
        topic="message.timestamp.before.max.ms",
    )
    log_message_timestamp_after_max_ms: int = long(
        HOUR_MS,
        "How far a record's timestamp may lie in the future.",
        minimum=0,
        unit="ms",
        dynamic=True,
        topic="message.timestamp.after.max.ms",
    )
    log_flush_offset_checkpoint_interval_ms: int = integer(
        10_000,  # Kafka: a minute. What lies above the points is scanned after a crash.
        "Time between two writings of the recovery points.",
        minimum=1,
        unit="ms",
    )
    log_open_files_max: int = integer(
        1024, "Segment files kept open at once, over all partitions.", minimum=16
    )
    log_flush_threads: int = integer(
        8, "Files that are synced to disk at the same time.", minimum=1, maximum=64
    )
