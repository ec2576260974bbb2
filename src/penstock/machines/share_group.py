"""A share group (KIP-932): its members, and which partitions each of them reads.

The epochs are those of a KIP-848 group: the group's grows when members, subscriptions or topics
change, the target's is the group epoch it was computed for, a member's is the target that it was
told. But a partition may be read by many members, so nobody has to let go of anything before others
may have it: a member has reached its target as soon as it has heard of it.

    Empty ── first member ──► Stable ── last member leaves ──► Empty

`started` are the partitions for which the group has a journal. Who holds which record is the
business of the queue machine of each partition (`queue.py`), not of this one.
"""

from __future__ import annotations

import uuid
from enum import StrEnum

from penstock.errors import UnknownMember
from penstock.model.group_record import Assignment
from penstock.model.share_group_records import (
    ShareAssignment,
    ShareGroupEpochBumped,
    ShareGroupRecord,
    ShareMemberAssigned,
    ShareMemberSubscribed,
    SharePartitionsStarted,
    ShareSubscription,
    ShareTargetAssigned,
    ShareTargetEpochReached,
    StartedTopic,
)

NEW_MEMBER = ShareAssignment(0, 0, {})


class ShareGroupState(StrEnum):
    """The names are those that Kafka's tools show."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup:
    """The state of one share group. Only `apply` changes it."""

    __slots__ = ("currents", "epoch", "group_id", "members", "started", "target_epoch", "targets")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.target_epoch = 0
        self.members: dict[str, ShareSubscription] = {}
        self.targets: dict[str, Assignment] = {}
        self.currents: dict[str, ShareAssignment] = {}
        self.started: dict[uuid.UUID, StartedTopic] = {}

    def __repr__(self) -> str:
        return f"<ShareGroup {self.group_id} epoch {self.epoch} members {len(self.members)}>"

    def copy(self) -> ShareGroup:
        twin = ShareGroup.__new__(ShareGroup)
        for name in ShareGroup.__slots__:
            value = getattr(self, name)
            setattr(twin, name, dict(value) if isinstance(value, dict) else value)
        return twin

    # --- questions --------------------------------------------------------------------------------

    @property
    def state(self) -> ShareGroupState:
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def is_gone(self) -> bool:
        return not (
            self.epoch
            or self.target_epoch
            or self.members
            or self.targets
            or self.currents
            or self.started
        )

    def current(self, member_id: str) -> ShareAssignment:
        return self.currents.get(member_id, NEW_MEMBER)

    def require_member(self, member_id: str) -> ShareSubscription:
        subscription = self.members.get(member_id)
        if subscription is None:
            raise UnknownMember(f"no member {member_id} in group {self.group_id}")
        return subscription

    def reads_topic(self, name: str) -> bool:
        return any(name in member.topic_names for member in self.members.values())

    def has_started(self, topic_id: uuid.UUID, partition: int) -> bool:
        topic = self.started.get(topic_id)
        return topic is not None and partition in topic.partitions

    # --- change -----------------------------------------------------------------------------------

    def apply(self, record: ShareGroupRecord) -> None:
        match record:
            case ShareGroupEpochBumped(_, epoch):
                self.epoch = epoch or 0
            case ShareTargetEpochReached(_, epoch):
                self.target_epoch = epoch or 0
            case ShareMemberSubscribed(_, member_id, subscription):
                if subscription is None:
                    self.members.pop(member_id, None)
                else:
                    self.members[member_id] = subscription
            case ShareTargetAssigned(_, member_id, target):
                if target is None:
                    self.targets.pop(member_id, None)
                else:
                    self.targets[member_id] = target
            case ShareMemberAssigned(_, member_id, current):
                if current is None:
                    self.currents.pop(member_id, None)
                else:
                    self.currents[member_id] = current
            case SharePartitionsStarted(_, topics):
                self.started = dict(topics or {})


# --- records that make things be forgotten --------------------------------------------------------


def member_tombstones(group: ShareGroup, member_id: str) -> list[ShareGroupRecord]:
    """The records that take one member out."""
    return [
        ShareMemberAssigned(group.group_id, member_id, None),
        ShareTargetAssigned(group.group_id, member_id, None),
        ShareMemberSubscribed(group.group_id, member_id, None),
    ]


def tombstones(group: ShareGroup) -> list[ShareGroupRecord]:
    """The records after which nothing of the group is left."""
    group_id = group.group_id
    records: list[ShareGroupRecord] = []
    for member_id in dict.fromkeys([*group.members, *group.targets, *group.currents]):
        records += member_tombstones(group, member_id)
    records += [
        ShareTargetEpochReached(group_id, None),
        SharePartitionsStarted(group_id, None),
        ShareGroupEpochBumped(group_id, None),
    ]
    return records
