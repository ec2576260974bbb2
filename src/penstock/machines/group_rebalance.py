"""The steps of a classic group's rebalance, shared by everything that can cause one.

Each step works on a draft: it adds records, timers and parked answers, and decides nothing about
the request that led to it.
"""

from __future__ import annotations

from penstock.errors import BrokerError, RebalanceInProgress, UnknownMember
from penstock.machines.decision import (
    AnswerJoin,
    AnswerSync,
    Draft,
    JoinReply,
    SyncReply,
    TimerKind,
)
from penstock.machines.group_commands import GroupLimits
from penstock.machines.group_state import (
    GenerationStarted,
    Group,
    GroupState,
    InitialDelayExtended,
    Member,
    MemberIdWithdrawn,
    MemberLeft,
    RebalanceStarted,
)
from penstock.model.offsets_topic import GroupStored

GroupDraft = Draft[Group]


def rebalance_or_complete(draft: GroupDraft, limits: GroupLimits) -> None:
    """Something changed: start a rebalance, or, if one is under way, see whether it is done."""
    if draft.state.state is GroupState.PREPARING_REBALANCE:
        maybe_complete_join(draft)
    else:
        start_rebalance(draft, limits)


def start_rebalance(draft: GroupDraft, limits: GroupLimits) -> None:
    """Ask every member to join. A new group may wait a while for more members to come."""
    group = draft.state
    if group.state is GroupState.COMPLETING_REBALANCE:
        for member in group.members.values():
            if member.awaits_sync:
                refused = RebalanceInProgress("another rebalance began; join again")
                _answer_sync(draft, member, SyncReply(error=refused))
    draft.disarm(TimerKind.SYNC)
    if group.state is GroupState.EMPTY and limits.initial_rebalance_delay_ms > 0:
        until_ms = draft.now_ms + max(group.rebalance_timeout_ms, limits.initial_rebalance_delay_ms)
        draft.record(RebalanceStarted(draft.now_ms, until_ms))
        draft.arm(TimerKind.JOIN, limits.initial_rebalance_delay_ms)
        return
    was_empty = group.state is GroupState.EMPTY
    draft.record(RebalanceStarted(draft.now_ms))
    if was_empty or draft.state.all_joined:
        complete_join(draft)
    else:
        draft.arm(TimerKind.JOIN, draft.state.rebalance_timeout_ms)


def maybe_complete_join(draft: GroupDraft) -> None:
    """Go on when everybody is here; the first rebalance of a group ends by its timer only."""
    group = draft.state
    preparing = group.state is GroupState.PREPARING_REBALANCE
    if preparing and group.initial_until_ms is None and group.all_joined:
        complete_join(draft)


def join_time_is_over(draft: GroupDraft, limits: GroupLimits) -> None:
    """The join timer fired: wait once more for a growing new group, else go on."""
    group = draft.state
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.initial_until_ms is not None and group.member_added:
        remaining_ms = group.initial_until_ms - draft.now_ms
        if remaining_ms > 0:
            draft.record(InitialDelayExtended())
            draft.arm(TimerKind.JOIN, min(limits.initial_rebalance_delay_ms, remaining_ms))
            return
    complete_join(draft)


def complete_join(draft: GroupDraft) -> None:
    """End the join phase with those who came. Static members may be late (KIP-345)."""
    for member in list(draft.state.members.values()):
        if not member.awaits_join and member.instance_id is None:
            draft.record(MemberLeft(member.member_id))
            draft.disarm(TimerKind.SESSION, member.member_id)
    group = draft.state
    if not group.members:
        become_empty(draft)
        return
    leader = _leader_among_joined(group)
    if leader is None:
        # Only silent static members are left. Their sessions will end it.
        draft.arm(TimerKind.JOIN, group.rebalance_timeout_ms)
        return
    joined = [member.member_id for member in group.joined()]
    generation = next_generation(group.generation)
    draft.record(GenerationStarted(generation, group.elected_protocol(), leader, draft.now_ms))
    draft.disarm(TimerKind.JOIN)
    for member_id in joined:
        draft.effects.append(AnswerJoin(member_id, join_reply(draft.state, member_id)))
    for member in draft.state.members.values():
        draft.arm(TimerKind.SESSION, member.session_timeout_ms, member.member_id)
    draft.arm(TimerKind.SYNC, draft.state.rebalance_timeout_ms)


def become_empty(draft: GroupDraft) -> None:
    """The last member is gone. The generation still moves, so that old members are refused."""
    group = draft.state
    value = group.as_stored()._replace(
        generation=next_generation(group.generation),
        protocol=None,
        leader=None,
        state_since_ms=draft.now_ms,
        members=(),
    )
    draft.record(GroupStored(group.group_id, value))
    draft.disarm(TimerKind.JOIN)
    draft.disarm(TimerKind.SYNC)


def next_generation(generation: int) -> int:
    return generation + 1 if generation < 2**31 - 1 else 1


def _leader_among_joined(group: Group) -> str | None:
    current = group.members.get(group.leader or "")
    if current is not None and current.awaits_join:
        return current.member_id
    return next((member.member_id for member in group.joined()), None)


def join_reply(group: Group, member_id: str, *, skip_assignment: bool = False) -> JoinReply:
    """How the generation looks to a member; only the leader sees the others."""
    is_leader = group.leader == member_id
    return JoinReply(
        member_id,
        group.generation,
        group.protocol_type,
        group.protocol,
        group.leader or "",
        skip_assignment and is_leader,
        group.joined_members() if is_leader else (),
    )


def remove_member(draft: GroupDraft, member: Member, error: BrokerError | None = None) -> None:
    """Take a member out and answer whatever it left parked."""
    refused = error or UnknownMember(f"member {member.member_id} is no longer in the group")
    draft.record(MemberLeft(member.member_id))
    draft.disarm(TimerKind.SESSION, member.member_id)
    draft.effects.append(AnswerJoin(member.member_id, JoinReply(error=refused)))
    draft.effects.append(AnswerSync(member.member_id, SyncReply(error=refused)))


def after_removal(draft: GroupDraft, limits: GroupLimits) -> None:
    """Members are gone: those who stay share what the others had."""
    if draft.state.state is not GroupState.EMPTY:
        rebalance_or_complete(draft, limits)


def withdraw_id(draft: GroupDraft, member_id: str) -> None:
    """Forget an id that was given out; a rebalance may have been waiting for it."""
    draft.record(MemberIdWithdrawn(member_id))
    draft.disarm(TimerKind.SESSION, member_id)
    maybe_complete_join(draft)


def assign(draft: GroupDraft, assignments: dict[str, bytes]) -> None:
    """The leader's assignment makes the generation stable, and answers those who wait for it."""
    group = draft.state
    value = group.as_stored()._replace(
        state_since_ms=draft.now_ms,
        members=tuple(
            m.stored(group.protocol)._replace(assignment=assignments.get(m.member_id, b""))
            for m in group.members.values()
        ),
    )
    waiting = [member.member_id for member in group.members.values() if member.awaits_sync]
    draft.record(GroupStored(group.group_id, value))
    for member_id in waiting:
        member = draft.state.members[member_id]
        _answer_sync(draft, member, sync_reply(draft.state, member))


def sync_reply(group: Group, member: Member) -> SyncReply:
    return SyncReply(member.assignment, group.protocol_type, group.protocol)


def _answer_sync(draft: GroupDraft, member: Member, reply: SyncReply) -> None:
    # A member cannot heartbeat while its request is parked, so its session starts anew.
    draft.effects.append(AnswerSync(member.member_id, reply))
    draft.arm(TimerKind.SESSION, member.session_timeout_ms, member.member_id)
