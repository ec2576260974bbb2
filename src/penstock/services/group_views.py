"""Groups as values, for those who ask about them: tools, the HTTP door, metrics."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from penstock.machines.group_state import GroupState
from penstock.services.group_lane import GroupType, Lane


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in a list."""

    group_id: str
    protocol_type: str
    state: str
    group_type: GroupType


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member of a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A classic group, whole. What members said is shown when the group is stable."""

    group_id: str
    state: str
    protocol_type: str = ""
    protocol: str = ""
    generation: int = -1
    leader: str = ""
    members: tuple[DescribedMember, ...] = ()


@dataclass(frozen=True, slots=True)
class AssignedTopic:
    """Partitions of one topic."""

    topic_id: uuid.UUID
    name: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DescribedConsumer:
    """A member of a KIP-848 group."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    assignment: tuple[AssignedTopic, ...]
    target: tuple[AssignedTopic, ...]
    is_classic: bool


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    """A KIP-848 group, whole."""

    group_id: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedConsumer, ...]


@dataclass(frozen=True, slots=True)
class DescribedSharer:
    """A member of a share group."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    assignment: tuple[AssignedTopic, ...]


@dataclass(frozen=True, slots=True)
class DescribedShareGroup:
    """A share group, whole."""

    group_id: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedSharer, ...]


def listed(lane: Lane) -> ListedGroup:
    protocol_type = lane.classic.protocol_type or ""
    if lane.share is not None:
        protocol_type = "share"
    elif lane.consumer is not None:
        protocol_type = "consumer"
    return ListedGroup(lane.group_id, protocol_type, str(lane.state), lane.group_type)


def described(lane: Lane) -> DescribedGroup:
    """A lane whose group is a classic one."""
    group = lane.classic
    is_stable = group.state is GroupState.STABLE
    members = tuple(
        DescribedMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.metadata(group.protocol) if is_stable else b"",
            member.assignment,
        )
        for member in group.members.values()
    )
    return DescribedGroup(
        group.group_id,
        str(group.state),
        group.protocol_type or "",
        (group.protocol or "") if is_stable else "",
        group.generation,
        group.leader or "",
        members,
    )
