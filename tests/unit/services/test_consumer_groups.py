"""KIP-848 groups over a journal: joining, reconciling, leaving, failing, restart, migration."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRegularExpression,
    InvalidRequest,
    NonEmptyGroup,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMember,
    UnreleasedInstanceId,
    UnsupportedAssignor,
    UnsupportedVersion,
)
from penstock.machines.consumer_group_steps import ConsumerGroupLimits
from penstock.model import consumer_protocol
from penstock.model.fields import FieldWriter
from penstock.runtime.clock import ManualClock
from penstock.services.group_config import ConsumerGroupsConfig, GroupsConfig
from penstock.services.group_offsets import Commit, PartitionCommit
from penstock.services.groups import Groups, LeaveGroup, Leaver
from support.groups import (
    Consumer,
    TopicBook,
    beat,
    consumer_beat,
    converge,
    groups_on,
    join,
    joined_alone,
    settle,
    sync,
)
from support.journal import MemoryJournal


def run(scenario: Any) -> None:
    asyncio.run(scenario)


def commit(member_id: str, epoch: int, offset: int = 1) -> Commit:
    return Commit("g", member_id, None, epoch, [PartitionCommit("orders", 0, offset)])


def test_the_first_member_gets_every_partition_at_once() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            alone = Consumer(groups, "m1")
            reply = await alone.beat()
            assert (reply.member_epoch, reply.heartbeat_interval_ms) == (1, 5_000)
            assert alone.partitions == [0, 1, 2, 3]
            assert (await alone.beat(owned=None)).assignment is None
            assert groups.consumers.describe("g").state == "Stable"

    run(scenario())


def test_a_partition_is_given_to_another_only_after_it_was_given_back() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            first, second = Consumer(groups, "m1"), Consumer(groups, "m2")
            await first.beat()
            await second.beat()
            assert second.partitions == []
            reply = await first.beat(owned=first.owned)  # told to give up, has not done so yet
            assert reply.assignment is not None
            await second.beat()
            assert second.partitions == []
            await first.beat()  # says that it owns only what it was left
            await second.beat()
            assert (len(first.partitions), len(second.partitions)) == (2, 2)
            assert sorted(first.partitions + second.partitions) == [0, 1, 2, 3]
            await converge(first, second)
            assert first.epoch == second.epoch == 2

    run(scenario())


def test_a_member_that_leaves_leaves_its_partitions_to_the_others() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            first, second = Consumer(groups, "m1"), Consumer(groups, "m2")
            await converge(first, second)
            await second.leave()
            await converge(first)
            assert first.partitions == [0, 1, 2, 3]
            await first.leave()
            assert [(g.state, g.group_type) for g in groups.list_groups()] == [
                ("Empty", "consumer")
            ]

    run(scenario())


def test_a_silent_member_is_removed_after_its_session() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with groups_on(MemoryJournal(), clock) as groups:
            first, second = Consumer(groups, "m1"), Consumer(groups, "m2")
            await converge(first, second)
            clock.advance(30_000)
            await first.beat()
            clock.advance(20_000)
            groups._store.timers.run_due()
            await settle()
            await converge(first)
            assert first.partitions == [0, 1, 2, 3]
            with pytest.raises(UnknownMember):
                await second.beat()

    run(scenario())


def test_a_member_that_does_not_give_back_in_time_is_removed() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with groups_on(MemoryJournal(), clock) as groups:
            first, second = Consumer(groups, "m1"), Consumer(groups, "m2")
            await first.beat()
            await second.beat()
            all_of_it = dict(first.owned)
            for _ in range(4):
                clock.advance(20_000)
                if "m1" in {m.member_id for m in groups.consumers.describe("g").members}:
                    first.owned = all_of_it
                    await first.beat(owned=all_of_it)
                await second.beat()
                groups._store.timers.run_due()
                await settle()
            with pytest.raises(UnknownMember):
                await first.beat()
            await converge(second)
            assert second.partitions == [0, 1, 2, 3]

    run(scenario())


def test_a_member_in_another_epoch_is_fenced_unless_it_missed_one_answer() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            first, second = Consumer(groups, "m1"), Consumer(groups, "m2")
            await converge(first, second)
            with pytest.raises(FencedMemberEpoch):
                await first.beat(member_epoch=9)
            # The answer with epoch 2 was lost: it comes with 1 and a part of what it has.
            previous = groups._store.lane("g").consumer.current("m2").previous_epoch  # type: ignore[union-attr]
            reply = await second.beat(member_epoch=max(previous, 1), owned={})
            assert reply.member_epoch == 2
            with pytest.raises(FencedMemberEpoch):
                await second.beat(member_epoch=1, owned=dict.fromkeys(first.owned, (0, 1, 2, 3)))

    run(scenario())


def test_a_member_may_always_start_again_from_nothing() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            member = Consumer(groups, "m1")
            await member.beat()
            reply = await groups.consumers.heartbeat("g", consumer_beat("m1"))
            assert reply.member_epoch == 1
            assert reply.assignment is not None
            assert sorted(p for ps in reply.assignment.values() for p in ps) == [0, 1, 2, 3]

    run(scenario())


def test_more_partitions_and_new_topics_reach_the_members() -> None:
    async def scenario() -> None:
        topics = TopicBook(orders=2)
        async with groups_on(MemoryJournal(), ManualClock(), topics=topics) as groups:
            member = Consumer(groups, "m1", topic_names=("orders", "later"))
            await member.beat()
            assert member.partitions == [0, 1]
            topics.put("orders", 5)
            await converge(member, rounds=2)
            assert member.partitions == [0, 1, 2, 3, 4]
            topics.put("later", 1)
            await converge(member, rounds=2)
            assert len(member.owned) == 2
            await topics.remove("orders")
            await converge(member, rounds=3)
            assert member.partitions == [0]
            assert groups.consumers.describe("g").state == "Stable"

    run(scenario())


def test_a_pattern_follows_topics_as_they_come_and_go_but_never_internal_ones() -> None:
    async def scenario() -> None:
        topics = TopicBook(**{"orders-eu": 1, "other": 1, "__consumer_offsets": 50})
        async with groups_on(MemoryJournal(), ManualClock(), topics=topics) as groups:
            member = Consumer(groups, "m1", topic_names=None, topic_regex="orders-.*|__.*")
            await member.beat()
            assert len(member.owned) == 1
            topics.put("orders-us", 2)
            await converge(member, rounds=2)
            assert len(member.owned) == 2
            await topics.remove("orders-eu")
            await converge(member, rounds=3)
            assert len(member.owned) == 1
            await member.beat(topic_regex="", topic_names=("other",))
            await converge(member, rounds=2)
            shown = groups.consumers.describe("g").members[0]
            assert (shown.topic_regex, shown.topic_names) == (None, ("other",))
            assert [topic.name for topic in shown.assignment] == ["other"]

    run(scenario())


def test_what_no_member_may_say_is_refused() -> None:
    async def scenario() -> None:
        config = GroupsConfig(consumer=ConsumerGroupsConfig(ConsumerGroupLimits(max_size=1)))
        async with groups_on(MemoryJournal(), ManualClock(), config) as groups:
            heartbeat = groups.consumers.heartbeat
            with pytest.raises(InvalidRegularExpression):
                await heartbeat("g", consumer_beat("m", topic_regex="(a"))
            with pytest.raises(UnsupportedAssignor):
                await heartbeat("g", consumer_beat("m", server_assignor="sticky"))
            with pytest.raises(InvalidRequest):
                await heartbeat("g", consumer_beat("m", topic_names=None))
            with pytest.raises(InvalidRequest):
                await heartbeat("g", consumer_beat("m", rebalance_timeout_ms=-1))
            with pytest.raises(InvalidRequest):
                await heartbeat("g", consumer_beat("", 0))
            with pytest.raises(InvalidRequest):
                await heartbeat("g", consumer_beat("m", -3))
            with pytest.raises(GroupIdNotFound):
                await heartbeat("g", consumer_beat("m", 4))
            assert groups.list_groups() == []
            await heartbeat("g", consumer_beat("m"))
            with pytest.raises(GroupMaxSizeReached):
                await heartbeat("g", consumer_beat("m2"))

    run(scenario())


def test_the_assignor_that_most_members_ask_for_is_used() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            first = Consumer(groups, "m1", server_assignor="range")
            second = Consumer(groups, "m2")
            await converge(first, second)
            assert groups.consumers.describe("g").assignor == "range"
            assert (first.partitions, second.partitions) == ([0, 1], [2, 3])

    run(scenario())


# --- static members -------------------------------------------------------------------------------


def test_a_static_member_that_says_it_will_be_back_keeps_its_partitions() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            other = Consumer(groups, "m2")
            first = Consumer(groups, "m1", instance_id="i")
            await converge(first, other)
            had = first.partitions
            with pytest.raises(UnreleasedInstanceId):
                await Consumer(groups, "thief", instance_id="i").beat()
            leaving = consumer_beat("m1", -2, instance_id="i")
            assert (await groups.consumers.heartbeat("g", leaving)).member_epoch == -2
            await converge(other)
            again = Consumer(groups, "m1-reborn", instance_id="i")
            await again.beat()
            assert again.partitions == had
            with pytest.raises(FencedInstanceId):
                await groups.consumers.heartbeat("g", consumer_beat("m1", 2, instance_id="i"))

    run(scenario())


def test_a_static_member_that_does_not_come_back_expires() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with groups_on(MemoryJournal(), clock) as groups:
            await Consumer(groups, "m1", instance_id="i").beat()
            await groups.consumers.heartbeat("g", consumer_beat("m1", -2, instance_id="i"))
            clock.advance(45_001)
            groups._store.timers.run_due()
            await settle()
            assert groups.list_groups()[0].state == "Empty"

    run(scenario())


# --- commits and restart --------------------------------------------------------------------------


def test_members_commit_and_read_under_their_epoch() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            member = Consumer(groups, "m1")
            await member.beat()
            await groups.offsets.commit(commit("m1", member.epoch))
            with pytest.raises(StaleMemberEpoch):
                await groups.offsets.commit(commit("m1", member.epoch + 1))
            with pytest.raises(UnknownMember):
                await groups.offsets.commit(commit("", -1))
            with pytest.raises(UnsupportedVersion):
                await groups.offsets.commit(commit("m1", member.epoch)._replace(knows_epochs=False))
            groups.offsets.check_fetch("g", "m1", member.epoch)
            groups.offsets.check_fetch("g", None, -1)
            with pytest.raises(StaleMemberEpoch):
                groups.offsets.check_fetch("g", "m1", 99)
            with pytest.raises(UnknownMember):
                groups.offsets.check_fetch("g", "nobody", 1)

    run(scenario())


def test_a_member_that_has_to_give_back_is_shown_with_what_it_still_has() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            first, second = Consumer(groups, "m1"), Consumer(groups, "m2")
            await first.beat()
            await second.beat()
            await first.beat()  # it is told to give two back
            assert len(first.partitions) == 2
            (described, _) = groups.consumers.describe("g").members
            assert [topic.partitions for topic in described.assignment] == [(0, 1, 2, 3)]
            await first.beat()  # it did
            (described, _) = groups.consumers.describe("g").members
            assert [list(topic.partitions) for topic in described.assignment] == [first.partitions]

    run(scenario())


def test_a_member_that_gives_back_and_unsubscribes_is_told_at_once_to_give_back_all() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            first, second = Consumer(groups, "m1"), Consumer(groups, "m2")
            await first.beat()
            await second.beat()
            await first.beat()
            reply = await first.beat(owned=None, topic_names=())
            assert reply.assignment == {}
            await converge(first, second)
            assert (first.partitions, second.partitions) == ([], [0, 1, 2, 3])

    run(scenario())


def test_a_commit_that_crosses_a_rebalance_counts_for_what_the_member_kept() -> None:
    async def scenario() -> None:
        journal, clock, topics = MemoryJournal(), ManualClock(), TopicBook(orders=4)
        async with groups_on(journal, clock, topics=topics) as groups:
            first, second = Consumer(groups, "m1"), Consumer(groups, "m2")
            await first.beat()
            before = first.epoch
            await second.beat()
            await converge(first, second)
            kept, got = first.partitions[0], second.partitions[0]
            assert before < first.epoch
        async with groups_on(journal, clock, topics=topics) as groups:  # since when is remembered

            def cross(member: str, *partitions: int) -> Commit:
                commits = [PartitionCommit("orders", index, 5) for index in partitions]
                return commit(member, before)._replace(partitions=commits)

            await groups.offsets.commit(cross("m1", kept))
            for refused in (cross("m1", got), cross("m1", kept, got), cross("m2", got)):
                with pytest.raises(StaleMemberEpoch):
                    await groups.offsets.commit(refused)
            with pytest.raises(StaleMemberEpoch):  # reading is another matter
                groups.offsets.check_fetch("g", "m1", before)

    run(scenario())


def test_groups_survive_a_restart_and_members_go_on_where_they_were() -> None:
    async def scenario() -> None:
        journal, clock, topics = MemoryJournal(), ManualClock(), TopicBook(orders=4)
        async with groups_on(journal, clock, topics=topics) as groups:
            first, second = Consumer(groups, "m1"), Consumer(groups, "m2")
            await converge(first, second)
            before = groups.consumers.describe("g")
        async with groups_on(journal, clock, topics=topics) as groups:
            assert groups.consumers.describe("g") == before
            first.groups = second.groups = groups
            epochs = (first.epoch, second.epoch)
            await converge(first, second, rounds=2)
            assert (first.epoch, second.epoch) == epochs
            clock.advance(45_001)
            groups._store.timers.run_due()
            await settle()
            assert groups.list_groups()[0].state == "Empty"

    run(scenario())


def test_a_deleted_group_stays_deleted() -> None:
    async def scenario() -> None:
        journal, clock = MemoryJournal(), ManualClock()
        async with groups_on(journal, clock) as groups:
            member = Consumer(groups, "m1", topic_regex="or.*")
            await member.beat()
            await groups.offsets.commit(commit("m1", 1))
            with pytest.raises(NonEmptyGroup):
                await groups.delete("g")
            await member.leave()
            await groups.delete("g")
            assert groups.list_groups() == []
        async with groups_on(journal, clock) as groups:
            assert groups.list_groups() == []

    run(scenario())


# --- changing the protocol ------------------------------------------------------------------------


def cooperative(*topics: str, owned: dict[str, tuple[int, ...]] | None = None) -> Any:
    """A subscription of version 1, which says what the member owns."""
    writer = FieldWriter().i16(1).strings(topics).blob(None)
    writer.array(tuple((owned or {}).items()), lambda fields, t: fields.string(t[0]).i32s(t[1]))
    return (("cooperative-sticky", writer.done()),)


def assigned(data: bytes) -> list[int]:
    return sorted(p for _, ps in consumer_protocol.read_assignment(data) for p in ps)


async def classic_step(groups: Groups, member_id: str, owned: list[int]) -> tuple[int, list[int]]:
    """A classic consumer joins and syncs; returns its generation and what it is to read."""
    protocols = cooperative("orders", owned={"orders": tuple(owned)} if owned else None)
    joined = await groups.join("g", join(member_id, protocols=protocols))
    assert joined.error is None
    synced = await groups.sync("g", sync(member_id, joined.generation))
    assert synced.error is None
    return joined.generation, assigned(synced.assignment)


async def stable_classic(groups: Groups) -> None:
    first = await groups.join(
        "g", join(fresh="c1", member_id_required=False, protocols=cooperative("orders"))
    )
    everything = consumer_protocol.write_assignment(1, {"orders": (0, 1, 2, 3)})
    await groups.sync("g", sync("c1", first.generation, c1=everything))


def test_an_empty_group_becomes_the_other_kind_and_keeps_its_offsets() -> None:
    async def scenario() -> None:
        journal, clock, topics = MemoryJournal(), ManualClock(), TopicBook(orders=4)
        async with groups_on(journal, clock, topics=topics) as groups:
            await joined_alone(groups, "g", "c1")
            await groups.offsets.commit(commit("c1", 1, 7))
            await groups.leave("g", LeaveGroup((Leaver("c1"),)))
            member = Consumer(groups, "m1")
            await member.beat()
            assert groups.list_groups()[0].group_type == "consumer"
            await member.leave()
        async with groups_on(journal, clock, topics=topics) as groups:
            await joined_alone(groups, "g", "c2")
            assert groups.list_groups()[0].group_type == "classic"
            assert [v.offset for _, v in groups.offsets.fetch_all("g", require_stable=True)] == [7]  # type: ignore[union-attr]
            assert groups.describe("g").state == "Stable"
        async with groups_on(journal, clock, topics=topics) as groups:
            assert groups.describe("g").state == "Stable"

    run(scenario())


def test_a_live_group_is_upgraded_and_downgraded_with_its_members() -> None:
    async def scenario() -> None:
        journal, clock, topics = MemoryJournal(), ManualClock(), TopicBook(orders=4)
        async with groups_on(journal, clock, topics=topics) as groups:
            await stable_classic(groups)
            modern = Consumer(groups, "m1")
            await modern.beat()
            assert groups.consumers.describe("g").epoch == 2
            assert modern.partitions == []
            with pytest.raises(RebalanceInProgress):
                await groups.heartbeat("g", beat("c1", 1))
            _, left = await classic_step(groups, "c1", [0, 1, 2, 3])  # told what it may keep
            assert len(left) == 2
            generation, left = await classic_step(groups, "c1", left)  # says what it kept
            await groups.heartbeat("g", beat("c1", generation))
            await converge(modern, rounds=2)
            assert sorted(modern.partitions + left) == [0, 1, 2, 3]
            assert [m.is_classic for m in groups.consumers.describe("g").members] == [True, False]
        async with groups_on(journal, clock, topics=topics) as groups:
            await groups.heartbeat("g", beat("c1", generation))
            modern.groups = groups
            await modern.leave()
            assert groups.describe("g").state == "PreparingRebalance"
            with pytest.raises(RebalanceInProgress):  # and not that its generation is over
                await groups.heartbeat("g", beat("c1", generation))
            joined = await groups.join("g", join("c1", protocols=cooperative("orders")))
            assert joined.leader == "c1"
            everything = consumer_protocol.write_assignment(1, {"orders": (0, 1, 2, 3)})
            await groups.sync("g", sync("c1", joined.generation, c1=everything))
        async with groups_on(journal, clock, topics=topics) as groups:
            assert groups.describe("g").state == "Stable"

    run(scenario())


def test_a_classic_member_that_never_joins_again_is_removed_from_an_upgraded_group() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with groups_on(MemoryJournal(), clock) as groups:
            await stable_classic(groups)
            modern = Consumer(groups, "m1")
            await modern.beat()
            for _ in range(8):
                if "c1" not in {m.member_id for m in groups.consumers.describe("g").members}:
                    break
                with pytest.raises(RebalanceInProgress):
                    await groups.heartbeat("g", beat("c1", 1))
                clock.advance(9_000)
                await modern.beat()
                groups._store.timers.run_due()
                await settle()
            await converge(modern, rounds=2)
            assert modern.partitions == [0, 1, 2, 3]

    run(scenario())


def test_an_upgrade_may_be_forbidden() -> None:
    async def scenario() -> None:
        config = GroupsConfig(consumer=ConsumerGroupsConfig(migration="disabled"))
        async with groups_on(MemoryJournal(), ManualClock(), config) as groups:
            await stable_classic(groups)
            with pytest.raises(GroupIdNotFound):
                await Consumer(groups, "m1").beat()

    run(scenario())
