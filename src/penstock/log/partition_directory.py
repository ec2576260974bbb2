"""A partition's directory and its small files: topic id, leader epochs, producer snapshots."""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Sequence

from penstock.log import layout
from penstock.log.epochs import LeaderEpochs
from penstock.log.producer_snapshot import decode_snapshot, encode_snapshot
from penstock.model.producer import ProducerSnapshotEntry
from penstock.runtime.disk import Disk

_KEPT_SNAPSHOTS = 2


class PartitionDirectory:
    """The directory of one partition, by its name in the data directory."""

    __slots__ = ("disk", "name")

    def __init__(self, disk: Disk, name: str) -> None:
        self.disk = disk
        self.name = name

    def __repr__(self) -> str:
        return f"PartitionDirectory({self.name!r})"

    def path(self, name: str) -> str:
        return f"{self.name}/{name}"

    def create(self, topic_id: uuid.UUID) -> None:
        self.disk.make_directory(self.name)
        path = self.path(layout.PARTITION_METADATA)
        self.disk.write_file(path, encode_metadata(topic_id))

    def topic_id(self) -> uuid.UUID | None:
        """The id in `partition.metadata`; None when that is missing or unreadable."""
        return decode_metadata(self._read(layout.PARTITION_METADATA))

    def _read(self, name: str) -> bytes:
        try:
            return self.disk.read_file(self.path(name))
        except FileNotFoundError:
            return b""

    # --- leader epochs ----------------------------------------------------------------------------

    def load_epochs(self) -> LeaderEpochs | None:
        """The reigns in the checkpoint; None when it is damaged, empty when it is missing."""
        data = self._read(layout.LEADER_EPOCHS)
        if not data:
            return LeaderEpochs()
        return LeaderEpochs.from_text(data.decode("ascii", "replace"))

    def save_epochs(self, text: str) -> None:
        self.disk.replace(self.path(layout.LEADER_EPOCHS), text.encode("ascii"))

    # --- producer snapshots -----------------------------------------------------------------------

    def snapshot_offsets(self) -> list[int]:
        """Offsets that have a snapshot, rising."""
        found = [layout.offset_of(name, layout.SNAPSHOT) for name in self.disk.list(self.name)]
        return [offset for offset in found if offset is not None]

    def write_snapshot(
        self, offset: int, entries: Sequence[ProducerSnapshotEntry], keep_below: int
    ) -> str:
        """Write the snapshot of `offset` and remove old ones; its path, to be synced.

        The newest few stay, and the newest at or below `keep_below`: after a crash only that one
        is sure to describe batches that are still there.
        """
        path = self.path(layout.file_name(offset, layout.SNAPSHOT))
        self.disk.write_file(path, encode_snapshot(entries))
        offsets = self.snapshot_offsets()
        needed = max((known for known in offsets if known <= keep_below), default=-1)
        for known in offsets[:-_KEPT_SNAPSHOTS]:
            if known != needed:
                self.remove_snapshot(known)
        return path

    def newest_snapshot(self) -> tuple[int, list[ProducerSnapshotEntry]] | None:
        """The newest readable snapshot; damaged ones on the way are removed."""
        for offset in reversed(self.snapshot_offsets()):
            data = self._read(layout.file_name(offset, layout.SNAPSHOT))
            entries = decode_snapshot(data)
            if entries is not None:
                return offset, entries
            self.remove_snapshot(offset)
        return None

    def remove_snapshot(self, offset: int) -> None:
        self.disk.remove(self.path(layout.file_name(offset, layout.SNAPSHOT)))

    def remove_snapshots(self, *, above: int) -> None:
        for offset in self.snapshot_offsets():
            if offset > above:
                self.remove_snapshot(offset)


def encode_metadata(topic_id: uuid.UUID) -> bytes:
    """`partition.metadata`: Kafka writes ids in URL-safe base64 without padding."""
    text = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode("ascii")
    return f"version: 0\ntopic_id: {text}\n".encode("ascii")


def decode_metadata(data: bytes) -> uuid.UUID | None:
    fields = {}
    for line in data.decode("ascii", "replace").splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    if fields.get("version") != "0":
        return None
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(fields["topic_id"] + "=="))
    except (KeyError, ValueError, binascii.Error):
        return None
