"""Committing, reading and forgetting offsets.

Commits that arrive for one group while another one is being written are written together: one
append, one sync, whatever their number. A group need not have members to have offsets: consumers
that assign themselves commit with generation -1, and a group that exists only by its offsets is an
empty classic one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from penstock.errors import (
    BrokerError,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnstableOffsetCommit,
)
from penstock.machines import consumer_group_checks, share_group
from penstock.machines import group as classic_group
from penstock.machines.decision import Decision
from penstock.machines.group_state import GroupState
from penstock.machines.offsets import CommitReply, PartitionCommit
from penstock.model import consumer_protocol
from penstock.model.ids import TopicPartition
from penstock.model.offsets_topic import CommittedOffset, GroupStored
from penstock.services.group_config import OffsetLimits
from penstock.services.group_lane import Lane
from penstock.services.group_store import GroupStore

__all__ = ["Commit", "Fetched", "OffsetVerbs", "PartitionCommit"]

_COMMITS_AT_ONCE = 256


class Commit(NamedTuple):
    """A commit of a member, or (generation -1, no member id) of a consumer without a group."""

    group_id: str
    member_id: str
    instance_id: str | None
    generation: int  # or the member's epoch
    partitions: Sequence[PartitionCommit]
    retention_ms: int = -1  # only clients before OffsetCommit v5 say it
    knows_epochs: bool = True  # OffsetCommit since v9


Fetched = CommittedOffset | UnstableOffsetCommit


class OffsetVerbs:
    """What can be done with the offsets of groups."""

    def __init__(self, store: GroupStore, limits: OffsetLimits) -> None:
        self._store = store
        self._limits = limits

    # --- committing -------------------------------------------------------------------------------

    async def commit(self, commit: Commit) -> CommitReply:
        """Commit offsets; returns, for each partition, None or why it was refused."""
        lane = self._store.lane(commit.group_id)
        future: asyncio.Future[CommitReply] = asyncio.get_running_loop().create_future()
        lane.commits.append((commit, future))
        if not lane.flushing:
            lane.flushing = True
            self._store.spawn(self._flush(lane))
        return await future

    async def _flush(self, lane: Lane) -> None:
        lane.users += 1
        try:
            async with lane.lock:
                while lane.commits:
                    batch = lane.commits[:_COMMITS_AT_ONCE]
                    del lane.commits[:_COMMITS_AT_ONCE]
                    await self._flush_batch(lane, batch)
        finally:
            lane.users -= 1
            lane.flushing = False
            self._store.maybe_drop(lane)

    async def _flush_batch(
        self, lane: Lane, batch: Sequence[tuple[Commit, asyncio.Future[CommitReply]]]
    ) -> None:
        now_ms = self._store.clock.now_ms()
        decided: list[tuple[asyncio.Future[CommitReply], Decision]] = []
        records: list[Any] = []
        for commit, future in batch:
            try:
                decision = self._decide(lane, commit, now_ms)
            except BrokerError as refusal:
                _fail(future, refusal)
                continue
            decided.append((future, decision))
            records += decision.records
        try:
            await self._store.persist(lane, records)
        except BrokerError as failure:
            for future, _ in decided:
                _fail(future, failure)
            return
        self._store.settle(lane, records)
        for future, decision in decided:
            if not future.done():
                future.set_result(decision.reply)

    def _decide(self, lane: Lane, commit: Commit, now_ms: int) -> Decision:
        self._check(lane, commit, transactional=False)
        return lane.offsets.commit(
            commit.partitions,
            now_ms,
            max_metadata_bytes=self._limits.max_metadata_bytes,
            retention_ms=commit.retention_ms,
        )

    async def commit_in_transaction(
        self, commit: Commit, *, producer_id: int, producer_epoch: int
    ) -> CommitReply:
        """Commit offsets that count only when the producer's transaction commits.

        The caller has made sure that the transaction is open and includes this group's partition.
        """

        def decide(lane: Lane, now_ms: int) -> Decision:
            try:
                self._check(lane, commit, transactional=True)
            except (GroupIdNotFound, StaleMemberEpoch) as refusal:
                raise IllegalGeneration(str(refusal)) from None  # as TxnOffsetCommit knows it
            return lane.offsets.commit(
                commit.partitions,
                now_ms,
                max_metadata_bytes=self._limits.max_metadata_bytes,
                producer_id=producer_id,
            )

        reply: CommitReply = await self._store.change(
            commit.group_id, decide, producer=(producer_id, producer_epoch)
        )
        return reply

    def _check(self, lane: Lane, commit: Commit, *, transactional: bool) -> None:
        if not lane.exists and commit.generation >= 0:
            raise GroupIdNotFound(f"no group {commit.group_id}")
        if lane.share is not None:
            raise GroupIdNotFound(f"Group {commit.group_id} is a share group: it has no offsets.")
        who = (commit.member_id, commit.instance_id, commit.generation)
        if lane.consumer is not None:
            consumer_group_checks.check_commit(
                lane.consumer,
                *who,
                ((each.topic, each.partition) for each in commit.partitions),
                transactional=transactional,
                knows_epochs=commit.knows_epochs,
            )
            return
        member = classic_group.check_commit(lane.classic, *who, transactional=transactional)
        if member is not None and not transactional:
            self._store.prolong_session(lane, member.member_id, member.session_timeout_ms)

    # --- reading ----------------------------------------------------------------------------------

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> None:
        """Refuse a KIP-848 member that is behind; a group that is unknown has no offsets."""
        lane = self._store.find(group_id)
        if lane is not None and lane.consumer is not None:
            consumer_group_checks.check_fetch(lane.consumer, member_id, member_epoch)

    def fetch(
        self, group_id: str, partitions: Iterable[TopicPartition], *, require_stable: bool
    ) -> list[tuple[TopicPartition, Fetched]]:
        """The committed offset of each partition; offset -1 where there is none."""
        lane = self._store.find(group_id)
        if lane is None:
            return [(partition, CommittedOffset(-1)) for partition in partitions]
        return [
            (partition, lane.offsets.fetch(partition, require_stable=require_stable))
            for partition in partitions
        ]

    def fetch_all(
        self, group_id: str, *, require_stable: bool
    ) -> list[tuple[TopicPartition, Fetched]]:
        """Every committed offset of a group."""
        lane = self._store.find(group_id)
        known = [partition for partition, _ in lane.offsets] if lane is not None else []
        return self.fetch(group_id, known, require_stable=require_stable)

    # --- forgetting -------------------------------------------------------------------------------

    async def delete(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> list[tuple[TopicPartition, BrokerError | None]]:
        """Forget offsets of topics that the group does not read (KIP-496)."""
        if not group_id:
            raise InvalidGroupId("a group needs a name")
        if self._store.find(group_id) is None:
            raise GroupIdNotFound(f"no group {group_id}")
        outcomes: list[tuple[TopicPartition, BrokerError | None]] = []

        def decide(lane: Lane, now_ms: int) -> Decision:
            if lane.has_members and not _knows_what_it_reads(lane):
                raise NonEmptyGroup(f"group {group_id} has members")
            outcomes.clear()
            forgotten: list[TopicPartition] = []
            for partition in partitions:
                if _reads(lane, partition.topic):
                    reads = GroupSubscribedToTopic(f"group {group_id} reads {partition.topic}")
                    outcomes.append((partition, reads))
                else:
                    forgotten.append(partition)
                    outcomes.append((partition, None))
            return lane.offsets.forget(forgotten)

        await self._store.change(group_id, decide)
        return outcomes

    async def forget_topics(self, topics: Collection[str]) -> None:
        """Topics were deleted: what groups had committed in them means nothing any more."""

        def decide(lane: Lane, now_ms: int) -> Decision:
            return lane.offsets.forget(tp for tp, _ in lane.offsets if tp.topic in topics)

        for lane in self._store.existing():
            if any(partition.topic in topics for partition, _ in lane.offsets):
                await self._store.change(lane.group_id, decide)

    async def expire(self) -> None:
        """Forget the offsets whose time is over, and the groups of which nothing is left."""
        for lane in self._store.existing():
            if lane.share is None and (lane.offsets or not lane.has_members):
                await self._store.change(lane.group_id, self._decide_expiry)

    def _decide_expiry(self, lane: Lane, now_ms: int) -> Decision:
        since_state = None
        group, is_classic = lane.classic, lane.consumer is None
        if is_classic and group.protocol_type is not None:
            if group.state is GroupState.EMPTY and group.state_since_ms >= 0:
                since_state = group.state_since_ms
            elif group.state is not GroupState.STABLE or not _knows_what_it_reads(lane):
                return Decision()
        expired = lane.offsets.expire(
            now_ms,
            self._limits.retention_ms,
            lambda value: value.committed_at_ms if since_state is None else since_state,
            lambda topic: _reads(lane, topic),
        )
        records = list(expired.records)
        nothing_left = len(records) == sum(1 for _ in lane.offsets)
        idle = not (lane.has_members or lane.classic.given_ids)
        if nothing_left and idle and not lane.offsets.has_open_transactions:
            records += group_tombstones(lane)
        return Decision(records)


def group_tombstones(lane: Lane) -> list[Any]:
    """The records that make a group without members be forgotten, its offsets apart."""
    if lane.share is not None:
        return list(share_group.tombstones(lane.share))
    if lane.consumer is not None:
        return consumer_group_checks.tombstones(lane.consumer)
    return [GroupStored(lane.group_id, None)] if lane.classic.is_stored else []


def _knows_what_it_reads(lane: Lane) -> bool:
    if lane.consumer is not None:
        return True
    return lane.classic.protocol_type == consumer_protocol.PROTOCOL_TYPE


def _reads(lane: Lane, topic: str) -> bool:
    if lane.consumer is not None:
        return lane.consumer.reads_topic(topic)
    topics = lane.classic.subscribed_topics()
    return topics is None or topic in topics


def _fail(future: asyncio.Future[CommitReply], failure: BrokerError) -> None:
    if not future.done():
        future.set_exception(failure)
