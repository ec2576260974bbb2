"""Who may commit to and read from a KIP-848 group, and the records that make one be forgotten."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import IllegalGeneration, StaleMemberEpoch, UnsupportedVersion
from penstock.machines.consumer_group import ConsumerGroup
from penstock.model.consumer_group_records import (
    ConsumerGroupRecord,
    GroupEpochBumped,
    MemberReconciled,
    MemberSubscribed,
    RegexResolved,
    SubscribedTopicsChanged,
    TargetAssigned,
    TargetEpochReached,
)


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    partitions: Iterable[tuple[str, int]] = (),
    *,
    transactional: bool = False,
    knows_epochs: bool = True,
) -> None:
    """A member commits under its epoch; anybody may while the group has no members.

    An earlier epoch is good enough when the member has had every partition since then (KIP-1251):
    a commit that crosses a rebalance need not be sent again.

    A member of the new protocol that commits with a request from before it cannot be told that its
    epoch is stale, so such a request is refused.
    """
    if epoch < 0 and not group.members:
        return
    if transactional and not member_id and instance_id is None:
        return  # TxnOffsetCommit need not say who commits
    if not (knows_epochs or transactional):
        subscription = group.require_member(member_id, instance_id)
        if subscription.classic is None:
            raise UnsupportedVersion(
                "members of consumer groups commit with OffsetCommit 9 or later"
            )
    try:
        _check_epoch(group, member_id, instance_id, epoch)
    except (IllegalGeneration, StaleMemberEpoch):
        if not _has_had(group, member_id, epoch, partitions):
            raise


def _has_had(
    group: ConsumerGroup, member_id: str, epoch: int, partitions: Iterable[tuple[str, int]]
) -> bool:
    current = group.current(member_id)
    if not 0 < epoch < current.member_epoch:
        return False
    for name, partition in partitions:
        topic = group.topics.get(name)
        since = None if topic is None else current.since(topic.topic_id, partition)
        if since is None or since > epoch:
            return False
    return True


def check_fetch(group: ConsumerGroup, member_id: str | None, epoch: int) -> None:
    """Tools read without a name; a member reads under its epoch."""
    if epoch < 0 and not member_id:
        return
    _check_epoch(group, member_id or "", None, epoch)


def _check_epoch(group: ConsumerGroup, member_id: str, instance_id: str | None, epoch: int) -> None:
    subscription = group.require_member(member_id, instance_id)
    known = group.current(member_id).member_epoch
    if epoch == known:
        return
    message = f"member {member_id} is at epoch {known}, not {epoch}"
    if subscription.classic is not None:
        raise IllegalGeneration(message)
    raise StaleMemberEpoch(message)


def member_tombstones(group: ConsumerGroup, member_id: str) -> list[ConsumerGroupRecord]:
    """The records that take one member out."""
    return [
        MemberReconciled(group.group_id, member_id, None),
        TargetAssigned(group.group_id, member_id, None),
        MemberSubscribed(group.group_id, member_id, None),
    ]


def tombstones(group: ConsumerGroup) -> list[ConsumerGroupRecord]:
    """The records after which nothing of the group is left."""
    group_id = group.group_id
    member_ids = dict.fromkeys([*group.members, *group.targets, *group.currents])
    records: list[ConsumerGroupRecord] = []
    for member_id in member_ids:
        records += member_tombstones(group, member_id)
    records += [RegexResolved(group_id, regex, None) for regex in group.regexes]
    records += [
        TargetEpochReached(group_id, None),
        SubscribedTopicsChanged(group_id, None),
        GroupEpochBumped(group_id, None),
    ]
    return records
