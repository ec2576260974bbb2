"""Bringing a partition's files back to a whole state after the process did not stop cleanly.

Below the recovery point everything is on the medium and is not looked at. From there on every batch
is checked, and the log ends before the first one that is not sound: cut off by the crash, or made
of sectors that never reached the medium. Indexes, leader epochs and the lists of aborted
transactions are put right behind the recovery point; whatever replays the log afterwards fills in
the rest. Sound batches behind the end are not thrown away but set aside in files that end in
`.damaged`, for people to look at.

One case is different. As long as the machine itself has not been restarted, no written page can
have been lost, so an unsound batch with sound ones behind it is damage and not the trace of the
crash. Then what follows may have been acknowledged: it is kept, and the damage is reported.

Works on files alone, in a thread, before anybody reads them.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.log import layout, rebuild
from penstock.log.epochs import LeaderEpochs
from penstock.log.offset_index import OffsetIndex
from penstock.log.partition_directory import PartitionDirectory
from penstock.log.rebuild import IndexBuilder
from penstock.log.scan import Scan
from penstock.log.time_index import TimeIndex
from penstock.log.txn_index import TransactionIndex
from penstock.model.batch import HEADER_BYTES, MAGIC_AT, crc_is_right, read_header
from penstock.runtime.disk import Disk, File

_COPY_BYTES = 4 << 20
_REFUSE = (layout.CLEANED, layout.SWAP, layout.DELETED, ".tmp")
_SEARCH_BYTES = 8 << 20
_MOST_OFFSETS_LOST = 1 << 32  # a larger jump is not the next batch but noise


class Damage(NamedTuple):
    """Something in the files that no crash explains, or that cost data."""

    path: str
    position: int
    what: str

    def __str__(self) -> str:
        return f"{self.path} at position {self.position}: {self.what}"


class Recovered(NamedTuple):
    """What recovery made of one partition."""

    name: str
    end_offset: int
    scanned_bytes: int
    cut_bytes: int
    damages: list[Damage]


def tidy(disk: Disk, name: str) -> list[str]:
    """Finish or undo what was under way in a partition's directory; the names that are left.

    The `.log.swap` of a compaction says that its work is complete: it is put in place of the
    segments whose offsets it holds. Without it, other `.swap` files are unfinished work, and so is
    everything `.cleaned`. What is `.deleted` is on its way out.
    """
    names = disk.list(name)
    complete = [layout.offset_of(entry, layout.LOG + layout.SWAP) for entry in names]
    for base in complete:
        if base is not None:
            _finish_swap(disk, name, base, names)
            names = disk.list(name)
    refuse = [entry for entry in names if entry.endswith(_REFUSE)]
    for entry in refuse:
        disk.remove(f"{name}/{entry}")
    return [entry for entry in names if not entry.endswith(_REFUSE)]


def _finish_swap(disk: Disk, name: str, base: int, names: list[str]) -> None:
    stem = f"{name}/{layout.file_name(base, '')}"
    file = disk.open(stem + layout.LOG + layout.SWAP)
    last_offset = base
    try:
        for _, header in rebuild.walk_headers(file, 0, file.size()):
            last_offset = header.last_offset
    finally:
        file.close()
    for old in base_offsets(names):
        if base <= old <= last_offset:
            for suffix in layout.SEGMENT_SUFFIXES:
                disk.remove(f"{name}/{layout.file_name(old, suffix)}")
    place_swap(disk, stem)
    disk.sync_directory(name)


def place_swap(disk: Disk, stem: str) -> None:
    """Give a compaction's files their final names, the `.log` last. The old ones are gone."""
    for suffix in (layout.TXN_INDEX, layout.TIME_INDEX, layout.OFFSET_INDEX, layout.LOG):
        if disk.exists(stem + suffix + layout.SWAP):
            disk.rename(stem + suffix + layout.SWAP, stem + suffix)


def base_offsets(names: list[str]) -> list[int]:
    """The base offsets of the segments among a directory's names, rising."""
    found = [layout.offset_of(entry, layout.LOG) for entry in names]
    return sorted(offset for offset in found if offset is not None)


class PartitionRecovery:
    """Recovers one partition; used once."""

    def __init__(
        self, disk: Disk, name: str, recovery_point: int, *, page_cache_survived: bool = False
    ) -> None:
        self._disk = disk
        self._directory = PartitionDirectory(disk, name)
        self._recovery_point = recovery_point
        self._page_cache_survived = page_cache_survived
        self._damages: list[Damage] = []
        self._scanned_bytes = 0
        self._cut_bytes = 0
        self._changed = False

    def run(self) -> Recovered:
        name = self._directory.name
        bases = base_offsets(tidy(self._disk, name))
        epochs = self._directory.load_epochs()
        if epochs is None:
            epochs = LeaderEpochs()
        end_offset = 0
        first = max(0, sum(1 for base in bases if base <= self._recovery_point) - 1)
        for at, base in enumerate(bases):
            if at < first:
                continue
            limit = bases[at + 1] if at + 1 < len(bases) else None
            end_offset, whole = self._recover_segment(base, limit, epochs)
            if not whole:
                self._drop_segments(bases[at + 1 :])
                break
        if end_offset < self._recovery_point and bases:
            size = self._disk.size(self._directory.path(layout.file_name(base, layout.LOG)))
            self._note(base, size, f"offsets {end_offset} to {self._recovery_point} are lost")
        epochs.truncate_end(end_offset)
        if epochs.changed:
            self._directory.save_epochs(epochs.to_text())
        self._directory.remove_snapshots(above=min(self._recovery_point, end_offset))
        if self._changed or not bases or bases[-1] >= self._recovery_point:
            self._sync_names()
        return Recovered(name, end_offset, self._scanned_bytes, self._cut_bytes, self._damages)

    def _sync_names(self) -> None:
        """A killed broker may have begun a segment, or the partition, and not synced the names.

        They are there, so nobody would: what is written to those files later would not be safe.
        """
        metadata = self._directory.path(layout.PARTITION_METADATA)
        if self._disk.exists(metadata):
            self._sync(metadata)
        self._disk.sync_directory(self._directory.name)

    def _sync(self, path: str) -> None:
        file = self._disk.open(path)
        try:
            file.sync()
        finally:
            file.close()

    def _note(self, base: int, position: int, what: str) -> None:
        path = self._directory.path(layout.file_name(base, layout.LOG))
        self._damages.append(Damage(self._disk.describe(path), position, what))

    def _drop_segments(self, bases: list[int]) -> None:
        for base in bases:
            path = self._directory.path(layout.file_name(base, layout.LOG))
            size = self._disk.size(path)
            if size:
                self._cut_bytes += size
                self._note(base, 0, f"behind an unsound batch; kept as {path}{layout.DAMAGED}")
                self._disk.rename(path, path + layout.DAMAGED)
            for suffix in layout.SEGMENT_SUFFIXES:
                self._disk.remove(self._directory.path(layout.file_name(base, suffix)))

    def _recover_segment(
        self, base: int, limit: int | None, epochs: LeaderEpochs
    ) -> tuple[int, bool]:
        """(offset behind the last sound batch, whether the file was sound to its end)."""
        stem = self._directory.path(layout.file_name(base, ""))
        file = self._disk.open(stem + layout.LOG)
        try:
            size = file.size()
            position, offset_index, time_index = self._trusted(stem, base, file, size)
            builder = IndexBuilder(offset_index, time_index, position)
            scan = Scan(
                file,
                position=position,
                end=size,
                next_offset=base,
                limit_offset=base + (1 << 31) if limit is None else limit,
                step_over_damage=self._page_cache_survived,
            )
            for at, header in scan:
                builder.add(at, header)
                if header.leader_epoch > epochs.latest:
                    epochs.assign(header.leader_epoch, header.base_offset)
            self._scanned_bytes += scan.position - position
            for at in scan.damaged:
                self._note(base, at, "wrong checksum; the batch is kept but never served")
            if scan.position < size:
                self._cut(base, file, scan.position, size, scan.next_offset)
            if scan.position < size or scan.next_offset > self._recovery_point:
                file.sync()
                self._changed = True
        finally:
            file.close()
        builder.finish()
        self._save(stem, offset_index, time_index)
        return scan.next_offset, scan.position == size

    def _trusted(
        self, stem: str, base: int, file: File, size: int
    ) -> tuple[int, OffsetIndex, TimeIndex]:
        """Where to begin checking, and the indexes up to there.

        The index files may be damaged too: they are believed only if they rise and if the last
        entry below the recovery point names a batch that is there.
        """
        offset_index = OffsetIndex.load(base, self._read(stem + layout.OFFSET_INDEX), size)
        time_index = TimeIndex.load(base, self._read(stem + layout.TIME_INDEX))
        if offset_index is not None and time_index is not None:
            offset_index.truncate(self._recovery_point)
            entry = offset_index.last_entry()
            if entry is not None:
                for position, header in rebuild.walk_headers(file, entry[1], size):
                    if header.last_offset == entry[0]:
                        time_index.truncate(header.base_offset)
                        offset_index.truncate(header.last_offset)
                        return position, offset_index, time_index
                    break
        return 0, OffsetIndex(base), TimeIndex(base)

    def _read(self, path: str) -> bytes:
        try:
            return self._disk.read_file(path)
        except FileNotFoundError:
            return b""

    def _cut(self, base: int, file: File, position: int, size: int, next_offset: int) -> None:
        """End the file at `position`. If there are sound batches behind it, keep a copy of them."""
        self._cut_bytes += size - position
        if _has_sound_batch(file, position, size, next_offset):
            name = layout.file_name(base, f"{layout.LOG}.{position}{layout.DAMAGED}")
            self._copy(file, position, size, self._directory.path(name))
            self._note(base, position, f"unsound batch; it and all behind it is kept in {name}")
        file.truncate(position)

    def _copy(self, file: File, position: int, end: int, path: str) -> None:
        copy = self._disk.open(path, create=True)
        try:
            for start in range(position, end, _COPY_BYTES):
                data = file.read(min(_COPY_BYTES, end - start), start)
                copy.write([data], start - position)
            copy.sync()
        finally:
            copy.close()

    def _save(self, stem: str, offset_index: OffsetIndex, time_index: TimeIndex) -> None:
        self._write(stem + layout.OFFSET_INDEX, offset_index.to_bytes())
        self._write(stem + layout.TIME_INDEX, time_index.to_bytes())
        path = stem + layout.TXN_INDEX
        if self._disk.exists(path):
            aborted = TransactionIndex.load(self._disk.read_file(path))
            aborted.truncate(self._recovery_point)
            self._write(path, aborted.to_bytes())

    def _write(self, path: str, data: bytes) -> None:
        """Write and sync a file, unless the log is untouched and the file what it should be."""
        if not self._changed and self._read(path) == data:
            return
        self._changed = True
        self._disk.write_file(path, data)
        self._sync(path)


def _has_sound_batch(file: File, position: int, end: int, next_offset: int) -> bool:
    """Whether some batch behind the unsound one at `position` is sound.

    Torn writes leave none, or only ones that nobody was told about; but if it was the medium that
    failed, they were acknowledged. They are looked for wherever a batch's magic byte may be.
    """
    data = bytes(file.read(min(_SEARCH_BYTES, end - position), position))
    at = data.find(2, MAGIC_AT + 1)
    while 0 <= at <= len(data) - HEADER_BYTES:
        header = read_header(data, at - MAGIC_AT)
        start = position + at - MAGIC_AT
        if (
            next_offset <= header.base_offset < next_offset + _MOST_OFFSETS_LOST
            and HEADER_BYTES <= header.size <= end - start
            and crc_is_right(file.read(header.size, start), 0, header)
        ):
            return True
        at = data.find(2, at + 1)
    return False
