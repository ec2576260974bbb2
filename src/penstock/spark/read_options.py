"""Everything a read can be told, checked together before anything runs.

Names, precedence and refusals are those of Spark's Kafka connector; docs/spark.md has the table.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from penstock.spark.cluster import Cluster, shared_cluster
from penstock.spark.errors import OptionError
from penstock.spark.fetching import FETCH_BYTES, MAX_WAIT_MS, FetchSettings
from penstock.spark.options import (
    Bound,
    Connect,
    Options,
    Subscription,
    bound,
    choice,
    connect_options,
    duration_ms,
    flag,
    isolation,
    number,
    optional_number,
    subscription,
)
from penstock.spark.shaping import Shape, shape_of

log = logging.getLogger(__name__)
_ONLY_STREAMS = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "maxTriggerDelay",
    "commitGroup",
    "ignoreDeletedTopics",
)


class ReadOptions(NamedTuple):
    """What a reader was told."""

    connect: Connect
    wanted: Subscription
    start: Bound
    end: Bound
    when_none_later: str
    fetch: FetchSettings
    check_crcs: bool
    min_partitions: int | None
    max_records: int | None
    max_offsets: int | None
    max_bytes: int | None
    min_offsets: int | None
    max_delay_s: float
    metadata_ttl_s: float
    group: str | None
    commit_group: str | None
    ignore_deleted_topics: bool
    shape: Shape

    @property
    def cluster(self) -> Cluster:
        return shared_cluster(*self.connect)

    @property
    def isolation(self) -> int:
        return self.fetch.isolation

    @property
    def fail_on_data_loss(self) -> bool:
        return self.fetch.fail_on_data_loss

    @property
    def is_queue(self) -> bool:
        return self.wanted.strategy == "queue"


def read_options(options: Options, *, streaming: bool) -> ReadOptions:
    """Check all of them together; batch and stream differ in defaults and in what they refuse."""
    start = bound(options, "starting", "latest" if streaming else "earliest")
    end = bound(options, "ending", "latest")
    _check_bounds(options, start, end, streaming)
    commit_group = options.get("commitGroup")
    group = options.get("kafka.group.id") or commit_group
    if start.kind == "group" and not group:
        raise OptionError("startingOffsets=group needs kafka.group.id or commitGroup")
    most, least = (
        optional_number(options, name) for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger")
    )
    if most is not None and least is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger {least} is above maxOffsetsPerTrigger {most}")
    wanted = subscription(options)
    ttl_ms = number(options, "partition.metadata.cache.ttl.ms", -1, least=-1)
    return ReadOptions(
        connect=connect_options(options),
        wanted=wanted,
        start=start,
        end=end,
        when_none_later=choice(
            options, "startingOffsetsByTimestampStrategy", "error", ("error", "latest")
        ),
        fetch=_fetch_settings(options, wanted),
        check_crcs=flag(options, "kafka.check.crcs", True),
        min_partitions=optional_number(options, "minPartitions"),
        max_records=optional_number(options, "maxRecordsPerPartition"),
        max_offsets=most,
        max_bytes=optional_number(options, "maxBytesPerTrigger"),
        min_offsets=least,
        max_delay_s=duration_ms(options, "maxTriggerDelay", 15 * 60_000) / 1000,
        metadata_ttl_s=max(0, ttl_ms) / 1000,
        group=group,
        commit_group=commit_group,
        ignore_deleted_topics=flag(options, "ignoreDeletedTopics", False),
        shape=shape_of(options),
    )


def _fetch_settings(options: Options, wanted: Subscription) -> FetchSettings:
    sizes = [
        optional_number(options, f"kafka.{name}") or FETCH_BYTES
        for name in ("fetch.max.bytes", "max.partition.fetch.bytes")
    ]
    return FetchSettings(
        isolation=isolation(options),
        # What consumers of a queue have settled the broker gives back; that is no accident.
        fail_on_data_loss=flag(options, "failOnDataLoss", wanted.strategy != "queue"),
        poll_timeout_s=number(options, "kafkaConsumer.pollTimeoutMs", 120_000, least=1) / 1000,
        fetch_bytes=min(sizes),
        min_bytes=number(options, "kafka.fetch.min.bytes", 1),
        max_wait_ms=number(options, "kafka.fetch.max.wait.ms", MAX_WAIT_MS),
        rack=options.get("kafka.client.rack", ""),
    )


def _check_bounds(options: Options, start: Bound, end: Bound, streaming: bool) -> None:
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if options.get(name) is not None:
                raise OptionError(f"{name} is not valid in a streaming query")
        return
    for name in _ONLY_STREAMS:
        if options.get(name) is not None:
            log.warning("%s does nothing in a batch query", name)
    if start.kind == "latest":
        raise OptionError("startingOffsets=latest is not valid in a batch query")
    if start.kind == "offsets" and any(offset == -1 for _, offset in start.offsets):
        raise OptionError("startingOffsets -1 (latest) is not valid in a batch query")
    if end.kind == "earliest":
        raise OptionError("endingOffsets=earliest is not valid in a batch query")
    if end.kind == "group":
        raise OptionError("endingOffsets=group is not valid")
    if end.kind == "offsets" and any(offset == -2 for _, offset in end.offsets):
        raise OptionError("endingOffsets -2 (earliest) is not valid in a batch query")
