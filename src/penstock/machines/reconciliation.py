"""The next step of a KIP-848 member from what it has to what it is to have.

Revocation comes before assignment. A member that must give partitions back stays in its epoch until
it says that it no longer owns them; only then does it move to the target's epoch and get new ones,
and of those only the ones that nobody else still has:

    STABLE ──target changed──► UNREVOKED ──gave them back──► UNRELEASED ──others gave back──► STABLE
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from penstock.machines.consumer_group import MemberState
from penstock.model.consumer_group_records import CurrentAssignment
from penstock.model.group_record import Assignment, Epochs


def reconcile(
    current: CurrentAssignment,
    target: Assignment,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[uuid.UUID, int], bool],
    reads: Callable[[uuid.UUID], bool],
) -> CurrentAssignment:
    """Where the member stands after this heartbeat; the same object when it has not moved.

    `owned` is what the member says it has, None when it did not say. `is_free` tells whether a
    partition has no owner other than this member, `reads` whether it subscribes to a topic.
    """
    if current.state == MemberState.UNREVOKED_PARTITIONS:
        if _still_owns(owned, current.pending_revocation):
            return _without_unread(current, reads)
    elif current.state == MemberState.STABLE and current.member_epoch == target_epoch:
        return current
    following = _next_step(current, target, target_epoch, owned, is_free)
    # Nothing moved but the memory of the epoch before: not worth a record.
    unmoved = following._replace(previous_epoch=current.previous_epoch) == current
    return current if unmoved else following


def _next_step(
    current: CurrentAssignment,
    target: Assignment,
    target_epoch: int,
    owned: Assignment | None,
    is_free: Callable[[uuid.UUID, int], bool],
) -> CurrentAssignment:
    kept: dict[uuid.UUID, tuple[int, ...]] = {}
    to_revoke: dict[uuid.UUID, tuple[int, ...]] = {}
    for topic_id, indexes in current.assigned.items():
        wanted = target.get(topic_id, ())
        _put(kept, topic_id, tuple(index for index in indexes if index in wanted))
        _put(to_revoke, topic_id, tuple(index for index in indexes if index not in wanted))
    if to_revoke and _still_owns(owned, to_revoke):
        epoch = current.member_epoch
        if current.state == MemberState.UNREVOKED_PARTITIONS:
            epoch += 1  # it did give back what it was asked to; now there is more
        return CurrentAssignment(
            epoch,
            current.member_epoch,
            MemberState.UNREVOKED_PARTITIONS,
            kept,
            to_revoke,
            _epochs(current, target_epoch, kept, to_revoke),
        )
    must_wait = False
    for topic_id, indexes in target.items():
        have = kept.get(topic_id, ())
        missing = [index for index in indexes if index not in have]
        free = [index for index in missing if is_free(topic_id, index)]
        must_wait |= len(free) < len(missing)
        _put(kept, topic_id, tuple(sorted((*have, *free))))
    state = MemberState.UNRELEASED_PARTITIONS if must_wait else MemberState.STABLE
    epochs = _epochs(current, target_epoch, kept)
    return CurrentAssignment(target_epoch, current.member_epoch, state, kept, {}, epochs)


def _epochs(current: CurrentAssignment, target_epoch: int, *held: Assignment) -> Epochs:
    """Since when the member has each of these: those it had keep their epoch."""
    epochs: dict[tuple[uuid.UUID, int], int] = {}
    for assignment in held:
        for topic_id, indexes in assignment.items():
            had = current.assigned.get(topic_id, ())
            for index in indexes:
                since = current.since(topic_id, index) if index in had else None
                epochs[topic_id, index] = target_epoch if since is None else since
    return epochs


def _without_unread(
    current: CurrentAssignment, reads: Callable[[uuid.UUID], bool]
) -> CurrentAssignment:
    """A member that gives back already gives back what it no longer subscribes to, too."""
    unread = {topic_id: held for topic_id, held in current.assigned.items() if not reads(topic_id)}
    if not unread:
        return current
    kept = {topic_id: held for topic_id, held in current.assigned.items() if topic_id not in unread}
    revoked = dict(current.pending_revocation)
    for topic_id, held in unread.items():
        revoked[topic_id] = tuple(sorted((*revoked.get(topic_id, ()), *held)))
    return current._replace(assigned=kept, pending_revocation=revoked)


def _still_owns(owned: Assignment | None, revoked: Assignment) -> bool:
    if owned is None:
        return True  # it did not say, so nothing has changed
    return any(
        index in owned.get(topic_id, ())
        for topic_id, indexes in revoked.items()
        for index in indexes
    )


def _put(
    assignment: dict[uuid.UUID, tuple[int, ...]], topic_id: uuid.UUID, indexes: tuple[int, ...]
) -> None:
    if indexes:
        assignment[topic_id] = indexes
