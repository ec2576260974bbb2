"""Members that speak the classic protocol inside a KIP-848 group, while a fleet is being upgraded.

To such a member the group looks like a classic one that it never leads: its generation is its
member epoch, "rebalance in progress" means that it should join again to take its next step, and
SyncGroup hands it what the server assigned. JOIN and SYNC timers are per member here: one that
does not come to join or to fetch its assignment in time is removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from penstock.errors import (
    BrokerError,
    CorruptRecord,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from penstock.machines.consumer_group import NOTHING, ConsumerGroup, MemberState
from penstock.machines.consumer_group_steps import (
    ConsumerDraft,
    ConsumerGroupLimits,
    TopicsView,
    maybe_assign,
    move_member,
    remove_members,
    replace_static,
    subscribe,
)
from penstock.machines.decision import (
    Arm,
    Decision,
    Draft,
    JoinReply,
    SyncReply,
    Timer,
    TimerKind,
)
from penstock.machines.group_commands import (
    GroupLimits,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaver,
    LeaveReply,
    SyncGroup,
)
from penstock.model import consumer_protocol
from penstock.model.consumer_group_records import ClassicMetadata, Subscription
from penstock.model.consumer_protocol import ConsumerSubscription
from penstock.model.group_record import Assignment


def join(
    group: ConsumerGroup,
    command: JoinGroup,
    bounds: GroupLimits,
    limits: ConsumerGroupLimits,
    topics: TopicsView,
    now_ms: int,
    *,
    topics_changed: bool,
) -> Decision:
    """A classic member joins, or joins again: the counterpart of a full heartbeat."""
    low, high = bounds.min_session_timeout_ms, bounds.max_session_timeout_ms
    if not low <= command.session_timeout_ms <= high:
        raise InvalidSessionTimeout(f"session.timeout.ms must be from {low} to {high}")
    member_id = command.member_id or command.fresh_member_id
    if member_id not in group.members and len(group.members) >= limits.max_size:
        raise GroupMaxSizeReached(f"the group has {limits.max_size} members")
    if not command.member_id and command.instance_id is None and command.member_id_required:
        required = MemberIdRequired("join again with the member id in this answer", member_id)
        return Decision(reply=JoinReply(member_id, error=required))
    said = _subscription_of(group, command)
    draft: ConsumerDraft = Draft(group, now_ms)
    holder = None if command.instance_id is None else group.statics.get(command.instance_id)
    if holder is not None and not command.member_id:
        replace_static(draft, holder, member_id, fence_live=True)
    elif command.instance_id is not None and command.member_id:
        group.require_member(member_id, command.instance_id)
    subscribe(draft, member_id, _as_subscription(command, said), topics, topics_changed)
    maybe_assign(draft, limits)
    move_member(draft, member_id, by_id(dict(said.owned), topics))
    draft.disarm(TimerKind.JOIN, member_id)
    draft.arm(TimerKind.SESSION, command.session_timeout_ms, member_id)
    draft.arm(TimerKind.SYNC, command.rebalance_timeout_ms, member_id)
    epoch = draft.state.current(member_id).member_epoch
    protocol = command.protocols[0][0]
    return draft.decided(JoinReply(member_id, epoch, consumer_protocol.PROTOCOL_TYPE, protocol))


def _subscription_of(group: ConsumerGroup, command: JoinGroup) -> ConsumerSubscription:
    offered = [name for name, _ in command.protocols]
    others = [s.classic.protocols for s in group.members.values() if s.classic is not None]
    is_common = any(all(any(name == n for n, _ in theirs) for theirs in others) for name in offered)
    if command.protocol_type != consumer_protocol.PROTOCOL_TYPE or not is_common:
        raise InconsistentGroupProtocol(f"group {group.group_id} is a group of consumers")
    try:
        return consumer_protocol.read_subscription(command.protocols[0][1])
    except CorruptRecord as damage:
        raise InconsistentGroupProtocol(f"not a consumer's subscription: {damage}") from None


def _as_subscription(command: JoinGroup, said: ConsumerSubscription) -> Subscription:
    return Subscription(
        command.instance_id,
        said.rack_id,
        command.client_id,
        command.client_host,
        tuple(sorted(dict.fromkeys(said.topics))),
        None,
        command.rebalance_timeout_ms,
        None,
        ClassicMetadata(command.session_timeout_ms, command.protocols),
    )


def sync(group: ConsumerGroup, command: SyncGroup, now_ms: int) -> Decision:
    """A classic member fetches what the server assigned to it."""
    classic = _classic_member(group, command.member_id, command.instance_id, command.generation)
    protocol = classic.protocols[0][0]
    if command.protocol_type not in (None, consumer_protocol.PROTOCOL_TYPE) or (
        command.protocol not in (None, protocol)
    ):
        raise InconsistentGroupProtocol(f"member {command.member_id} joined with {protocol}")
    current = group.current(command.member_id)
    draft: ConsumerDraft = Draft(group, now_ms)
    behind = group.epoch > current.member_epoch
    if behind and current.state != MemberState.UNREVOKED_PARTITIONS:
        _await_join(draft, command.member_id)
        return draft.decided(SyncReply(error=RebalanceInProgress("join again to catch up")))
    draft.disarm(TimerKind.SYNC, command.member_id)
    draft.arm(TimerKind.SESSION, classic.session_timeout_ms, command.member_id)
    version = consumer_protocol.read_subscription(classic.protocols[0][1]).version
    assignment = consumer_protocol.write_assignment(version, by_name(group, current.assigned))
    return draft.decided(SyncReply(assignment, consumer_protocol.PROTOCOL_TYPE, protocol))


def heartbeat(group: ConsumerGroup, command: Heartbeat, now_ms: int) -> Decision:
    """Replies `RebalanceInProgress` when the member's next step needs it to join again."""
    member_id = command.member_id
    classic = _classic_member(group, member_id, command.instance_id, command.generation)
    draft: ConsumerDraft = Draft(group, now_ms)
    draft.arm(TimerKind.SESSION, classic.session_timeout_ms, member_id)
    current = group.current(member_id)
    if (
        current.member_epoch < group.epoch
        or current.state == MemberState.UNREVOKED_PARTITIONS
        or (
            current.state == MemberState.UNRELEASED_PARTITIONS
            and _is_released(group, member_id, current.assigned)
        )
    ):
        _await_join(draft, member_id)
        return draft.decided(RebalanceInProgress("join again to take the next step"))
    return draft.decided()


def _is_released(group: ConsumerGroup, member_id: str, assigned: Assignment) -> bool:
    """Whether everything the member waits for has been given back by others."""
    return all(
        index in assigned.get(topic_id, ())
        or group.owners.get((topic_id, index)) in (None, member_id)
        for topic_id, indexes in group.targets.get(member_id, NOTHING).items()
        for index in indexes
    )


def _await_join(draft: ConsumerDraft, member_id: str) -> None:
    timeout_ms = draft.state.members[member_id].rebalance_timeout_ms
    # Its time to join began when it was first told to: further reminders do not prolong it.
    draft.effects.append(Arm(Timer(TimerKind.JOIN, member_id), timeout_ms, unless_armed=True))


def leave(group: ConsumerGroup, command: LeaveGroup, topics: TopicsView, now_ms: int) -> Decision:
    """Classic members leave; an operator may remove static members by their instance id."""
    draft: ConsumerDraft = Draft(group, now_ms)
    outcomes: list[tuple[Leaver, BrokerError | None]] = []
    gone: dict[str, None] = {}
    for leaver in command.members:
        try:
            member_id = leaver.member_id
            if not member_id and leaver.instance_id is not None:
                member_id = group.statics.get(leaver.instance_id, "")
            if group.require_member(member_id, leaver.instance_id).classic is None:
                raise UnknownMember(f"member {member_id} does not use the classic protocol")
            gone[member_id] = None
            outcomes.append((leaver, None))
        except BrokerError as refusal:
            outcomes.append((leaver, refusal))
    if gone:
        remove_members(draft, gone, topics)
    return draft.decided(LeaveReply(tuple(outcomes)))


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ClassicMetadata:
    classic = group.require_member(member_id, instance_id).classic
    if classic is None:
        raise UnknownMember(f"member {member_id} does not use the classic protocol")
    epoch = group.current(member_id).member_epoch
    if generation != epoch:
        raise IllegalGeneration(f"member {member_id} is at {epoch}, not {generation}")
    return classic


def by_name(group: ConsumerGroup, assignment: Assignment) -> dict[str, tuple[int, ...]]:
    """An assignment with the names of its topics; those that are gone are left out."""
    names = {topic.topic_id: name for name, topic in group.topics.items()}
    return {
        names[topic_id]: indexes for topic_id, indexes in assignment.items() if topic_id in names
    }


def by_id(
    partitions: Mapping[str, tuple[int, ...]], topics: TopicsView
) -> dict[uuid.UUID, tuple[int, ...]]:
    """An assignment with the ids of its topics; those that are gone are left out."""
    found = ((topics.find(name), indexes) for name, indexes in partitions.items())
    return {
        topic.topic_id: tuple(sorted(indexes))
        for topic, indexes in found
        if topic is not None and indexes
    }
