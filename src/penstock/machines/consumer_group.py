"""A KIP-848 consumer group: what it is at one moment, and how its records change it.

Three epochs tell who is behind. The group epoch grows when the group or its topics change; the
target epoch is the group epoch for which a target assignment was computed; a member's epoch is the
target that it has reached. A member gives partitions back before anybody else is given them: a
partition has one owner (`owners`) from the record that assigns it until the record that follows
the member's word that it stopped.

    Empty ── member ──► Assigning ── target computed ──► Reconciling ── all members there ──► Stable

Every record is durable and in Kafka's bytes. Records of one member may come in any order in a
compacted log, so each kind is kept by itself and `apply` assumes nothing about the others.
Decisions are in `consumer_group_heartbeat`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from enum import IntEnum, StrEnum

from penstock.errors import FencedInstanceId, UnknownMember
from penstock.model.consumer_group_records import (
    ConsumerGroupRecord,
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

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2  # a static member that will come back


class ConsumerGroupState(StrEnum):
    """The names are those that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(IntEnum):
    """Where a member is on the way to its target. The numbers are on disk."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1  # it must give partitions back first
    UNRELEASED_PARTITIONS = 2  # others still have partitions it will get


NOTHING: Assignment = {}
NEW_MEMBER = CurrentAssignment(0, 0, MemberState.STABLE, NOTHING, NOTHING)


class ConsumerGroup:
    """The state of one KIP-848 group. Only `apply` changes it."""

    __slots__ = (
        "currents",
        "epoch",
        "group_id",
        "members",
        "owners",
        "regexes",
        "statics",
        "target_epoch",
        "targets",
        "topics",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.topics: dict[str, SubscribedTopic] = {}  # by name: what the group reads
        self.members: dict[str, Subscription] = {}
        self.targets: dict[str, Assignment] = {}
        self.currents: dict[str, CurrentAssignment] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        self.statics: dict[str, str] = {}  # instance id -> member id
        self.owners: dict[tuple[uuid.UUID, int], str] = {}  # member that has the partition

    def __repr__(self) -> str:
        return (
            f"<ConsumerGroup {self.group_id} {self.state} epoch {self.epoch} "
            f"target {self.target_epoch} members {len(self.members)}>"
        )

    def copy(self) -> ConsumerGroup:
        twin = ConsumerGroup.__new__(ConsumerGroup)
        for name in ConsumerGroup.__slots__:
            value = getattr(self, name)
            setattr(twin, name, dict(value) if isinstance(value, dict) else value)
        return twin

    # --- questions --------------------------------------------------------------------------------

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self.is_reconciled(member_id) for member_id in self.members):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    @property
    def is_gone(self) -> bool:
        return not (
            self.epoch
            or self.members
            or self.currents
            or self.targets
            or self.target_epoch
            or self.topics
            or self.regexes
        )

    def current(self, member_id: str) -> CurrentAssignment:
        return self.currents.get(member_id, NEW_MEMBER)

    def is_reconciled(self, member_id: str) -> bool:
        current = self.current(member_id)
        return current.state == MemberState.STABLE and current.member_epoch == self.target_epoch

    def require_member(self, member_id: str, instance_id: str | None) -> Subscription:
        """The member that speaks, or `UnknownMember`, or `FencedInstanceId`."""
        if instance_id is not None:
            holder = self.statics.get(instance_id)
            if holder is None:
                raise UnknownMember(f"no static member {instance_id} in group {self.group_id}")
            if holder != member_id:
                raise FencedInstanceId(f"static member {instance_id} is now {holder}")
        subscription = self.members.get(member_id)
        if subscription is None:
            raise UnknownMember(f"no member {member_id} in group {self.group_id}")
        return subscription

    def topic_names(self, member_id: str) -> Iterator[str]:
        """What a member reads: the topics it names, and those its pattern matched."""
        subscription = self.members[member_id]
        yield from subscription.topic_names
        resolved = self.regexes.get(subscription.topic_regex or "")
        if resolved is not None:
            yield from resolved.topic_names

    def reads_topic(self, name: str) -> bool:
        return any(name in self.topic_names(member_id) for member_id in self.members)

    # --- change -----------------------------------------------------------------------------------

    def apply(self, record: ConsumerGroupRecord) -> None:
        match record:
            case GroupEpochBumped(_, epoch):
                self.epoch = epoch or 0
            case TargetEpochReached(_, epoch):
                self.target_epoch = epoch or 0
            case SubscribedTopicsChanged(_, topics):
                self.topics = {topic.name: topic for topic in topics or ()}
            case MemberSubscribed(_, member_id, subscription):
                self._subscribed(member_id, subscription)
            case TargetAssigned(_, member_id, target):
                if target is None:
                    self.targets.pop(member_id, None)
                else:
                    self.targets[member_id] = target
            case MemberReconciled(_, member_id, current):
                self._reconciled(member_id, current)
            case RegexResolved(_, regex, resolved):
                if resolved is None:
                    self.regexes.pop(regex, None)
                else:
                    self.regexes[regex] = resolved

    def _subscribed(self, member_id: str, subscription: Subscription | None) -> None:
        before = self.members.get(member_id)
        instance_id = None if before is None else before.instance_id
        # The static member may have been given to a newer member id already.
        if instance_id is not None and self.statics.get(instance_id) == member_id:
            del self.statics[instance_id]
        if subscription is None:
            self.members.pop(member_id, None)
            return
        self.members[member_id] = subscription
        if subscription.instance_id is not None:
            self.statics[subscription.instance_id] = member_id

    def _reconciled(self, member_id: str, current: CurrentAssignment | None) -> None:
        for partition in _partitions(self.currents.pop(member_id, None)):
            if self.owners.get(partition) == member_id:
                del self.owners[partition]
        if current is not None:
            self.currents[member_id] = current
            for partition in _partitions(current):
                self.owners[partition] = member_id


def _partitions(current: CurrentAssignment | None) -> Iterator[tuple[uuid.UUID, int]]:
    """Everything a member has or has not yet given back."""
    if current is None:
        return
    for assignment in (current.assigned, current.pending_revocation):
        for topic_id, partitions in assignment.items():
            for partition in partitions:
                yield topic_id, partition
