"""The data directory as DescribeLogDirs shows it: its size, and what each partition takes of it."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Mapping
from typing import NamedTuple

from penstock.config import BrokerConfig
from penstock.services.partitions import Partitions
from penstock.services.topics import Topics

UNKNOWN_BYTES = -1


class PartitionUse(NamedTuple):
    """A partition's files, and how many records of it are not safe yet."""

    partition: int
    size_bytes: int
    lag: int


class LogDir(NamedTuple):
    """One data directory. In memory there is no disk to measure."""

    path: str
    total_bytes: int
    usable_bytes: int


def log_dir(config: BrokerConfig) -> LogDir:
    """The broker's one data directory."""
    if config.memory:
        return LogDir("memory", UNKNOWN_BYTES, UNKNOWN_BYTES)
    path = config.data.resolve()
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return LogDir(str(path), UNKNOWN_BYTES, UNKNOWN_BYTES)
    return LogDir(str(path), usage.total, usage.free)


async def partition_uses(
    topics: Topics, partitions: Partitions, wanted: Mapping[str, Collection[int] | None]
) -> dict[str, list[PartitionUse]]:
    """What the partitions take; None asks for all of a topic. Unknown ones are left out.

    A partition that was never written to has no files and is not opened for this.
    """
    uses: dict[str, list[PartitionUse]] = {}
    for name, indexes in wanted.items():
        topic = topics.find(name)
        if topic is None:
            continue
        rows = []
        for partition in range(topic.partition_count):
            if indexes is not None and partition not in indexes:
                continue
            if not partitions.has_data(topic, partition):
                rows.append(PartitionUse(partition, 0, 0))
                continue
            replica = await partitions.replica(name, partition)
            lag = max(0, replica.log.end_offset - replica.high_watermark)
            rows.append(PartitionUse(partition, replica.log.size_bytes, lag))
        if rows:
            uses[name] = rows
    return uses
