"""The data directory's small text files, in Kafka's formats.

Offset checkpoints hold one offset for each partition:

    0                       version
    2                       count
    orders 0 1500           topic partition offset
    orders 1 1499

`meta.properties` names the cluster and the node; `.kafka_cleanshutdown` says that the last stop was
clean, so that nothing needs to be looked at.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping

from penstock.model.ids import TopicPartition
from penstock.runtime.disk import Disk

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANED_UNTIL = "cleaner-offset-checkpoint"
META_PROPERTIES = "meta.properties"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def decode_offsets(data: bytes) -> dict[TopicPartition, int] | None:
    """The offsets in a checkpoint; None when it is damaged."""
    lines = data.decode("utf-8", "replace").splitlines()
    try:
        if lines[0] != "0" or int(lines[1]) != len(lines) - 2:
            return None
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partition, offset in map(str.split, lines[2:])
        }
    except (IndexError, ValueError):
        return None


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """A checkpoint's offsets. A missing or damaged one reads as empty, which is always safe: the
    log is then recovered from its beginning, or starts where its first segment does."""
    try:
        return decode_offsets(disk.read_file(path)) or {}
    except FileNotFoundError:
        return {}


class Checkpoints:
    """The offset checkpoints of a data directory, in memory and in their files."""

    __slots__ = ("_disk", "_turn", "_written", "cleaned", "recovery_points", "starts", "watermarks")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._turn = threading.Lock()  # a stop may find the thread of the last writing at work
        self.recovery_points: dict[TopicPartition, int] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.watermarks: dict[TopicPartition, int] = {}
        self.cleaned: dict[TopicPartition, int] = {}
        self._written: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"Checkpoints({len(self.recovery_points)} partitions)"

    def load(self) -> None:
        self.recovery_points = read_offsets(self._disk, RECOVERY_POINTS)
        self.starts = read_offsets(self._disk, LOG_STARTS)
        self.watermarks = read_offsets(self._disk, HIGH_WATERMARKS)
        self.cleaned = read_offsets(self._disk, CLEANED_UNTIL)

    def encode(self) -> list[tuple[str, bytes]]:
        """(path, content) of the files that are not up to date, in the order to write them in."""
        files = [
            (LOG_STARTS, encode_offsets(self.starts)),
            (HIGH_WATERMARKS, encode_offsets(self.watermarks)),
            (CLEANED_UNTIL, encode_offsets(self.cleaned)),
            (RECOVERY_POINTS, encode_offsets(self.recovery_points)),
        ]
        return [(path, data) for path, data in files if self._written.get(path) != data]

    def write(self, files: list[tuple[str, bytes]]) -> None:
        """Put encoded checkpoints in place, durably; for a thread."""
        with self._turn:
            for path, data in files:
                self._disk.replace(path, data)
                self._written[path] = data

    def forget(self, key: TopicPartition) -> None:
        """The partition is deleted."""
        for offsets in (self.recovery_points, self.starts, self.watermarks, self.cleaned):
            offsets.pop(key, None)


def encode_properties(properties: Mapping[str, str]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in properties.items()).encode()


def decode_properties(data: bytes) -> dict[str, str]:
    properties = {}
    for line in data.decode("utf-8", "replace").splitlines():
        name, equals, value = line.partition("=")
        if equals and not name.startswith("#"):
            properties[name.strip()] = value.strip()
    return properties


def encode_clean_shutdown(broker_epoch: int = -1) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
