"""Who reads what: the server-side assignors of KIP-848, as pure functions.

`uniform` gives every member the same number of partitions, give or take one, and moves as few as
it can from the last target. `range` gives each member the same slice of every topic, so that equal
keys of topics with equal partition counts meet in one member.

Both are deterministic: the same question has the same answer on every broker and in every replay.
No partition is ever given to two members, nor to one that did not subscribe to its topic.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from penstock.model.group_record import Assignment

Partition = tuple[uuid.UUID, int]


class AssignedMember(NamedTuple):
    """What an assignor needs to know of a member."""

    topic_ids: tuple[uuid.UUID, ...]  # that it reads and that exist
    target: Assignment  # what it was to have before
    instance_id: str | None = None


Members = Mapping[str, AssignedMember]
PartitionCounts = Mapping[uuid.UUID, int]
Assignor = Callable[[Members, PartitionCounts], dict[str, Assignment]]


def range_(members: Members, counts: PartitionCounts) -> dict[str, Assignment]:
    """Each topic cut into even slices, dealt to its readers in the order of their names."""
    ordered = sorted(members, key=lambda m: _range_order(m, members[m]))
    given: dict[str, dict[uuid.UUID, tuple[int, ...]]] = {member_id: {} for member_id in members}
    for topic_id, count in counts.items():
        readers = [m for m in ordered if topic_id in members[m].topic_ids]
        start = 0
        for at, member_id in enumerate(readers):
            size = count // len(readers) + (at < count % len(readers))
            if size:
                given[member_id][topic_id] = tuple(range(start, start + size))
            start += size
    return dict(given)


def _range_order(member_id: str, member: AssignedMember) -> tuple[bool, str]:
    # Static members first, by a name that survives restarts, so that slices stay where they are.
    return member.instance_id is None, member.instance_id or member_id


def uniform(members: Members, counts: PartitionCounts) -> dict[str, Assignment]:
    """Even numbers of partitions, as few moves as possible."""
    if not members:
        return {}
    held = _kept(members, counts)
    taken = {partition for partitions in held.values() for partition in partitions}
    read = dict.fromkeys(topic_id for m in members.values() for topic_id in m.topic_ids)
    free = [
        (topic_id, index)
        for topic_id in counts
        if topic_id in read
        for index in range(counts[topic_id])
        if (topic_id, index) not in taken
    ]
    if all(len(member.topic_ids) == len(read) for member in members.values()):
        _share_evenly(held, free)
    else:
        _share_by_load(held, free, members)
    return {member_id: as_assignment(partitions) for member_id, partitions in held.items()}


def _kept(members: Members, counts: PartitionCounts) -> dict[str, list[Partition]]:
    """What each member had and may keep, each partition once."""
    seen: dict[Partition, None] = {}
    held: dict[str, list[Partition]] = {}
    for member_id in sorted(members):
        member = members[member_id]
        mine = held[member_id] = []
        for topic_id, indexes in member.target.items():
            if topic_id not in member.topic_ids:
                continue
            for index in indexes:
                partition = (topic_id, index)
                if index < counts.get(topic_id, 0) and partition not in seen:
                    seen[partition] = None
                    mine.append(partition)
    return held


def _share_evenly(held: dict[str, list[Partition]], free: list[Partition]) -> None:
    """All members read the same topics, so a quota for each is enough."""
    total = len(free) + sum(map(len, held.values()))
    quota, extras = divmod(total, len(held))
    # Those who have most keep the extra ones: that moves least.
    for member_id in sorted(held, key=lambda m: (-len(held[m]), m)):
        allowed = quota + (1 if extras and len(held[member_id]) > quota else 0)
        extras -= allowed > quota
        free += held[member_id][allowed:]
        del held[member_id][allowed:]
    # Dealt one by one, so that the partitions of one topic go to different members.
    hungry = sorted(held, key=lambda m: (len(held[m]), m))
    at = 0
    for partition in free:
        while True:
            member_id = hungry[at % len(hungry)]
            at += 1
            size = len(held[member_id])
            if size < quota:
                break
            if size == quota and extras:
                extras -= 1
                break
        held[member_id].append(partition)


def _share_by_load(
    held: dict[str, list[Partition]], free: Iterable[Partition], members: Members
) -> None:
    """Members read different topics: give to the least loaded, then even out pair by pair."""
    readers: dict[uuid.UUID, list[str]] = {}
    for member_id in sorted(members):
        for topic_id in members[member_id].topic_ids:
            readers.setdefault(topic_id, []).append(member_id)
    # Topics with few readers first: the others can still go elsewhere.
    for partition in sorted(free, key=lambda p: len(readers[p[0]])):
        least = min(readers[partition[0]], key=lambda m: len(held[m]))
        held[least].append(partition)
    moved = True
    while moved:  # each move makes the loads of two members more alike, so it ends
        moved = False
        for topic_id, candidates in readers.items():
            moved |= _even_out(held, topic_id, candidates)


def _even_out(held: dict[str, list[Partition]], topic_id: uuid.UUID, readers: list[str]) -> bool:
    moved = False
    while True:
        owners = [m for m in readers if any(p[0] == topic_id for p in held[m])]
        if not owners:
            return moved
        most = max(owners, key=lambda m: len(held[m]))
        least = min(readers, key=lambda m: len(held[m]))
        if len(held[most]) - len(held[least]) < 2:
            return moved
        partition = next(p for p in reversed(held[most]) if p[0] == topic_id)
        held[most].remove(partition)
        held[least].append(partition)
        moved = True


def as_assignment(partitions: Iterable[Partition]) -> Assignment:
    """Partitions by topic, in ascending order."""
    by_topic: dict[uuid.UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(index)
    return {topic_id: tuple(indexes) for topic_id, indexes in by_topic.items()}


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": range_}
