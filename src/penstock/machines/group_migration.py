"""A group changes between the classic and the KIP-848 protocol, with its members or without.

An empty group simply becomes the other kind; its offsets stay. A group with members is upgraded
when the first KIP-848 member joins: the classic members stay what they are, with the partitions
they have, and are served by `consumer_group_classic`. It is downgraded when the last KIP-848
member leaves and only classic ones remain: they rebalance by themselves again.
"""

from __future__ import annotations

from typing import Any

from penstock.errors import CorruptRecord, GroupIdNotFound, RebalanceInProgress
from penstock.machines.consumer_group import ConsumerGroup, MemberState
from penstock.machines.consumer_group_checks import tombstones
from penstock.machines.consumer_group_classic import by_id, by_name
from penstock.machines.consumer_group_steps import TopicsView, refresh_topics
from penstock.machines.decision import (
    AnswerJoin,
    AnswerSync,
    Decision,
    Draft,
    JoinReply,
    SyncReply,
    TimerKind,
)
from penstock.machines.group_commands import GroupLimits
from penstock.machines.group_rebalance import start_rebalance
from penstock.machines.group_state import Group, Member
from penstock.model import consumer_protocol
from penstock.model.consumer_group_records import (
    ClassicMetadata,
    CurrentAssignment,
    GroupEpochBumped,
    MemberReconciled,
    MemberSubscribed,
    Subscription,
    TargetAssigned,
    TargetEpochReached,
)
from penstock.model.offsets_topic import GroupStored, StoredGroup, StoredMember


def upgrade(group: Group, topics: TopicsView, now_ms: int) -> tuple[ConsumerGroup, Decision]:
    """The KIP-848 group that a classic one becomes, and the records and effects that make it so.

    Raises `GroupIdNotFound`, as Kafka does, when the members are not consumers.
    """
    draft: Draft[ConsumerGroup] = Draft(ConsumerGroup(group.group_id), now_ms)
    group_id, epoch = group.group_id, max(group.generation, 1)
    try:
        for member in group.members.values():
            _upgrade_member(draft, group, member, topics, epoch)
    except CorruptRecord as damage:
        raise GroupIdNotFound(f"group {group_id} is not made of consumers: {damage}") from None
    if group.members:
        refresh_topics(draft, topics)
        draft.record(GroupEpochBumped(group_id, epoch))
        draft.record(TargetEpochReached(group_id, epoch))
    draft.disarm(TimerKind.JOIN)
    draft.disarm(TimerKind.SYNC)
    forget = [GroupStored(group_id, None)] if group.is_stored else []
    return draft.state, Decision([*forget, *draft.records], draft.effects)


def _upgrade_member(
    draft: Draft[ConsumerGroup], group: Group, member: Member, topics: TopicsView, epoch: int
) -> None:
    protocols = tuple(sorted(member.protocols, key=lambda protocol: protocol[0] != group.protocol))
    said = consumer_protocol.read_subscription(protocols[0][1])
    assigned = by_id(dict(consumer_protocol.read_assignment(member.assignment)), topics)
    group_id, member_id = group.group_id, member.member_id
    subscription = Subscription(
        member.instance_id,
        said.rack_id,
        member.client_id,
        member.client_host,
        tuple(sorted(dict.fromkeys(said.topics))),
        None,
        member.rebalance_timeout_ms,
        None,
        ClassicMetadata(member.session_timeout_ms, protocols),
    )
    draft.record(MemberSubscribed(group_id, member_id, subscription))
    draft.record(TargetAssigned(group_id, member_id, assigned))
    current = CurrentAssignment(epoch, epoch, MemberState.STABLE, assigned, {})
    draft.record(MemberReconciled(group_id, member_id, current))
    again = RebalanceInProgress("the group changes its protocol; join again")
    draft.effects.append(AnswerJoin(member_id, JoinReply(member_id, error=again)))
    draft.effects.append(AnswerSync(member_id, SyncReply(error=again)))
    draft.arm(TimerKind.SESSION, member.session_timeout_ms, member_id)


def may_downgrade(group: ConsumerGroup, limits: GroupLimits) -> bool:
    """Whether only classic members are left, and not more than a classic group may have."""
    return 0 < len(group.members) <= limits.max_size and all(
        subscription.classic is not None for subscription in group.members.values()
    )


def downgrade(group: ConsumerGroup, generation: int, limits: GroupLimits, now_ms: int) -> Decision:
    """The records that make a KIP-848 group a classic one again, and the rebalance that follows.

    `generation` is the epoch in which its members know the group: with another one they would be
    told that theirs is over and take their partitions for lost, instead of handing them over.
    """
    members: list[StoredMember] = []
    protocol = _common_protocol(group)
    for member_id, subscription in group.members.items():
        classic = subscription.classic
        assert classic is not None, "only classic members are left"
        metadata = dict(classic.protocols)[protocol]
        version = consumer_protocol.read_subscription(metadata).version
        assigned = by_name(group, group.current(member_id).assigned)
        members.append(
            StoredMember(
                member_id,
                subscription.instance_id,
                subscription.client_id,
                subscription.client_host,
                subscription.rebalance_timeout_ms,
                classic.session_timeout_ms,
                metadata,
                consumer_protocol.write_assignment(version, assigned),
            )
        )
    leader = members[0].member_id
    value = StoredGroup(
        consumer_protocol.PROTOCOL_TYPE, generation, protocol, leader, now_ms, tuple(members)
    )
    draft: Draft[Group] = Draft(Group(group.group_id), now_ms)
    draft.record(GroupStored(group.group_id, value))
    for member in draft.state.members.values():
        for kind in (TimerKind.JOIN, TimerKind.SYNC):
            draft.disarm(kind, member.member_id)
        draft.arm(TimerKind.SESSION, member.session_timeout_ms, member.member_id)
    start_rebalance(draft, limits)
    records: list[Any] = [*tombstones(group), *draft.records]
    return Decision(records, draft.effects)


def _common_protocol(group: ConsumerGroup) -> str:
    offered = [
        [name for name, _ in s.classic.protocols] for s in group.members.values() if s.classic
    ]
    return next(name for name in offered[0] if all(name in names for names in offered))
