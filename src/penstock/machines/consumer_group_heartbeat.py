"""The KIP-848 protocol, decided: a heartbeat joins, changes, reconciles or leaves.

One request does everything. A heartbeat (1) creates or updates the member and bumps the group's
epoch when subscriptions or topics changed, (2) computes a new target when the epoch is ahead of it,
(3) moves the member one step towards its target (`reconciliation`). All of it is one batch of
records. Topics come in as a view; patterns are resolved against it (`model.pattern`).
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import (
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRequest,
    UnsupportedAssignor,
)
from penstock.machines.consumer_group import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    NEW_MEMBER,
    STATIC_LEAVING_EPOCH,
    ConsumerGroup,
)
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
from penstock.machines.decision import Decision, Draft, Timer, TimerKind
from penstock.model.consumer_group_records import (
    CurrentAssignment,
    MemberReconciled,
    Subscription,
)
from penstock.model.group_record import Assignment
from penstock.model.pattern import pattern


class ConsumerHeartbeat(NamedTuple):
    """A member's word. None (or -1) means that nothing has changed since the last one."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...] | None
    topic_regex: str | None
    server_assignor: str | None
    owned: Assignment | None

    @property
    def is_full(self) -> bool:
        """A joining member, or one that lost track and says everything again."""
        return self.member_epoch == JOINING_EPOCH or (
            self.rebalance_timeout_ms >= 0
            and self.owned is not None
            and (self.topic_names is not None or self.topic_regex is not None)
        )


class HeartbeatReply(NamedTuple):
    """`assignment` is None when the member has what it is to have."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None = None


def decide(
    group: ConsumerGroup,
    command: ConsumerHeartbeat,
    limits: ConsumerGroupLimits,
    topics: TopicsView,
    now_ms: int,
    *,
    topics_changed: bool,
) -> Decision:
    """What a heartbeat does. `topics_changed`: the topics may differ from what the group knows."""
    check_request(command, limits)
    draft: ConsumerDraft = Draft(group, now_ms)
    if command.member_epoch in (LEAVING_EPOCH, STATIC_LEAVING_EPOCH):
        return draft.decided(_leave(draft, command, topics))
    _admit(draft, command, limits)
    before = draft.state.current(command.member_id)
    subscribe(draft, command.member_id, _subscription(draft.state, command), topics, topics_changed)
    maybe_assign(draft, limits)
    move_member(draft, command.member_id, command.owned)
    current = draft.state.current(command.member_id)
    draft.arm(TimerKind.SESSION, limits.session_timeout_ms, command.member_id)
    # A member that says it owns something else may have missed an answer: it is told again.
    is_off = command.owned is not None and command.owned != current.assigned
    show = command.is_full or is_off or current.assigned != before.assigned
    reply = HeartbeatReply(
        command.member_id,
        current.member_epoch,
        limits.heartbeat_interval_ms,
        current.assigned if show else None,
    )
    return draft.decided(reply)


def check_request(command: ConsumerHeartbeat, limits: ConsumerGroupLimits) -> None:
    """Refuse what no member may say."""
    if not command.member_id:
        raise InvalidRequest("a member needs an id")
    if command.instance_id == "" or command.rack_id == "":
        raise InvalidRequest("an instance id or rack id is not empty")
    if command.member_epoch < STATIC_LEAVING_EPOCH:
        raise InvalidRequest(f"there is no member epoch {command.member_epoch}")
    if command.member_epoch == STATIC_LEAVING_EPOCH and command.instance_id is None:
        raise InvalidRequest("only a static member leaves for a while")
    if command.member_epoch == JOINING_EPOCH:
        if command.rebalance_timeout_ms < 0:
            raise InvalidRequest("a joining member says its rebalance timeout")
        if command.owned is None or command.owned:
            raise InvalidRequest("a joining member says that it owns nothing")
        if command.topic_names is None and command.topic_regex is None:
            raise InvalidRequest("a joining member says what it subscribes to")
    if command.server_assignor is not None and command.server_assignor not in limits.assignors:
        raise UnsupportedAssignor(
            f"no assignor {command.server_assignor}; there are {', '.join(limits.assignors)}"
        )
    if command.topic_regex:
        pattern(command.topic_regex)


# --- who speaks -----------------------------------------------------------------------------------


def _admit(draft: ConsumerDraft, command: ConsumerHeartbeat, limits: ConsumerGroupLimits) -> None:
    """Make sure the speaker is a member in the right epoch, or let it join."""
    group = draft.state
    if command.member_epoch != JOINING_EPOCH:
        group.require_member(command.member_id, command.instance_id)
        _check_epoch(group.current(command.member_id), command)
        return
    holder = None if command.instance_id is None else group.statics.get(command.instance_id)
    if holder is not None and holder != command.member_id:
        replace_static(draft, holder, command.member_id, fence_live=False)
        return
    if command.member_id not in group.members:
        if len(group.members) >= limits.max_size:
            raise GroupMaxSizeReached(f"the group has {limits.max_size} members")
    elif group.current(command.member_id) != NEW_MEMBER:
        # It starts again: it has let go of everything, or it never got our answer.
        draft.record(MemberReconciled(group.group_id, command.member_id, NEW_MEMBER))


def _check_epoch(current: CurrentAssignment, command: ConsumerHeartbeat) -> None:
    if command.member_epoch == current.member_epoch:
        return
    # The answer that told it the new epoch may have been lost; it may be one behind.
    if command.member_epoch == current.previous_epoch and _is_part_of(
        command.owned, current.assigned
    ):
        return
    raise FencedMemberEpoch(
        f"member {command.member_id} is at epoch {current.member_epoch}, not "
        f"{command.member_epoch}; it must let go of its partitions and join again"
    )


def _is_part_of(owned: Assignment | None, assigned: Assignment) -> bool:
    return owned is not None and all(
        index in assigned.get(topic_id, ()) for topic_id, indexes in owned.items()
        for index in indexes
    )  # fmt: skip


def _subscription(group: ConsumerGroup, command: ConsumerHeartbeat) -> Subscription:
    known = group.members.get(command.member_id)
    if known is None or command.member_epoch == JOINING_EPOCH:
        known = Subscription(None, None, "", "", (), None, -1, None)
    names, regex = command.topic_names, command.topic_regex
    timeout_ms = command.rebalance_timeout_ms
    return Subscription(
        known.instance_id if command.instance_id is None else command.instance_id,
        known.rack_id if command.rack_id is None else command.rack_id,
        command.client_id,
        command.client_host,
        known.topic_names if names is None else tuple(sorted(dict.fromkeys(names))),
        known.topic_regex if regex is None else regex or None,
        known.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
        known.server_assignor if command.server_assignor is None else command.server_assignor,
    )


# --- leaving and failing --------------------------------------------------------------------------


def _leave(draft: ConsumerDraft, command: ConsumerHeartbeat, topics: TopicsView) -> HeartbeatReply:
    group, member_id = draft.state, command.member_id
    subscription = group.require_member(member_id, command.instance_id)
    reply = HeartbeatReply(member_id, command.member_epoch, 0)
    if command.member_epoch == STATIC_LEAVING_EPOCH:
        if subscription.instance_id is None:
            raise InvalidRequest("only a static member leaves for a while")
        # It keeps its partitions; its session, which goes on, says how long.
        current = group.current(member_id).with_all_given_back(STATIC_LEAVING_EPOCH)
        draft.record(MemberReconciled(group.group_id, member_id, current))
        return reply
    remove_members(draft, [member_id], topics)
    return reply


def timer_fired(group: ConsumerGroup, timer: Timer, topics: TopicsView, now_ms: int) -> Decision:
    """A member was silent too long, or did not give its partitions back in time."""
    draft: ConsumerDraft = Draft(group, now_ms)
    if timer.member_id in group.members:
        remove_members(draft, [timer.member_id], topics)
    return draft.decided()
