"""Compaction's work on files: one pass to learn each key's last offset, one to write what stays.

What stays of a record (KIP-58, KIP-98, KIP-534):

    no key                          dropped: it cannot be superseded, so it cannot be kept either
    a later record has its key      dropped
    of an aborted transaction       dropped
    a tombstone (no value)          stays until the batch's delete horizon, set when it is first
                                    compacted to `delete.retention.ms` from then
    a transaction's marker          the same, once no batch of the transaction is left
    otherwise                       stays, at its offset

A producer's last batch stays, if need be without records, so that its sequence is not forgotten.
The result is written beside the old segments as `.cleaned`, synced, and renamed to `.swap` when all
of it is there; putting it in place is the log's (`SegmentList.swap`). For a thread, with rests.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.errors import CorruptRecord
from penstock.log import layout
from penstock.log.batch_rewrite import empty_batch, rewrite_batch
from penstock.log.offset_index import MOST_RELATIVE_OFFSET, OffsetIndex
from penstock.log.offset_map import DEFAULT_KEYS, OffsetMap
from penstock.log.pace import Pace
from penstock.log.rebuild import IndexBuilder
from penstock.log.scan import Scan
from penstock.log.seen_transactions import SeenTransactions
from penstock.log.time_index import TimeIndex
from penstock.log.txn_index import TransactionIndex
from penstock.model.batch import DELETE_HORIZON_FLAG, BatchHeader, read_header
from penstock.model.producer import AbortedTransaction
from penstock.model.records import read_records
from penstock.runtime.disk import Disk, File

_WRITE_BYTES = 1 << 20
_RECORDS_A_TICK = 200


class Part(NamedTuple):
    """A segment to be compacted: its base offset, the next one's, and its size."""

    base_offset: int
    next_base_offset: int
    size: int


class CleaningPlan(NamedTuple):
    """Everything that the work needs to know, so that it need not ask the log."""

    directory: str
    parts: Sequence[Part]  # from the log's start to the end of what may be compacted
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    aborted: Sequence[AbortedTransaction]
    last_offsets: Mapping[int, int]  # of the batches to keep for their producers' sake
    most_keys: int = DEFAULT_KEYS


class Cleaned(NamedTuple):
    """One finished `.swap`: the segments it replaces, and what the log should know of it."""

    parts: Sequence[Part]
    size: int
    largest_timestamp: int
    largest_offset: int


class Cleaner:
    """Carries out one plan."""

    def __init__(self, disk: Disk, plan: CleaningPlan, pace: Pace | None = None) -> None:
        self._disk = disk
        self._plan = plan
        self._pace = pace or Pace()
        self._map = OffsetMap(plan.most_keys)
        self.end_offset = plan.first_dirty_offset  # everything below it is compacted by this plan

    def run(self) -> Iterator[Cleaned]:
        """Do it, one `.swap` after the other. Raises `CorruptRecord` at damage.

        The caller puts each in place before it asks for the next: a tombstone may not begin its
        last days before the values that it deletes are gone.
        """
        self._learn()
        todo = deque(part for part in self._plan.parts if part.base_offset < self.end_offset)
        transactions = SeenTransactions(self._plan.aborted)
        while todo:
            base_offset = todo[0].base_offset
            try:
                cleaned = self._clean(todo, transactions)
            except BaseException:
                remove_unfinished(self._disk, self._plan.directory, base_offset)
                raise
            yield cleaned

    # --- the first pass ---------------------------------------------------------------------------

    def _learn(self) -> None:
        transactions = SeenTransactions(self._plan.aborted)
        first_dirty = self._plan.first_dirty_offset
        for part in self._plan.parts:
            if part.next_base_offset <= first_dirty:
                continue
            for header, batch in self._batches(part):
                if header.last_offset < first_dirty:
                    continue
                if not self._map.has_room_for(header.record_count):
                    return
                if header.is_control:
                    transactions.meet_marker(header, batch)
                elif not transactions.meet_data(header):
                    self._learn_keys(batch, first_dirty)
                self._map.latest_offset = header.last_offset
                self.end_offset = header.next_offset
            self._map.latest_offset = part.next_base_offset - 1
            self.end_offset = part.next_base_offset

    def _learn_keys(self, batch: memoryview, first_dirty: int) -> None:
        for count, record in enumerate(read_records(batch)):
            if record.key is not None and record.offset >= first_dirty:
                self._map.put(record.key, record.offset)
            if count % _RECORDS_A_TICK == 0:
                self._pace.tick()

    def _batches(self, part: Part) -> Iterator[tuple[BatchHeader, memoryview]]:
        path = f"{self._plan.directory}/{layout.file_name(part.base_offset, layout.LOG)}"
        file = self._disk.open(path)
        try:
            scan = Scan(file, position=0, end=part.size, next_offset=part.base_offset)
            for _, header in scan:
                yield header, scan.batch(header)
                self._pace.tick()
            if scan.position != part.size:
                where = self._disk.describe(path)
                raise CorruptRecord(
                    f"{where} at position {scan.position}: unsound batch, not compacted"
                )
        finally:
            file.close()

    # --- the second pass --------------------------------------------------------------------------

    def _clean(self, todo: deque[Part], transactions: SeenTransactions) -> Cleaned:
        """Write what stays of the first parts, as many as fit into one segment."""
        base_offset = todo[0].base_offset
        stem = f"{self._plan.directory}/{layout.file_name(base_offset, '')}"
        transactions.kept = []
        path = stem + layout.LOG + layout.CLEANED
        self._disk.remove(path)
        file = self._disk.open(path, create=True)
        done: list[Part] = []
        try:
            output = _Output(file, base_offset)
            while todo and (not done or self._fits(todo[0], output, base_offset)):
                part = todo.popleft()
                for header, batch in self._batches(part):
                    kept = self._kept(header, batch, transactions)
                    if kept is not None:
                        output.add(kept)
                done.append(part)
            output.flush()
            file.sync()
        finally:
            file.close()
        self._finish(stem, output, transactions.kept)
        largest_timestamp, largest_offset = output.times.last_entry() or (-1, base_offset)
        return Cleaned(done, output.position, largest_timestamp, largest_offset)

    def _fits(self, part: Part, output: _Output, base_offset: int) -> bool:
        """Whether the part could go into the same segment even if all of it stays."""
        if part.next_base_offset - base_offset > MOST_RELATIVE_OFFSET:
            return False
        return output.position + part.size <= self._plan.segment_bytes

    def _kept(
        self, header: BatchHeader, batch: memoryview, transactions: SeenTransactions
    ) -> bytes | memoryview | None:
        """What is to be written of a batch; None for nothing."""
        has_horizon = bool(header.attributes & DELETE_HORIZON_FLAG)
        horizon_passed = has_horizon and header.base_timestamp <= self._plan.now_ms
        horizon = self._plan.now_ms + self._plan.delete_retention_ms
        if header.is_control:
            spent = transactions.meet_marker(header, batch)
            if spent and (horizon_passed or not header.record_count):
                return self._without_records(header)
            if spent and not has_horizon:
                return rewrite_batch(
                    batch,
                    header,
                    range(header.base_offset, header.next_offset),
                    max_timestamp=header.max_timestamp,
                    delete_horizon_ms=horizon,
                )
            return batch
        if transactions.meet_data(header) and header.last_offset <= self._map.latest_offset:
            return self._without_records(header)
        offsets, tombstones, max_timestamp = self._sift(batch, horizon_passed)
        if not offsets:
            return self._without_records(header)
        sets_horizon = tombstones and not has_horizon
        if len(offsets) == header.record_count and not sets_horizon:
            return batch
        if header.is_log_append_time:
            max_timestamp = header.max_timestamp
        return rewrite_batch(
            batch,
            header,
            offsets,
            max_timestamp=max_timestamp,
            delete_horizon_ms=horizon if sets_horizon else None,
        )

    def _sift(self, batch: memoryview, horizon_passed: bool) -> tuple[set[int], bool, int]:
        """(offsets that stay, whether there is a tombstone among them, their last timestamp)."""
        offsets: set[int] = set()
        tombstones = False
        newest = -1
        latest, last_offset = self._map.latest_offset, self._map.last_offset
        for count, record in enumerate(read_records(batch)):
            if count % _RECORDS_A_TICK == 0:
                self._pace.tick()
            if record.offset <= latest:
                if record.key is None or last_offset(record.key) > record.offset:
                    continue
                if record.value is None:
                    if horizon_passed:
                        continue
                    tombstones = True
            offsets.add(record.offset)
            newest = max(newest, record.timestamp)
        return offsets, tombstones, newest

    def _without_records(self, header: BatchHeader) -> bytes | None:
        if self._plan.last_offsets.get(header.producer_id) == header.last_offset:
            return empty_batch(header)
        return None

    # --- the files --------------------------------------------------------------------------------

    def _finish(self, stem: str, output: _Output, aborted: list[AbortedTransaction]) -> None:
        """Indexes, then the names: the `.log` last, because its `.swap` says that all is there."""
        output.builder.finish()
        files = [
            (layout.OFFSET_INDEX, output.offsets.to_bytes()),
            (layout.TIME_INDEX, output.times.to_bytes()),
        ]
        if aborted:
            index = TransactionIndex()
            for entry in aborted:
                index.add(entry)
            files.append((layout.TXN_INDEX, index.to_bytes()))
        for suffix, data in files:
            self._disk.replace(stem + suffix + layout.SWAP, data)
        self._disk.rename(stem + layout.LOG + layout.CLEANED, stem + layout.LOG + layout.SWAP)
        self._disk.sync_directory(self._plan.directory)


def remove_unfinished(disk: Disk, directory: str, base_offset: int) -> None:
    """Throw away the work on one new segment. The `.log` first: without it the rest is refuse."""
    stem = f"{directory}/{layout.file_name(base_offset, '')}"
    disk.remove(stem + layout.LOG + layout.SWAP)
    disk.remove(stem + layout.LOG + layout.CLEANED)
    for suffix in layout.SEGMENT_SUFFIXES:
        disk.remove(stem + suffix + layout.SWAP)


class _Output:
    """The segment being written: bytes gathered into large writes, indexed as they come."""

    def __init__(self, file: File, base_offset: int) -> None:
        self._file = file
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self.position = 0
        self.offsets = OffsetIndex(base_offset)
        self.times = TimeIndex(base_offset)
        self.builder = IndexBuilder(self.offsets, self.times)

    def add(self, batch: bytes | memoryview) -> None:
        self.builder.add(self.position, read_header(batch))
        self._pending.append(bytes(batch))
        self._pending_bytes += len(batch)
        self.position += len(batch)
        if self._pending_bytes >= _WRITE_BYTES:
            self.flush()

    def flush(self) -> None:
        if self._pending:
            self._file.write(self._pending, self.position - self._pending_bytes)
            self._pending.clear()
            self._pending_bytes = 0
