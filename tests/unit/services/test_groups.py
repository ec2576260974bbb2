"""The group service over a journal: parked requests, durability before answers, restart."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.catalogue.catalogue import GroupRow
from penstock.errors import (
    CoordinatorNotAvailable,
    GroupIdNotFound,
    InvalidGroupId,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMember,
)
from penstock.runtime.clock import ManualClock
from penstock.services.groups import LeaveGroup, Leaver
from support.groups import beat, groups_on, join, joined_alone, settle, sync
from support.journal import MemoryJournal


def run(scenario: Any) -> None:
    asyncio.run(scenario)


def test_two_members_join_sync_and_get_what_the_leader_assigned() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            await joined_alone(groups, "g", "m1")
            second = asyncio.create_task(
                groups.join("g", join(fresh="m2", member_id_required=False))
            )
            await settle()
            assert not second.done()
            with pytest.raises(RebalanceInProgress):
                await groups.heartbeat("g", beat("m1", 1))
            first = await groups.join("g", join("m1"))
            assert (await second).generation == first.generation == 2
            follower = asyncio.create_task(groups.sync("g", sync("m2", 2)))
            await settle()
            leader = await groups.sync("g", sync("m1", 2, m1=b"one", m2=b"two"))
            assert (leader.assignment, (await follower).assignment) == (b"one", b"two")

    run(scenario())


def test_an_assignment_is_answered_only_when_it_is_durable() -> None:
    async def scenario() -> None:
        journal = MemoryJournal()
        async with groups_on(journal, ManualClock()) as groups:
            await groups.join("g", join(fresh="m1", member_id_required=False))
            journal.gate = asyncio.Event()
            synced = asyncio.create_task(groups.sync("g", sync("m1", 1, m1=b"all")))
            await settle()
            assert not synced.done()
            journal.gate.set()
            assert (await synced).assignment == b"all"

    run(scenario())


def test_a_disk_that_refuses_leaves_the_group_as_it_was() -> None:
    async def scenario() -> None:
        journal = MemoryJournal()
        async with groups_on(journal, ManualClock()) as groups:
            await groups.join("g", join(fresh="m1", member_id_required=False))
            journal.fail = True
            with pytest.raises(CoordinatorNotAvailable):
                await groups.sync("g", sync("m1", 1, m1=b"all"))
            journal.fail = False
            assert (await groups.sync("g", sync("m1", 1, m1=b"all"))).assignment == b"all"

    run(scenario())


def test_a_client_that_goes_away_while_its_commit_is_written_does_not_stop_the_write() -> None:
    async def scenario() -> None:
        journal = MemoryJournal()
        async with groups_on(journal, ManualClock()) as groups:
            await groups.join("g", join(fresh="m1", member_id_required=False))
            journal.gate = asyncio.Event()
            synced = asyncio.create_task(groups.sync("g", sync("m1", 1, m1=b"all")))
            await settle()
            synced.cancel()
            journal.gate.set()
            await settle()
            assert groups.describe("g").state == "Stable"

    run(scenario())


def test_groups_survive_a_restart_and_members_go_on() -> None:
    async def scenario() -> None:
        journal, clock = MemoryJournal(), ManualClock()
        async with groups_on(journal, clock) as groups:
            await joined_alone(groups, "g", "m1")
            before = groups.describe("g")
        async with groups_on(journal, clock) as groups:
            assert groups.describe("g") == before
            await groups.heartbeat("g", beat("m1", 1))

    run(scenario())


def test_a_member_that_is_dead_after_a_restart_expires() -> None:
    async def scenario() -> None:
        journal, clock = MemoryJournal(), ManualClock()
        async with groups_on(journal, clock) as groups:
            await joined_alone(groups, "g", "m1")
        async with groups_on(journal, clock) as groups:
            clock.advance(10_001)
            groups._store.timers.run_due()
            await settle()
            assert groups.describe("g").state == "Empty"

    run(scenario())


def test_a_heartbeat_that_arrives_before_the_timer_is_handled_saves_the_member() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with groups_on(MemoryJournal(), clock) as groups:
            await joined_alone(groups, "g", "m1")
            clock.advance(10_001)
            groups._store.timers.run_due()
            await groups.heartbeat("g", beat("m1", 1))
            await settle()
            assert groups.describe("g").state == "Stable"

    run(scenario())


def test_a_request_sent_again_lets_the_older_one_go() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            await joined_alone(groups, "g", "m1")
            lost = asyncio.create_task(groups.join("g", join(fresh="m2", member_id_required=False)))
            await settle()
            again = asyncio.create_task(groups.join("g", join("m2")))
            await settle()
            assert isinstance((await lost).error, RebalanceInProgress)
            await groups.join("g", join("m1"))
            assert (await again).error is None

    run(scenario())


def test_a_group_without_a_name_or_without_existence_is_refused() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            with pytest.raises(InvalidGroupId):
                await groups.join("", join())
            with pytest.raises(UnknownMember):
                await groups.heartbeat("nobody", beat("m", 1))
            with pytest.raises(GroupIdNotFound):
                groups.describe("nobody")
            assert groups.list_groups() == []

    run(scenario())


def test_a_member_id_that_was_given_and_never_used_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        clock = ManualClock()
        async with groups_on(MemoryJournal(), clock) as groups:
            await groups.join("g", join(fresh="m1"))
            assert [g.state for g in groups.list_groups()] == ["Empty"]
            clock.advance(10_001)
            groups._store.timers.run_due()
            await settle()
            assert groups.list_groups() == []
            assert len(groups._store._lanes) == 0

    run(scenario())


def test_listing_filters_by_state_and_type_in_any_case() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            await joined_alone(groups, "stable", "m1")
            await joined_alone(groups, "empty", "m1")
            await groups.leave("empty", LeaveGroup((Leaver("m1"),)))
            assert [g.group_id for g in groups.list_groups(states=["STABLE"])] == ["stable"]
            assert [g.group_id for g in groups.list_groups(states=["empty"])] == ["empty"]
            assert len(groups.list_groups(types=["Classic"])) == 2
            assert groups.list_groups(types=["consumer"]) == []

    run(scenario())


def test_only_a_group_without_members_is_deleted_and_it_stays_deleted() -> None:
    async def scenario() -> None:
        journal, clock = MemoryJournal(), ManualClock()
        async with groups_on(journal, clock) as groups:
            await joined_alone(groups, "g", "m1")
            with pytest.raises(NonEmptyGroup):
                await groups.delete("g")
            await groups.leave("g", LeaveGroup((Leaver("m1"),)))
            await groups.delete("g")
            with pytest.raises(GroupIdNotFound):
                await groups.delete("g")
        async with groups_on(journal, clock) as groups:
            assert groups.list_groups() == []

    run(scenario())


class Table:
    def __init__(self) -> None:
        self.rows: dict[str, GroupRow] = {}
        self.writes = 0

    async def put_groups(self, rows: Any) -> None:
        self.writes += 1
        self.rows.update((row.group_id, row) for row in rows)

    async def delete_groups(self, group_ids: Any) -> None:
        for group_id in group_ids:
            self.rows.pop(group_id, None)

    async def keep_groups(self, group_ids: Any) -> None:
        self.rows = {
            group_id: self.rows[group_id] for group_id in group_ids if group_id in self.rows
        }


def test_the_catalogue_shows_groups_without_a_write_for_each_heartbeat() -> None:
    async def scenario() -> None:
        table, clock = Table(), ManualClock()
        async with groups_on(MemoryJournal(), clock, table=table, node_id=7) as groups:
            await joined_alone(groups, "g", "m1")
            for _ in range(100):
                await groups.heartbeat("g", beat("m1", 1))
        row = table.rows["g"]
        assert (row.coordinator_id, row.state, row.generation_id) == (7, "Stable", 1)
        assert (row.protocol_type, row.leader_id) == ("consumer", "m1")
        assert row.last_heartbeat_ms == clock.now_ms()
        assert table.writes == 1

    run(scenario())


def test_the_catalogue_forgets_groups_that_went_just_before_a_crash() -> None:
    async def scenario() -> None:
        table = Table()
        table.rows["ghost"] = GroupRow("ghost", 1, "Stable", "consumer", 1, "m", 0, 0)
        async with groups_on(MemoryJournal(), ManualClock(), table=table):
            assert table.rows == {}

    run(scenario())


def test_a_group_that_has_only_given_out_an_id_can_be_deleted() -> None:
    async def scenario() -> None:
        async with groups_on(MemoryJournal(), ManualClock()) as groups:
            await groups.join("g", join(fresh="m1"))
            await groups.delete("g")
            assert groups.list_groups() == []

    run(scenario())
