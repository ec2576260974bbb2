"""The protocol of share groups, decided: a heartbeat joins, changes, or leaves (KIP-932).

One request does everything, as in KIP-848 (`consumer_group_heartbeat.py`), but a member is told its
target at once: nothing has to be given back first.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import FencedMemberEpoch, GroupMaxSizeReached, InvalidRequest
from penstock.machines.consumer_group_heartbeat import HeartbeatReply
from penstock.machines.consumer_group_steps import TopicsView
from penstock.machines.decision import Decision, Draft, Timer, TimerKind
from penstock.machines.share_group import NEW_MEMBER, ShareGroup, member_tombstones
from penstock.model.group_record import Assignment
from penstock.model.share_group_records import (
    ShareAssignment,
    ShareGroupEpochBumped,
    ShareMemberAssigned,
    ShareMemberSubscribed,
    ShareSubscription,
    ShareTargetAssigned,
    ShareTargetEpochReached,
)

ASSIGNOR = "simple"
JOINING_EPOCH = 0
LEAVING_EPOCH = -1

ShareDraft = Draft[ShareGroup]


class ShareHeartbeat(NamedTuple):
    """A member's word. None means that nothing has changed since the last one."""

    member_id: str
    member_epoch: int
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class ShareGroupLimits:
    """Bounds and times of a share group, by Kafka's `group.share.*` settings."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 200


def check_request(command: ShareHeartbeat) -> None:
    """Refuse what no member may say."""
    if not command.member_id:
        raise InvalidRequest("MemberId can't be empty.")
    if command.rack_id == "":
        raise InvalidRequest("RackId can't be empty.")
    if command.member_epoch < LEAVING_EPOCH:
        raise InvalidRequest(f"MemberEpoch is {command.member_epoch}, less than -1.")
    if command.member_epoch == JOINING_EPOCH and not command.topic_names:
        raise InvalidRequest("SubscribedTopicNames must be set in first request.")


def decide(
    group: ShareGroup,
    command: ShareHeartbeat,
    limits: ShareGroupLimits,
    topics: TopicsView,
    now_ms: int,
    *,
    topics_changed: bool,
) -> Decision:
    """What a heartbeat does. `topics_changed`: the topics may differ from when last looked at."""
    check_request(command)
    draft: ShareDraft = Draft(group, now_ms)
    member_id = command.member_id
    if command.member_epoch == LEAVING_EPOCH:
        group.require_member(member_id)
        _remove_member(draft, member_id)
        return draft.decided(HeartbeatReply(member_id, LEAVING_EPOCH, 0))
    _admit(group, command, limits)
    before = group.current(member_id) if command.member_epoch else NEW_MEMBER
    changed = _subscribe(draft, command)
    _maybe_assign(draft, topics, changed, topics_changed)
    current = _move_member(draft, member_id)
    draft.arm(TimerKind.SESSION, limits.session_timeout_ms, member_id)
    show = command.member_epoch == JOINING_EPOCH or current.assigned != before.assigned
    # A member that speaks of the epoch before did not get the answer that told it the new one.
    show = show or command.member_epoch != before.member_epoch
    reply = HeartbeatReply(
        member_id,
        current.member_epoch,
        limits.heartbeat_interval_ms,
        current.assigned if show else None,
    )
    return draft.decided(reply)


def timer_fired(group: ShareGroup, timer: Timer, now_ms: int) -> Decision:
    """A member was silent too long."""
    draft: ShareDraft = Draft(group, now_ms)
    if timer.member_id in group.members:
        _remove_member(draft, timer.member_id)
    return draft.decided()


def _admit(group: ShareGroup, command: ShareHeartbeat, limits: ShareGroupLimits) -> None:
    if command.member_epoch == JOINING_EPOCH:
        if command.member_id not in group.members and len(group.members) >= limits.max_size:
            raise GroupMaxSizeReached(f"The share group has reached its maximum capacity of "
                                      f"{limits.max_size} members.")  # fmt: skip
        return
    group.require_member(command.member_id)
    current = group.current(command.member_id)
    if command.member_epoch not in (current.member_epoch, current.previous_epoch):
        raise FencedMemberEpoch(
            f"member {command.member_id} is at epoch {current.member_epoch}, not "
            f"{command.member_epoch}; it must join again"
        )


def _subscribe(draft: ShareDraft, command: ShareHeartbeat) -> bool:
    """Write down what the member wants; returns whether that changes who reads what."""
    group, member_id = draft.state, command.member_id
    known = group.members.get(member_id)
    names = () if known is None else known.topic_names
    if command.topic_names is not None:
        names = tuple(sorted(dict.fromkeys(command.topic_names)))
    rack_id = command.rack_id
    if rack_id is None and known is not None:
        rack_id = known.rack_id
    subscription = ShareSubscription(rack_id, command.client_id, command.client_host, names)
    if subscription == known:
        return False
    draft.record(ShareMemberSubscribed(group.group_id, member_id, subscription))
    return known is None or known.topic_names != names


def _maybe_assign(draft: ShareDraft, topics: TopicsView, changed: bool, look: bool) -> None:
    """Compute a new target when the group or its topics have changed since the last one."""
    group = draft.state
    if not (changed or look or group.epoch > group.target_epoch):
        return
    counts: dict[str, tuple[uuid.UUID, int]] = {}
    for name in dict.fromkeys(n for m in group.members.values() for n in m.topic_names):
        topic = topics.find(name)
        if topic is not None:
            counts[name] = (topic.topic_id, topic.partition_count)
    subscriptions = {member_id: m.topic_names for member_id, m in group.members.items()}
    targets = assign(subscriptions, counts)
    if changed or any(group.targets.get(member_id, {}) != t for member_id, t in targets.items()):
        draft.record(ShareGroupEpochBumped(group.group_id, group.epoch + 1))
    for member_id, target in targets.items():
        if draft.state.targets.get(member_id) != target:
            draft.record(ShareTargetAssigned(group.group_id, member_id, target))
    if draft.state.epoch != draft.state.target_epoch:
        draft.record(ShareTargetEpochReached(group.group_id, draft.state.epoch))


def _move_member(draft: ShareDraft, member_id: str) -> ShareAssignment:
    group = draft.state
    current = group.current(member_id)
    if current.member_epoch != group.target_epoch:
        target = group.targets.get(member_id, {})
        current = ShareAssignment(group.target_epoch, current.member_epoch, target)
        draft.record(ShareMemberAssigned(group.group_id, member_id, current))
    return current


def _remove_member(draft: ShareDraft, member_id: str) -> None:
    """Take a member out; the next heartbeat of another one computes the new target."""
    for record in member_tombstones(draft.state, member_id):
        draft.record(record)
    draft.disarm(TimerKind.SESSION, member_id)
    draft.record(ShareGroupEpochBumped(draft.state.group_id, draft.state.epoch + 1))


def assign(
    subscriptions: Mapping[str, tuple[str, ...]], counts: Mapping[str, tuple[uuid.UUID, int]]
) -> dict[str, Assignment]:
    """Each topic's partitions dealt to its readers, each member some and each partition somebody.

    With more members than partitions, members share partitions evenly; with fewer, partitions are
    spread over the members. Which of them comes first moves on from topic to topic.
    """
    found: dict[str, dict[uuid.UUID, tuple[int, ...]]] = {name: {} for name in subscriptions}
    ordered = sorted(subscriptions)
    for turn, name in enumerate(sorted(counts)):
        topic_id, count = counts[name]
        readers = [member_id for member_id in ordered if name in subscriptions[member_id]]
        if not readers or not count:
            continue
        shift = turn % len(readers)
        readers = readers[shift:] + readers[:shift]
        dealt: dict[str, list[int]] = {}
        for place in range(max(count, len(readers))):
            dealt.setdefault(readers[place % len(readers)], []).append(place % count)
        for member_id, partitions in dealt.items():
            found[member_id][topic_id] = tuple(sorted(partitions))
    return dict(found)
