"""The steps that move a KIP-848 group, shared by its own members and by classic ones among them.

Each step works on a draft: it adds records and timers, and decides nothing about the request that
led to it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from penstock.errors import UnreleasedInstanceId
from penstock.machines.assignors import ASSIGNORS, AssignedMember
from penstock.machines.consumer_group import (
    NOTHING,
    STATIC_LEAVING_EPOCH,
    ConsumerGroup,
    MemberState,
)
from penstock.machines.consumer_group_checks import member_tombstones
from penstock.machines.decision import Draft, TimerKind
from penstock.machines.reconciliation import reconcile
from penstock.model.consumer_group_records import (
    CurrentAssignment,
    GroupEpochBumped,
    MemberReconciled,
    MemberSubscribed,
    RegexResolved,
    ResolvedRegex,
    SubscribedTopic,
    SubscribedTopicsChanged,
    Subscription,
    TargetAssigned,
    TargetEpochReached,
)
from penstock.model.group_record import Assignment
from penstock.model.pattern import pattern

ConsumerDraft = Draft[ConsumerGroup]


class TopicsView(Protocol):
    """The topics there are, at one moment. `version` grows with every change."""

    version: int

    def find(self, name: str) -> SubscribedTopic | None: ...

    def names(self) -> Iterable[str]: ...


@dataclass(frozen=True, slots=True)
class ConsumerGroupLimits:
    """Bounds and times of a KIP-848 group, by Kafka's `group.consumer.*` settings."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")  # the first is the default


# --- subscriptions and topics ---------------------------------------------------------------------


def subscribe(
    draft: ConsumerDraft,
    member_id: str,
    subscription: Subscription,
    topics: TopicsView,
    topics_changed: bool,
) -> None:
    """Write down what a member wants; bump the epoch when that changes who reads what."""
    group_id = draft.state.group_id
    known = draft.state.members.get(member_id)
    bump = known is None or (
        (known.topic_names, known.topic_regex, known.server_assignor)
        != (subscription.topic_names, subscription.topic_regex, subscription.server_assignor)
    )
    if known != subscription:
        draft.record(MemberSubscribed(group_id, member_id, subscription))
    if bump or topics_changed:
        bump |= refresh_topics(draft, topics)
    if bump:
        draft.record(GroupEpochBumped(group_id, draft.state.epoch + 1))


def refresh_topics(draft: ConsumerDraft, topics: TopicsView) -> bool:
    """Look at the topics again; returns whether those that the group reads have changed."""
    group, group_id = draft.state, draft.state.group_id
    wanted = dict.fromkeys(s.topic_regex for s in group.members.values() if s.topic_regex)
    for regex in list(group.regexes):
        if regex not in wanted:
            draft.record(RegexResolved(group_id, regex, None))
    for regex in wanted:
        compiled = pattern(regex or "")
        names = tuple(sorted(name for name in topics.names() if compiled.matches(name)))
        resolved = draft.state.regexes.get(regex or "")
        if resolved is None or resolved.topic_names != names:
            found = ResolvedRegex(names, topics.version, draft.now_ms)
            draft.record(RegexResolved(group_id, regex or "", found))
    group = draft.state
    read = dict.fromkeys(name for m in group.members for name in group.topic_names(m))
    found_topics = [topics.find(name) for name in sorted(read)]
    known = {topic.name: topic for topic in found_topics if topic is not None}
    if known == group.topics:
        return False
    draft.record(SubscribedTopicsChanged(group_id, tuple(known.values())))
    return True


def maybe_assign(draft: ConsumerDraft, limits: ConsumerGroupLimits) -> None:
    """Compute a new target when the group has changed since the last one."""
    group = draft.state
    if group.epoch <= group.target_epoch:
        return
    ids = {name: topic.topic_id for name, topic in group.topics.items()}
    members = {
        member_id: AssignedMember(
            tuple(dict.fromkeys(ids[n] for n in group.topic_names(member_id) if n in ids)),
            group.targets.get(member_id, NOTHING),
            subscription.instance_id,
        )
        for member_id, subscription in group.members.items()
    }
    counts = {topic.topic_id: topic.partition_count for topic in group.topics.values()}
    targets = ASSIGNORS[preferred_assignor(group, limits)](members, counts)
    for member_id, target in targets.items():
        if draft.state.targets.get(member_id) != target:
            draft.record(TargetAssigned(group.group_id, member_id, target))
    draft.record(TargetEpochReached(group.group_id, group.epoch))


def preferred_assignor(group: ConsumerGroup, limits: ConsumerGroupLimits) -> str:
    """The one that most members ask for."""
    votes = dict.fromkeys(limits.assignors, 0)
    for subscription in group.members.values():
        if subscription.server_assignor in votes:
            votes[subscription.server_assignor or ""] += 1
    return max(votes, key=votes.__getitem__)


# --- reconciling ----------------------------------------------------------------------------------


def move_member(draft: ConsumerDraft, member_id: str, owned: Assignment | None) -> None:
    """Take the member's next step towards its target."""
    group = draft.state
    current = group.current(member_id)

    def is_free(topic_id: uuid.UUID, index: int) -> bool:
        return group.owners.get((topic_id, index)) in (None, member_id)

    def reads(topic_id: uuid.UUID) -> bool:
        names = group.topic_names(member_id)
        known = (group.topics[name].topic_id for name in names if name in group.topics)
        return topic_id in known

    target = group.targets.get(member_id, NOTHING)
    following = reconcile(current, target, group.target_epoch, owned, is_free, reads)
    if following is current:
        return
    draft.record(MemberReconciled(group.group_id, member_id, following))
    subscription = group.members[member_id]
    if following.state == MemberState.UNREVOKED_PARTITIONS and subscription.classic is None:
        draft.arm(TimerKind.REBALANCE, subscription.rebalance_timeout_ms, member_id)
    else:
        draft.disarm(TimerKind.REBALANCE, member_id)


# --- coming back and going ----------------------------------------------------------------------


def replace_static(
    draft: ConsumerDraft, old_member_id: str, member_id: str, *, fence_live: bool
) -> None:
    """A static member is back under a new id: it takes over subscription, target and partitions.

    Unless `fence_live`, it may only if the old one said that it would be back.
    """
    group = draft.state
    group_id, old = group.group_id, group.current(old_member_id)
    subscription = group.members[old_member_id]
    gone = old.member_epoch == STATIC_LEAVING_EPOCH or subscription.classic is not None
    if not gone and not fence_live:
        raise UnreleasedInstanceId(
            f"static member {subscription.instance_id} is still here as {old_member_id}"
        )
    target = group.targets.get(old_member_id)
    for record in member_tombstones(group, old_member_id):
        draft.record(record)
    draft.record(MemberSubscribed(group_id, member_id, subscription))
    if target is not None:
        draft.record(TargetAssigned(group_id, member_id, target))
    start = CurrentAssignment(0, 0, MemberState.STABLE, old.assigned, NOTHING)
    draft.record(MemberReconciled(group_id, member_id, start))
    draft.disarm(TimerKind.SESSION, old_member_id)
    draft.disarm(TimerKind.REBALANCE, old_member_id)


def remove_members(draft: ConsumerDraft, member_ids: Iterable[str], topics: TopicsView) -> None:
    """Take members out; the next heartbeat of another one computes the new target."""
    group_id = draft.state.group_id
    for member_id in member_ids:
        for record in member_tombstones(draft.state, member_id):
            draft.record(record)
        for kind in TimerKind:
            draft.disarm(kind, member_id)
    refresh_topics(draft, topics)
    draft.record(GroupEpochBumped(group_id, draft.state.epoch + 1))
