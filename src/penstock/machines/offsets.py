"""The offsets that one group has committed, and those it will have if a transaction commits.

A commit inside a transaction waits beside the others until the marker of the transaction comes
(`TransactionEnded`): COMMIT makes it real, ABORT drops it. Until then readers who ask for stable
offsets are told to come back (`UnstableOffsetCommit`). The order of commits is their order in the
log: each has a position, and a marker never puts an older commit over a newer one.

Whether somebody may commit is the group's business (`group.check_commit`); this machine only
checks what is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.errors import BrokerError, OffsetMetadataTooLarge, UnstableOffsetCommit
from penstock.machines.decision import Decision
from penstock.model.ids import NO_TIMESTAMP, TopicPartition
from penstock.model.offsets_topic import CommittedOffset, OffsetCommitted

NO_OFFSET = CommittedOffset(-1)


class PartitionCommit(NamedTuple):
    """One partition of a commit request."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


class OffsetStaged(NamedTuple):
    """A commit inside a transaction that has not ended."""

    producer_id: int
    commit: OffsetCommitted


class TransactionEnded(NamedTuple):
    """The marker of a producer's transaction reached the partition of this group."""

    producer_id: int
    committed: bool


OffsetRecord = OffsetCommitted | OffsetStaged | TransactionEnded

CommitReply = tuple[tuple[TopicPartition, BrokerError | None], ...]


class _Placed(NamedTuple):
    value: CommittedOffset
    position: int  # in the order of the log


class GroupOffsets:
    """Committed and pending offsets of one group. Only `apply` changes it."""

    __slots__ = ("_committed", "_pending", "group_id")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._committed: dict[TopicPartition, _Placed] = {}
        self._pending: dict[int, dict[TopicPartition, _Placed]] = {}

    def __repr__(self) -> str:
        return (
            f"<GroupOffsets {self.group_id} {len(self._committed)} committed, "
            f"{len(self._pending)} open transactions>"
        )

    # --- questions --------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._committed or any(self._pending.values()))

    def __iter__(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        return ((partition, placed.value) for partition, placed in self._committed.items())

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        placed = self._committed.get(partition)
        return None if placed is None else placed.value

    def fetch(
        self, partition: TopicPartition, *, require_stable: bool = False
    ) -> CommittedOffset | UnstableOffsetCommit:
        """What OffsetFetch answers: -1 when nothing is committed, never an unknown group."""
        if require_stable and self.is_pending(partition):
            return UnstableOffsetCommit(f"a transaction is about to commit {partition}")
        return self.get(partition) or NO_OFFSET

    def is_pending(self, partition: TopicPartition) -> bool:
        return any(partition in offsets for offsets in self._pending.values())

    @property
    def has_open_transactions(self) -> bool:
        return any(self._pending.values())

    # --- decisions --------------------------------------------------------------------------------

    def commit(
        self,
        commits: Sequence[PartitionCommit],
        now_ms: int,
        *,
        max_metadata_bytes: int,
        retention_ms: int = -1,
        producer_id: int | None = None,
    ) -> Decision:
        """Commit each partition, except those whose metadata is too long."""
        expires_at_ms = now_ms + retention_ms if retention_ms >= 0 else NO_TIMESTAMP
        records: list[OffsetRecord] = []
        reply: list[tuple[TopicPartition, BrokerError | None]] = []
        for commit in commits:
            partition = TopicPartition(commit.topic, commit.partition)
            metadata = commit.metadata or ""
            # Kafka's limit, whatever it is called, is on characters as Java counts them.
            if len(metadata.encode("utf-16-le", "surrogatepass")) > 2 * max_metadata_bytes:
                too_large = OffsetMetadataTooLarge(f"metadata is over {max_metadata_bytes} long")
                reply.append((partition, too_large))
                continue
            value = CommittedOffset(
                commit.offset, commit.leader_epoch, metadata, now_ms, expires_at_ms
            )
            record = OffsetCommitted(self.group_id, commit.topic, commit.partition, value)
            records.append(record if producer_id is None else OffsetStaged(producer_id, record))
            reply.append((partition, None))
        return Decision(records, reply=tuple(reply))

    def forget(self, partitions: Iterable[TopicPartition]) -> Decision:
        """Tombstones for those of `partitions` that are committed or pending."""
        return Decision(
            [
                OffsetCommitted(self.group_id, partition.topic, partition.partition, None)
                for partition in partitions
                if partition in self._committed or self.is_pending(partition)
            ]
        )

    def forget_all(self) -> Decision:
        known = dict.fromkeys(self._committed)
        for offsets in self._pending.values():
            known.update(dict.fromkeys(offsets))
        return self.forget(known)

    def expire(
        self,
        now_ms: int,
        retention_ms: int,
        since_ms: Callable[[CommittedOffset], int],
        is_read: Callable[[str], bool],
    ) -> Decision:
        """Tombstones for offsets that are past their time and that nobody reads any more.

        `since_ms` says from when an offset's time counts, which depends on the group's state.
        """
        expired = []
        for partition, (value, _) in self._committed.items():
            if is_read(partition.topic) or self.is_pending(partition):
                continue
            due_ms = value.expires_at_ms
            if due_ms == NO_TIMESTAMP:
                due_ms = since_ms(value) + retention_ms
            if now_ms >= due_ms:
                expired.append(partition)
        return self.forget(expired)

    # --- change -----------------------------------------------------------------------------------

    def apply(self, record: OffsetRecord, position: int) -> None:
        match record:
            case OffsetCommitted(_, topic, partition, value):
                self._commit(TopicPartition(topic, partition), value, position)
            case OffsetStaged(producer_id, commit):
                self._stage(producer_id, commit, position)
            case TransactionEnded(producer_id, committed):
                self._end(producer_id, committed)

    def _commit(
        self, partition: TopicPartition, value: CommittedOffset | None, position: int
    ) -> None:
        if value is None:
            self._forget(partition)
        else:
            self._committed[partition] = _Placed(value, position)

    def _stage(self, producer_id: int, commit: OffsetCommitted, position: int) -> None:
        partition = TopicPartition(commit.topic, commit.partition)
        if commit.value is None:
            self._forget(partition)
        else:
            offsets = self._pending.setdefault(producer_id, {})
            offsets[partition] = _Placed(commit.value, position)

    def _forget(self, partition: TopicPartition) -> None:
        self._committed.pop(partition, None)
        for offsets in self._pending.values():
            offsets.pop(partition, None)

    def _end(self, producer_id: int, committed: bool) -> None:
        offsets = self._pending.pop(producer_id, {})
        if not committed:
            return
        for partition, placed in offsets.items():
            newest = self._committed.get(partition)
            if newest is None or newest.position < placed.position:
                self._committed[partition] = placed
