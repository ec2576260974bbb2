"""The classic group machine, decision by decision."""

from __future__ import annotations

import pytest

from penstock.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from penstock.machines.decision import AnswerJoin, AnswerSync, Arm, Parked, Timer, TimerKind
from penstock.machines.group import check_commit
from penstock.machines.group_commands import (
    GroupLimits,
    Heartbeat,
    LeaveGroup,
    Leaver,
    TimerFired,
)
from penstock.machines.group_state import Group, GroupState
from penstock.model.offsets_topic import GroupStored
from support.groups import Bench, join, subscription, sync


def fired(kind: TimerKind, member_id: str = "") -> TimerFired:
    return TimerFired(Timer(kind, member_id))


def test_a_new_member_is_told_its_id_and_must_come_back_with_it() -> None:
    bench = Bench()
    reply = bench.do(join(fresh="m1"))
    assert isinstance(reply.error, MemberIdRequired)
    assert reply.member_id == "m1"
    assert bench.do(join("m1")) == Parked("m1", "join")
    assert bench.answers(AnswerJoin)["m1"].generation == 1


def test_a_group_of_one_completes_at_once_and_its_member_leads() -> None:
    bench = Bench()
    bench.add("m1")
    reply = bench.answers(AnswerJoin)["m1"]
    assert (reply.leader, reply.protocol, reply.protocol_type) == ("m1", "range", "consumer")
    assert [m.member_id for m in reply.members] == ["m1"]
    assert bench.group.state is GroupState.COMPLETING_REBALANCE


def test_the_leaders_sync_makes_the_generation_stable_and_answers_everybody() -> None:
    bench = Bench()
    bench.stable("m1", "m2")
    assert bench.group.state is GroupState.STABLE
    assert bench.answers(AnswerSync)["m2"].assignment == b"for m2"
    stored = [r for r in bench.last.records if isinstance(r, GroupStored)]
    assert len(stored) == 1


def test_a_second_member_waits_until_the_first_has_joined_again() -> None:
    bench = Bench()
    bench.stable("m1")
    assert bench.do(join(fresh="m2", member_id_required=False)) == Parked("m2", "join")
    assert bench.group.state is GroupState.PREPARING_REBALANCE
    assert isinstance(bench.do(Heartbeat("m1", None, 1)), RebalanceInProgress)
    bench.do(join("m1"))
    answers = bench.answers(AnswerJoin)
    assert set(answers) == {"m1", "m2"}
    assert answers["m2"].members == ()
    assert [m.member_id for m in answers["m1"].members] == ["m1", "m2"]
    assert bench.group.generation == 2


def test_a_heartbeat_of_an_old_generation_is_refused() -> None:
    bench = Bench()
    bench.stable("m1")
    with pytest.raises(IllegalGeneration):
        bench.do(Heartbeat("m1", None, 7))
    with pytest.raises(UnknownMember):
        bench.do(Heartbeat("stranger", None, 1))


def test_a_heartbeat_changes_nothing_but_the_session_timer() -> None:
    bench = Bench()
    bench.stable("m1")
    assert bench.do(Heartbeat("m1", None, 1)) is None
    assert bench.last.records == []
    assert bench.last.effects == [Arm(Timer(TimerKind.SESSION, "m1"), 10_000)]


def test_a_silent_member_is_removed_and_the_others_rebalance() -> None:
    bench = Bench()
    bench.stable("m1", "m2")
    bench.do(fired(TimerKind.SESSION, "m2"))
    assert list(bench.group.members) == ["m1"]
    assert bench.group.state is GroupState.PREPARING_REBALANCE


def test_a_member_that_waits_for_the_rebalance_is_not_silent() -> None:
    bench = Bench()
    bench.stable("m1", "m2")
    bench.add("m3")
    bench.do(join("m1"))
    bench.do(fired(TimerKind.SESSION, "m1"))
    assert "m1" in bench.group.members


def test_members_that_do_not_join_in_time_are_left_behind() -> None:
    bench = Bench()
    bench.stable("m1", "m2")
    bench.add("m3")
    bench.do(fired(TimerKind.JOIN))
    assert list(bench.group.members) == ["m3"]
    assert bench.answers(AnswerJoin)["m3"].leader == "m3"


def test_members_that_never_ask_for_their_assignment_are_removed() -> None:
    bench = Bench()
    bench.stable("m1")
    bench.add("m2")
    bench.do(join("m1"))
    generation = bench.group.generation
    bench.do(sync("m2", generation))
    bench.do(fired(TimerKind.SYNC))
    assert list(bench.group.members) == ["m2"]
    assert isinstance(bench.answers(AnswerSync)["m2"].error, RebalanceInProgress)


def test_the_last_member_that_leaves_empties_the_group_durably() -> None:
    bench = Bench()
    bench.stable("m1")
    reply = bench.do(LeaveGroup((Leaver("m1"),)))
    assert reply.members == ((Leaver("m1"), None),)
    assert bench.group.state is GroupState.EMPTY
    assert bench.group.generation == 2
    assert bench.group.protocol_type == "consumer"
    assert any(isinstance(r, GroupStored) for r in bench.last.records)


def test_leaving_reports_each_member_that_is_unknown() -> None:
    bench = Bench()
    bench.stable("m1")
    reply = bench.do(LeaveGroup((Leaver("nobody"), Leaver("m1"))))
    assert isinstance(reply.members[0][1], UnknownMember)
    assert reply.members[1][1] is None


def test_an_operator_removes_a_static_member_by_its_instance_id() -> None:
    bench = Bench()
    bench.add("m1", instance_id="i1")
    reply = bench.do(LeaveGroup((Leaver("", "i1"),)))
    assert reply.members[0][1] is None
    assert not bench.group.members


def test_the_protocol_with_most_votes_among_those_all_support_wins() -> None:
    bench = Bench()
    data = subscription("t")
    bench.add("m1", protocols=(("range", data), ("roundrobin", data)))
    bench.do(sync("m1", 1, m1=b""))
    bench.add("m2", protocols=(("roundrobin", data), ("range", data)))
    bench.do(join("m1", protocols=(("range", data), ("roundrobin", data))))
    bench.do(sync("m1", bench.group.generation, m1=b"", m2=b""))
    bench.add("m3", protocols=(("sticky", data), ("roundrobin", data), ("range", data)))
    bench.do(join("m1", protocols=(("range", data), ("roundrobin", data))))
    bench.do(join("m2", protocols=(("roundrobin", data), ("range", data))))
    assert bench.group.protocol == "roundrobin"


def test_a_member_without_a_common_protocol_is_refused() -> None:
    bench = Bench()
    bench.stable("m1")
    with pytest.raises(InconsistentGroupProtocol):
        bench.do(join(fresh="m2", protocols=(("sticky", b""),)))
    with pytest.raises(InconsistentGroupProtocol):
        bench.do(join(fresh="m2", protocol_type="connect"))


def test_a_session_timeout_out_of_bounds_is_refused() -> None:
    with pytest.raises(InvalidSessionTimeout):
        Bench().do(join(fresh="m1", session_timeout_ms=10))


def test_a_full_group_turns_newcomers_away_but_keeps_its_members() -> None:
    bench = Bench(GroupLimits(max_size=1))
    bench.stable("m1")
    reply = bench.do(join(fresh="m2", member_id_required=False))
    assert isinstance(reply.error, GroupMaxSizeReached)
    bench.do(join("m1"))
    assert bench.group.state is GroupState.COMPLETING_REBALANCE


def test_a_follower_that_asks_again_without_news_gets_the_same_generation() -> None:
    bench = Bench()
    bench.stable("m1", "m2")
    generation = bench.group.generation
    reply = bench.do(join("m2"))
    assert (reply.generation, reply.leader) == (generation, "m1")
    assert bench.group.state is GroupState.STABLE


def test_the_leader_of_a_stable_group_starts_a_rebalance_by_joining_again() -> None:
    bench = Bench()
    bench.stable("m1", "m2")
    bench.do(join("m1"))
    assert bench.group.state is GroupState.PREPARING_REBALANCE


def test_a_follower_with_another_subscription_starts_a_rebalance() -> None:
    bench = Bench()
    bench.stable("m1", "m2")
    bench.do(join("m2", protocols=(("range", subscription("other")),)))
    assert bench.group.state is GroupState.PREPARING_REBALANCE


def test_a_sync_during_a_new_rebalance_sends_the_member_back_to_join() -> None:
    bench = Bench()
    bench.stable("m1")
    bench.add("m2")
    with pytest.raises(RebalanceInProgress):
        bench.do(sync("m1", 1))


def test_a_sync_with_another_protocol_is_refused() -> None:
    bench = Bench()
    bench.add("m1")
    with pytest.raises(InconsistentGroupProtocol):
        bench.do(sync("m1", 1)._replace(protocol="sticky"))


def test_a_new_group_waits_for_more_members_while_they_keep_coming() -> None:
    bench = Bench(GroupLimits(initial_rebalance_delay_ms=3_000))
    bench.add("m1")
    assert bench.group.state is GroupState.PREPARING_REBALANCE
    bench.now_ms += 2_000
    bench.add("m2")
    bench.now_ms += 1_000
    bench.do(fired(TimerKind.JOIN))
    assert bench.group.state is GroupState.PREPARING_REBALANCE
    bench.now_ms += 3_000
    bench.do(fired(TimerKind.JOIN))
    assert set(bench.answers(AnswerJoin)) == {"m1", "m2"}


def test_an_id_that_is_never_used_is_withdrawn_and_unblocks_the_rebalance() -> None:
    bench = Bench()
    bench.stable("m1")
    bench.do(join(fresh="ghost"))
    bench.add("m2")
    bench.do(join("m1"))
    assert bench.group.state is GroupState.PREPARING_REBALANCE
    bench.do(fired(TimerKind.SESSION, "ghost"))
    assert bench.group.state is GroupState.COMPLETING_REBALANCE


# --- static members (KIP-345) ---------------------------------------------------------------------


def stable_static(bench: Bench) -> None:
    bench.add("a", instance_id="i-a")
    bench.do(sync("a", 1, a=b"A"))


def test_a_static_member_that_returns_keeps_its_assignment_without_a_rebalance() -> None:
    bench = Bench()
    stable_static(bench)
    reply = bench.do(join(fresh="b", instance_id="i-a"))
    assert bench.group.state is GroupState.STABLE
    assert (reply.generation, reply.leader, reply.skip_assignment) == (1, "b", True)
    assert bench.do(sync("b", 1)).assignment == b"A"
    assert any(isinstance(r, GroupStored) for r in bench.last.records) is False


def test_an_old_client_that_returns_as_static_leader_is_not_told_to_assign() -> None:
    bench = Bench()
    stable_static(bench)
    reply = bench.do(join(fresh="b", instance_id="i-a", can_skip_assignment=False))
    assert reply.leader == "a"
    assert reply.members == ()


def test_the_old_id_of_a_static_member_is_fenced() -> None:
    bench = Bench()
    stable_static(bench)
    bench.do(join(fresh="b", instance_id="i-a"))
    with pytest.raises(FencedInstanceId):
        bench.do(Heartbeat("a", "i-a", 1))
    with pytest.raises(UnknownMember):
        bench.do(Heartbeat("a", None, 1))


def test_a_static_member_that_returns_with_other_topics_starts_a_rebalance() -> None:
    bench = Bench()
    stable_static(bench)
    reply = bench.do(
        join(fresh="b", instance_id="i-a", protocols=(("range", subscription("new")),))
    )
    assert reply == Parked("b", "join")
    assert bench.group.generation == 2


def test_a_static_member_replaced_during_a_rebalance_fences_the_parked_request() -> None:
    bench = Bench()
    bench.stable("m1")
    bench.add("a", instance_id="i-a")
    bench.do(join(fresh="b", instance_id="i-a"))
    assert isinstance(bench.answers(AnswerJoin)["a"].error, FencedInstanceId)
    assert set(bench.group.members) == {"m1", "b"}


def test_a_static_member_that_is_late_keeps_its_place() -> None:
    bench = Bench()
    stable_static(bench)
    bench.add("m2")
    bench.do(fired(TimerKind.JOIN))
    assert set(bench.group.members) == {"a", "m2"}
    assert bench.group.leader == "m2"


# --- commits --------------------------------------------------------------------------------------


def test_anybody_may_commit_to_an_empty_group() -> None:
    assert check_commit(Group("g"), "", None, -1) is None


def test_only_members_of_this_generation_may_commit() -> None:
    bench = Bench()
    bench.stable("m1")
    member = check_commit(bench.group, "m1", None, 1)
    assert member is not None
    assert member.member_id == "m1"
    with pytest.raises(IllegalGeneration):
        check_commit(bench.group, "m1", None, 0)
    with pytest.raises(UnknownMember):
        check_commit(bench.group, "", None, -1)
    assert check_commit(bench.group, "", None, -1, transactional=True) is None


def test_a_commit_between_join_and_sync_is_refused() -> None:
    bench = Bench()
    bench.add("m1")
    with pytest.raises(RebalanceInProgress):
        check_commit(bench.group, "m1", None, 1)


# --- replay ---------------------------------------------------------------------------------------


def test_replaying_the_stored_record_gives_the_same_group() -> None:
    bench = Bench()
    bench.stable("m1", "m2")
    replayed = Group("g")
    replayed.apply(GroupStored("g", bench.group.as_stored()))
    assert replayed.as_stored() == bench.group.as_stored()
    assert replayed.state is GroupState.STABLE
