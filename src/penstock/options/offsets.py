"""The topic that holds committed offsets, and how long they are kept."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.options.option import MIB, MINUTE_MS, integer, long


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class OffsetsOptions:
    """Committed offsets."""

    offsets_topic_num_partitions: int = integer(
        50, "Partitions of __consumer_offsets; fixed when the topic is created.", minimum=1
    )
    offsets_topic_replication_factor: int = integer(
        1, "Replicas of __consumer_offsets.", minimum=1, maximum=32767
    )
    offsets_topic_segment_bytes: int = integer(
        100 * MIB, "Segment size of __consumer_offsets.", minimum=MIB, unit="bytes"
    )
    offsets_retention_minutes: int = integer(
        10_080,
        "Offsets of a group without members are forgotten after this time.",
        minimum=1,
        unit="minutes",
    )
    offsets_retention_check_interval_ms: int = long(
        10 * MINUTE_MS, "Time between two looks for offsets to forget.", minimum=1, unit="ms"
    )
    offset_metadata_max_bytes: int = integer(
        4096,
        "Longest text kept with a committed offset, in characters despite the name.",
        minimum=0,
        unit="bytes",
    )
