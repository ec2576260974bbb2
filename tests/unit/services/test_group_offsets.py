"""Committed offsets over a journal: commits, transactions, restart, expiry, deletion."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    NonEmptyGroup,
    OffsetMetadataTooLarge,
    UnknownMember,
    UnstableOffsetCommit,
)
from penstock.model.ids import TopicPartition
from penstock.model.offsets_topic import CommittedOffset
from penstock.runtime.clock import ManualClock
from penstock.services.group_config import GroupsConfig, OffsetLimits
from penstock.services.group_offsets import Commit, PartitionCommit
from penstock.services.groups import Groups, LeaveGroup, Leaver
from support.groups import TopicBook, groups_on, join, joined_alone, settle, sync
from support.journal import MemoryJournal

P0 = TopicPartition("orders", 0)


def run(scenario: Any) -> None:
    asyncio.run(scenario)


def commit(
    offset: int,
    *,
    topic: str = "orders",
    group_id: str = "g",
    member_id: str = "",
    generation: int = -1,
    metadata: str | None = None,
) -> Commit:
    partitions = [PartitionCommit(topic, 0, offset, 3, metadata)]
    return Commit(group_id, member_id, None, generation, partitions)


def fetched(groups: Groups, partition: TopicPartition = P0, *, stable: bool = False) -> Any:
    return groups.offsets.fetch("g", [partition], require_stable=stable)[0][1]


def test_a_commit_with_metadata_round_trips_and_survives_a_restart() -> None:
    async def scenario() -> None:
        journal, clock = MemoryJournal(), ManualClock()
        async with groups_on(journal, clock) as groups:
            reply = await groups.offsets.commit(commit(42, metadata="ünter"))
            assert reply == ((P0, None),)
        async with groups_on(journal, clock) as groups:
            assert fetched(groups) == CommittedOffset(42, 3, "ünter", clock.now_ms())
            assert [g.state for g in groups.list_groups()] == ["Empty"]

    run(scenario())


def test_an_unknown_group_has_no_offsets_and_no_error() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            assert fetched(groups) == CommittedOffset(-1)
            assert groups.offsets.fetch_all("g", require_stable=True) == []

    run(scenario())


def test_a_group_with_members_accepts_commits_of_its_generation_only() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            await joined_alone(groups, "g", "m1")
            await groups.offsets.commit(commit(1, member_id="m1", generation=1))
            with pytest.raises(IllegalGeneration):
                await groups.offsets.commit(commit(2, member_id="m1", generation=9))
            with pytest.raises(UnknownMember):
                await groups.offsets.commit(commit(2))
            with pytest.raises(GroupIdNotFound):
                await groups.offsets.commit(commit(2, group_id="x", member_id="m", generation=1))
            assert fetched(groups).offset == 1

    run(scenario())


def test_many_commits_at_once_share_an_append() -> None:
    async def scenario() -> None:
        journal = MemoryJournal()
        async with groups_on(journal, ManualClock()) as groups:
            await asyncio.gather(*(groups.offsets.commit(commit(n)) for n in range(100)))
            assert journal.appends <= 3
            assert fetched(groups).offset == 99

    run(scenario())


def test_a_commit_is_not_seen_before_it_is_durable() -> None:
    async def scenario() -> None:
        journal = MemoryJournal()
        async with groups_on(journal, ManualClock()) as groups:
            journal.gate = asyncio.Event()
            task = asyncio.create_task(groups.offsets.commit(commit(5)))
            await settle()
            assert fetched(groups).offset == -1
            journal.gate.set()
            await task
            assert fetched(groups).offset == 5

    run(scenario())


def test_a_commit_that_cannot_be_written_fails_and_leaves_nothing() -> None:
    async def scenario() -> None:
        journal = MemoryJournal()
        async with groups_on(journal, ManualClock()) as groups:
            journal.fail = True
            with pytest.raises(CoordinatorNotAvailable):
                await groups.offsets.commit(commit(5))
            assert fetched(groups).offset == -1
            assert groups.list_groups() == []

    run(scenario())


def test_metadata_that_is_too_long_is_refused_for_its_partition_alone() -> None:
    async def scenario() -> None:
        config = GroupsConfig(offsets=OffsetLimits(max_metadata_bytes=4))
        async with groups_on(MemoryJournal(), ManualClock(), config) as groups:
            request = commit(1, metadata="12345")
            request = request._replace(
                partitions=[*request.partitions, PartitionCommit("orders", 1, 7, -1, "äöü€")]
            )
            (_, refused), (_, accepted) = await groups.offsets.commit(request)
            assert isinstance(refused, OffsetMetadataTooLarge)
            assert accepted is None

    run(scenario())


# --- transactions ---------------------------------------------------------------------------------


async def staged(groups: Groups, offset: int) -> None:
    await groups.offsets.commit_in_transaction(commit(offset), producer_id=9, producer_epoch=0)


def end(journal: MemoryJournal, groups: Groups, *, committed: bool) -> None:
    partition = journal.partition_for("g")
    journal.mark(partition, 9, commit=committed)
    groups.on_marker(partition, 9, 0, committed)


@pytest.mark.parametrize(("committed", "expected"), [(True, 20), (False, 10)])
@pytest.mark.parametrize("restart_before_marker", [True, False])
def test_offsets_of_a_transaction_count_only_after_its_commit_marker(
    committed: bool, expected: int, restart_before_marker: bool
) -> None:
    async def scenario() -> None:
        journal, clock = MemoryJournal(), ManualClock()
        async with groups_on(journal, clock) as groups:
            await groups.offsets.commit(commit(10))
            await staged(groups, 20)
            assert fetched(groups).offset == 10
            assert isinstance(fetched(groups, stable=True), UnstableOffsetCommit)
            if not restart_before_marker:
                end(journal, groups, committed=committed)
                assert fetched(groups, stable=True).offset == expected
        async with groups_on(journal, clock) as groups:
            if restart_before_marker:
                assert isinstance(fetched(groups, stable=True), UnstableOffsetCommit)
                end(journal, groups, committed=committed)
            assert fetched(groups, stable=True).offset == expected
        async with groups_on(journal, clock) as groups:
            assert fetched(groups, stable=True).offset == expected

    run(scenario())


def test_a_newer_commit_is_not_overwritten_by_an_older_transaction() -> None:
    async def scenario() -> None:
        journal, clock = MemoryJournal(), ManualClock()
        async with groups_on(journal, clock) as groups:
            await staged(groups, 20)
            await groups.offsets.commit(commit(30))
            end(journal, groups, committed=True)
            assert fetched(groups).offset == 30
        async with groups_on(journal, clock) as groups:
            assert fetched(groups).offset == 30

    run(scenario())


def test_a_marker_that_overtakes_the_answer_of_its_commit_is_not_lost() -> None:
    async def scenario() -> None:
        journal = MemoryJournal()
        async with groups_on(journal, ManualClock()) as groups:
            journal.gate = asyncio.Event()
            task = asyncio.create_task(staged(groups, 20))
            await settle()
            end(journal, groups, committed=False)
            journal.gate.set()
            await task
            assert fetched(groups, stable=True).offset == -1

    run(scenario())


def test_a_transactional_commit_of_an_old_generation_is_fenced() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            await joined_alone(groups, "g", "m1")
            zombie = commit(1, member_id="m1", generation=0)
            with pytest.raises(IllegalGeneration):
                await groups.offsets.commit_in_transaction(zombie, producer_id=9, producer_epoch=0)
            await staged(groups, 5)  # old clients do not say who they are

    run(scenario())


# --- forgetting -----------------------------------------------------------------------------------


def test_offsets_of_topics_that_are_read_are_not_deleted() -> None:
    async def scenario() -> None:
        journal, clock = MemoryJournal(), ManualClock()
        async with groups_on(journal, clock) as groups:
            await groups.offsets.commit(commit(1))
            await groups.offsets.commit(commit(1, topic="old"))
            await joined_alone(groups, "g", "m1")
            old = TopicPartition("old", 0)
            (_, refused), (_, deleted) = await groups.offsets.delete("g", [P0, old])
            assert isinstance(refused, GroupSubscribedToTopic)
            assert deleted is None
            assert fetched(groups, old).offset == -1
        async with groups_on(journal, clock) as groups:
            assert fetched(groups, old).offset == -1
            assert fetched(groups).offset == 1

    run(scenario())


def test_offsets_of_a_group_of_another_kind_are_deleted_only_when_it_is_empty() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            await groups.offsets.commit(commit(1))
            await groups.join(
                "g", join(fresh="w", member_id_required=False, protocol_type="connect")
            )
            await groups.sync("g", sync("w", 1, w=b""))
            with pytest.raises(NonEmptyGroup):
                await groups.offsets.delete("g", [P0])
            with pytest.raises(GroupIdNotFound):
                await groups.offsets.delete("nobody", [P0])

    run(scenario())


def test_deleting_a_topic_forgets_its_offsets() -> None:
    async def scenario() -> None:
        journal, clock = MemoryJournal(), ManualClock()
        topics = TopicBook(orders=1, kept=1)
        async with groups_on(journal, clock, topics=topics) as groups:
            await groups.offsets.commit(commit(1))
            await groups.offsets.commit(commit(2, topic="kept"))
            await topics.remove("orders")
        async with groups_on(journal, clock) as groups:
            assert fetched(groups).offset == -1
            assert fetched(groups, TopicPartition("kept", 0)).offset == 2

    run(scenario())


def test_offsets_of_a_group_without_members_expire_with_the_group() -> None:
    async def scenario() -> None:
        journal, clock = MemoryJournal(), ManualClock()
        config = GroupsConfig(offsets=OffsetLimits(retention_ms=1_000))
        async with groups_on(journal, clock, config) as groups:
            await joined_alone(groups, "g", "m1")
            await groups.offsets.commit(commit(1, member_id="m1", generation=1))
            clock.advance(2_000)
            await groups.offsets.expire()
            assert fetched(groups).offset == 1  # it is being read
            await groups.leave("g", LeaveGroup((Leaver("m1"),)))
            await groups.offsets.expire()
            assert fetched(groups).offset == 1  # its time starts when the group becomes empty
            clock.advance(1_000)
            await groups.offsets.expire()
            assert fetched(groups).offset == -1
            assert groups.list_groups() == []
        async with groups_on(journal, clock, config) as groups:
            assert groups.list_groups() == []

    run(scenario())
