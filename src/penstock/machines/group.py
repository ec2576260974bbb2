"""The classic group protocol, decided: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, time-outs.

`decide` looks at a group and a command and says what happens; it changes nothing (STYLE.md). A
refusal that changes nothing is raised as a `BrokerError`. A request that must wait for others gets
`Parked` as its reply, and is answered by an `AnswerJoin` or `AnswerSync` effect later. The rules
are those of Kafka's coordinator, with KIP-345 (static members), KIP-394 (member id required) and
KIP-814 (a returning static leader skips the assignment).

`check_commit` says who may commit offsets. Nothing here knows of journals, sockets or clocks.
"""

from __future__ import annotations

from penstock.errors import (
    BrokerError,
    CorruptRecord,
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidRequest,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from penstock.machines.decision import (
    AnswerJoin,
    AnswerSync,
    Decision,
    Draft,
    JoinReply,
    Parked,
    SyncReply,
    TimerKind,
)
from penstock.machines.group_commands import (
    GroupCommand,
    GroupLimits,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    LeaveReply,
    SyncGroup,
    TimerFired,
)
from penstock.machines.group_rebalance import (
    GroupDraft,
    after_removal,
    assign,
    join_reply,
    join_time_is_over,
    maybe_complete_join,
    rebalance_or_complete,
    remove_member,
    start_rebalance,
    sync_reply,
    withdraw_id,
)
from penstock.machines.group_state import (
    Group,
    GroupState,
    Member,
    MemberIdGiven,
    MemberJoined,
    StaticMemberReplaced,
    SyncReceived,
)
from penstock.model import consumer_protocol
from penstock.model.offsets_topic import GroupStored


def decide(group: Group, command: GroupCommand, limits: GroupLimits, now_ms: int) -> Decision:
    """What `command` does to `group` at `now_ms`."""
    draft: GroupDraft = Draft(group, now_ms)
    reply: JoinReply | SyncReply | LeaveReply | Parked | BrokerError | None = None
    match command:
        case JoinGroup():
            reply = _join(draft, command, limits)
        case SyncGroup():
            reply = _sync(draft, command)
        case Heartbeat():
            reply = _heartbeat(draft, command)
        case LeaveGroup():
            reply = _leave(draft, command, limits)
        case TimerFired():
            _timer_fired(draft, command, limits)
    return draft.decided(reply)


# --- join -----------------------------------------------------------------------------------------


def _join(draft: GroupDraft, command: JoinGroup, limits: GroupLimits) -> JoinReply | Parked:
    group = draft.state
    low, high = limits.min_session_timeout_ms, limits.max_session_timeout_ms
    if not low <= command.session_timeout_ms <= high:
        raise InvalidSessionTimeout(f"session.timeout.ms must be from {low} to {high}")
    if not _has_room(group, command.member_id, limits.max_size):
        return _turn_away(draft, command, limits)
    if not group.supports(command.protocol_type, command.protocols):
        raise InconsistentGroupProtocol(
            f"group {group.group_id} has no protocol in common with this member"
        )
    if not command.member_id:
        return _join_as_new(draft, command, limits)
    if command.member_id in group.given_ids:
        if command.instance_id is not None:
            raise InvalidRequest("a member id was given for a dynamic member, not a static one")
        return _add(draft, command, command.member_id, limits)
    member = group.require_member(command.member_id, command.instance_id)
    return _join_again(draft, command, member, limits)


def _has_room(group: Group, member_id: str, max_size: int) -> bool:
    if group.state is GroupState.EMPTY or len(group.members) < max_size:
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        # Those who joined count, not those who were members: if the limit was lowered, the last
        # ones to come back are the ones who lose their place.
        if member is not None and member.awaits_join:
            return True
        return sum(1 for _ in group.joined()) < max_size
    return member is not None


def _turn_away(draft: GroupDraft, command: JoinGroup, limits: GroupLimits) -> JoinReply:
    full = GroupMaxSizeReached(f"the group has {limits.max_size} members, as many as it may")
    member = draft.state.members.get(command.member_id)
    if member is not None:
        remove_member(draft, member, full)
        maybe_complete_join(draft)
    elif command.member_id in draft.state.given_ids:
        withdraw_id(draft, command.member_id)
    return JoinReply(error=full)


def _join_as_new(draft: GroupDraft, command: JoinGroup, limits: GroupLimits) -> JoinReply | Parked:
    group, member_id = draft.state, command.fresh_member_id
    if command.instance_id is not None:
        old_member_id = group.statics.get(command.instance_id)
        if old_member_id is not None:
            return _replace_static(draft, command, old_member_id, limits)
        return _add(draft, command, member_id, limits)
    if not command.member_id_required:
        return _add(draft, command, member_id, limits)
    draft.record(MemberIdGiven(member_id))
    draft.arm(TimerKind.SESSION, command.session_timeout_ms, member_id)
    required = MemberIdRequired("join again with the member id in this answer", member_id)
    return JoinReply(member_id, error=required)


def _add(draft: GroupDraft, command: JoinGroup, member_id: str, limits: GroupLimits) -> Parked:
    member = _member_of(command, member_id)._replace(is_new=True)
    draft.record(MemberJoined(member, command.protocol_type))
    draft.arm(TimerKind.SESSION, limits.new_member_join_timeout_ms, member_id)
    rebalance_or_complete(draft, limits)
    return Parked(member_id, "join")


def _member_of(command: JoinGroup, member_id: str) -> Member:
    return Member(
        member_id,
        command.instance_id,
        command.client_id,
        command.client_host,
        command.session_timeout_ms,
        command.rebalance_timeout_ms,
        command.protocols,
        awaits_join=True,
    )


def _join_again(
    draft: GroupDraft, command: JoinGroup, member: Member, limits: GroupLimits
) -> JoinReply | Parked:
    group, member_id = draft.state, member.member_id
    # A member that asks again without news only missed the answer. The leader of a stable group
    # asks on purpose: it saw a change (new partitions) that its own metadata does not show.
    has_news = member.protocols != command.protocols
    is_stable = group.state is GroupState.STABLE
    if group.state is GroupState.COMPLETING_REBALANCE or is_stable:
        if not has_news and not (is_stable and group.leader == member_id):
            draft.arm(TimerKind.SESSION, member.session_timeout_ms, member_id)
            return join_reply(group, member_id)
    elif group.state is GroupState.EMPTY:
        raise UnknownMember(f"group {group.group_id} is empty; join as a new member")
    updated = _member_of(command, member_id)._replace(
        assignment=member.assignment, is_new=member.is_new
    )
    draft.record(MemberJoined(updated, command.protocol_type))
    rebalance_or_complete(draft, limits)
    return Parked(member_id, "join")


def _replace_static(
    draft: GroupDraft, command: JoinGroup, old_member_id: str, limits: GroupLimits
) -> JoinReply | Parked:
    """A static member came back without its id: it takes over its own place (KIP-345)."""
    old, member_id = draft.state.members[old_member_id], command.fresh_member_id
    fenced = FencedInstanceId(f"static member {command.instance_id} is now {member_id}")
    draft.effects.append(AnswerJoin(old_member_id, JoinReply(old_member_id, error=fenced)))
    draft.effects.append(AnswerSync(old_member_id, SyncReply(error=fenced)))
    draft.disarm(TimerKind.SESSION, old_member_id)
    draft.arm(TimerKind.SESSION, command.session_timeout_ms, member_id)
    was_leader = draft.state.leader == old_member_id
    member = _member_of(command, member_id)._replace(assignment=old.assignment)
    draft.record(StaticMemberReplaced(old_member_id, member))
    group = draft.state
    if group.state is not GroupState.STABLE:
        # While assignments are awaited the leader knows only the old id, so all must join again.
        rebalance_or_complete(draft, limits)
        return Parked(member_id, "join")
    if group.elected_protocol() != group.protocol or _topics_differ(group, old, member):
        start_rebalance(draft, limits)
        return Parked(member_id, "join")
    draft.record(GroupStored(group.group_id, group.as_stored()))
    reply = join_reply(draft.state, member_id, skip_assignment=True)
    if was_leader and not command.can_skip_assignment:
        # An old client that believes it leads would assign again, so it is told of the old id.
        return reply._replace(leader=old_member_id, members=(), skip_assignment=False)
    return reply


def _topics_differ(group: Group, old: Member, new: Member) -> bool:
    if group.protocol_type != consumer_protocol.PROTOCOL_TYPE:
        return False
    try:
        before = consumer_protocol.read_subscription(old.metadata(group.protocol)).topics
        after = consumer_protocol.read_subscription(new.metadata(group.protocol)).topics
    except CorruptRecord:
        return False
    return sorted(before) != sorted(after)


# --- sync and heartbeat ---------------------------------------------------------------------------


def _sync(draft: GroupDraft, command: SyncGroup) -> SyncReply | Parked:
    group = draft.state
    member = group.require_member(command.member_id, command.instance_id)
    _check_generation(group, command.generation)
    if _differs(command.protocol_type, group.protocol_type) or _differs(
        command.protocol, group.protocol
    ):
        raise InconsistentGroupProtocol(
            f"group {group.group_id} uses {group.protocol_type} {group.protocol}"
        )
    if group.state is GroupState.PREPARING_REBALANCE:
        raise RebalanceInProgress("another rebalance began; join again")
    completing = group.state is GroupState.COMPLETING_REBALANCE
    draft.record(SyncReceived(member.member_id, parked=completing))
    if not draft.state.awaited_syncs:
        draft.disarm(TimerKind.SYNC)
    if not completing:
        draft.arm(TimerKind.SESSION, member.session_timeout_ms, member.member_id)
        return sync_reply(group, member)
    if group.leader == member.member_id:
        assign(draft, dict(command.assignments))
    return Parked(member.member_id, "sync")


def _differs(claimed: str | None, actual: str | None) -> bool:
    return claimed is not None and actual is not None and claimed != actual


def _heartbeat(draft: GroupDraft, command: Heartbeat) -> RebalanceInProgress | None:
    group = draft.state
    member = group.require_member(command.member_id, command.instance_id)
    _check_generation(group, command.generation)
    draft.arm(TimerKind.SESSION, member.session_timeout_ms, member.member_id)
    # A reply and not a refusal: the member is alive, and is told to join.
    if group.state is GroupState.PREPARING_REBALANCE:
        return RebalanceInProgress("a rebalance began; join again")
    return None


def _check_generation(group: Group, generation: int) -> None:
    if generation != group.generation:
        raise IllegalGeneration(
            f"generation {generation} of group {group.group_id}; it is at {group.generation}"
        )


# --- leaving and failing --------------------------------------------------------------------------


def _leave(draft: GroupDraft, command: LeaveGroup, limits: GroupLimits) -> LeaveReply:
    outcomes: list[tuple[Leaver, BrokerError | None]] = []
    someone_left = False
    for leaver in command.members:
        try:
            someone_left |= _leave_one(draft, leaver)
            outcomes.append((leaver, None))
        except BrokerError as refusal:
            outcomes.append((leaver, refusal))
    if someone_left:
        after_removal(draft, limits)
    return LeaveReply(tuple(outcomes))


def _leave_one(draft: GroupDraft, leaver: Leaver) -> bool:
    group = draft.state
    if leaver.member_id in group.given_ids:
        withdraw_id(draft, leaver.member_id)
        return False
    member_id = leaver.member_id
    if not member_id and leaver.instance_id is not None:
        member_id = group.statics.get(leaver.instance_id, "")
    remove_member(draft, group.require_member(member_id, leaver.instance_id))
    return True


def _timer_fired(draft: GroupDraft, command: TimerFired, limits: GroupLimits) -> None:
    match command.timer.kind:
        case TimerKind.JOIN:
            join_time_is_over(draft, limits)
        case TimerKind.SYNC:
            _sync_time_is_over(draft, limits)
        case TimerKind.SESSION:
            _session_is_over(draft, command.timer.member_id, limits)
        case TimerKind.REBALANCE:
            pass  # of a KIP-848 group that has become a classic one since


def _sync_time_is_over(draft: GroupDraft, limits: GroupLimits) -> None:
    group = draft.state
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
        return
    late = list(group.awaited_syncs)
    for member_id in late:
        remove_member(draft, group.members[member_id])
    if late:
        start_rebalance(draft, limits)


def _session_is_over(draft: GroupDraft, member_id: str, limits: GroupLimits) -> None:
    group = draft.state
    if member_id in group.given_ids:
        withdraw_id(draft, member_id)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    if (member.awaits_join or member.awaits_sync) and not member.is_new:
        return  # it waits for us; the session starts anew when it is answered
    remove_member(draft, member)
    after_removal(draft, limits)


# --- commits --------------------------------------------------------------------------------------


def check_commit(
    group: Group,
    member_id: str,
    instance_id: str | None,
    generation: int,
    *,
    transactional: bool = False,
) -> Member | None:
    """Who commits: a member of this generation, or, when the group is empty, anybody.

    Returns the member, whose session the commit prolongs; raises when it may not commit.
    """
    if generation < 0 and group.state is GroupState.EMPTY:
        return None
    if generation < 0 and not member_id and instance_id is None:
        if transactional:  # TxnOffsetCommit before v3 does not say who commits
            return None
        raise UnknownMember(f"group {group.group_id} has members; only they may commit")
    member = group.require_member(member_id, instance_id)
    _check_generation(group, generation)
    if group.state is GroupState.COMPLETING_REBALANCE and not transactional:
        raise RebalanceInProgress("assignments are being made; commit after the rebalance")
    return member
