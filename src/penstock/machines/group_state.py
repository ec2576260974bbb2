"""A classic consumer group: what it is at one moment, and the records that change it.

    Empty ──join──► PreparingRebalance ──all joined──► CompletingRebalance ──leader syncs──► Stable
      ▲                ▲      ▲                              │                                 │
      └── no members ──┘      └──── join, leave, failure ────┴─────────────────────────────────┘

Only `GroupStored` is durable: as in Kafka, a group is written whole when a generation becomes
stable or empty, and a rebalance under way at a crash starts anew. The other records live in memory
and exist so that every change has a name and one place. `apply` cannot fail and looks at nothing
but its argument. A group that is Dead is one that is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from penstock.errors import CorruptRecord, FencedInstanceId, UnknownMember
from penstock.machines.decision import JoinedMember
from penstock.model import consumer_protocol
from penstock.model.offsets_topic import GroupStored, StoredGroup, StoredMember


class GroupState(StrEnum):
    """The names are those that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Member(NamedTuple):
    """A member of a classic group. `awaits_*`: it has a request parked until the phase ends."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    awaits_join: bool = False
    awaits_sync: bool = False
    is_new: bool = False  # has not been answered yet, so cannot be expected to heartbeat

    def metadata(self, protocol: str | None) -> bytes:
        return next((data for name, data in self.protocols if name == protocol), b"")

    def stored(self, protocol: str | None) -> StoredMember:
        return StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            self.assignment,
        )


# --- records that live in memory ------------------------------------------------------------------


class MemberIdGiven(NamedTuple):
    """A new member was told its id and must join again with it (KIP-394)."""

    member_id: str


class MemberIdWithdrawn(NamedTuple):
    """A member never came back with the id it was given."""

    member_id: str


class MemberJoined(NamedTuple):
    """A member joined, or joined again, and awaits the end of the join phase."""

    member: Member
    protocol_type: str


class MemberLeft(NamedTuple):
    member_id: str


class StaticMemberReplaced(NamedTuple):
    """A static member came back under a new id (KIP-345)."""

    old_member_id: str
    member: Member


class RebalanceStarted(NamedTuple):
    """Members are asked to join; `initial_until_ms` when a new group still waits for more."""

    at_ms: int
    initial_until_ms: int | None = None


class InitialDelayExtended(NamedTuple):
    """The first rebalance waits longer, because members keep coming."""


class GenerationStarted(NamedTuple):
    """The join phase is over: protocol and leader are chosen, assignments are awaited."""

    generation: int
    protocol: str
    leader: str
    at_ms: int


class SyncReceived(NamedTuple):
    """A member asked for its assignment; `parked` when it has to wait for the leader's."""

    member_id: str
    parked: bool


GroupRecord = (
    MemberIdGiven
    | MemberIdWithdrawn
    | MemberJoined
    | MemberLeft
    | StaticMemberReplaced
    | RebalanceStarted
    | InitialDelayExtended
    | GenerationStarted
    | SyncReceived
    | GroupStored
)


class Group:
    """The state of one classic group. Only `apply` changes it."""

    __slots__ = (
        "awaited_syncs",
        "generation",
        "given_ids",
        "group_id",
        "initial_until_ms",
        "is_stored",
        "leader",
        "member_added",
        "members",
        "protocol",
        "protocol_type",
        "state",
        "state_since_ms",
        "statics",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = -1
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.statics: dict[str, str] = {}  # instance id -> member id
        self.given_ids: dict[str, None] = {}  # ids of members that must join again
        self.awaited_syncs: dict[str, None] = {}  # members that have not asked for an assignment
        self.initial_until_ms: int | None = None  # set while the first rebalance waits for more
        self.member_added = False  # during that wait
        self.is_stored = False  # the journal knows this group

    def __repr__(self) -> str:
        return (
            f"<Group {self.group_id} {self.state} generation {self.generation} "
            f"members {len(self.members)}>"
        )

    def copy(self) -> Group:
        twin = Group.__new__(Group)
        for name in Group.__slots__:
            value = getattr(self, name)
            setattr(twin, name, dict(value) if isinstance(value, dict) else value)
        return twin

    # --- questions --------------------------------------------------------------------------------

    def joined(self) -> Iterator[Member]:
        return (member for member in self.members.values() if member.awaits_join)

    @property
    def all_joined(self) -> bool:
        return not self.given_ids and all(m.awaits_join for m in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    @property
    def is_gone(self) -> bool:
        """Nothing is left of the group but, perhaps, its offsets."""
        return not (self.members or self.given_ids or self.is_stored)

    def require_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member that speaks, or `UnknownMember`, or `FencedInstanceId`."""
        if instance_id is not None:
            holder = self.statics.get(instance_id)
            if holder is None:
                raise UnknownMember(f"no static member {instance_id} in group {self.group_id}")
            if holder != member_id:
                raise FencedInstanceId(f"static member {instance_id} is now {holder}")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"no member {member_id} in group {self.group_id}")
        return member

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether a member of these protocols and all that are here have one in common."""
        if not self.members:
            return bool(protocol_type and protocols)
        return protocol_type == self.protocol_type and any(
            all(any(name == offered for offered, _ in m.protocols) for m in self.members.values())
            for name, _ in protocols
        )

    def elected_protocol(self) -> str:
        """Each member votes for its first choice among what all support; most votes win."""
        members = list(self.members.values())
        common = [
            name
            for name, _ in members[0].protocols
            if all(any(name == offered for offered, _ in m.protocols) for m in members)
        ]
        votes: dict[str, int] = dict.fromkeys(common, 0)
        for member in members:
            choice = next(name for name, _ in member.protocols if name in votes)
            votes[choice] += 1
        return max(votes, key=votes.__getitem__)

    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics the members read; None when that cannot be known (another protocol type)."""
        if self.protocol_type != consumer_protocol.PROTOCOL_TYPE or self.protocol is None:
            return frozenset() if not self.members else None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                topics.update(
                    consumer_protocol.read_subscription(member.metadata(self.protocol)).topics
                )
            except CorruptRecord:
                return None
        return frozenset(topics)

    def joined_members(self) -> tuple[JoinedMember, ...]:
        """What the leader needs to know to assign."""
        return tuple(
            JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol))
            for m in self.members.values()
        )

    def as_stored(self) -> StoredGroup:
        return StoredGroup(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.leader,
            self.state_since_ms,
            tuple(member.stored(self.protocol) for member in self.members.values()),
        )

    # --- change -----------------------------------------------------------------------------------

    def apply(self, record: GroupRecord) -> None:
        match record:
            case MemberIdGiven(member_id):
                self.given_ids[member_id] = None
            case MemberIdWithdrawn(member_id):
                self.given_ids.pop(member_id, None)
            case MemberJoined(member, protocol_type):
                self._joined(member, protocol_type)
            case MemberLeft(member_id):
                self._left(member_id)
            case StaticMemberReplaced(old_member_id, member):
                self._replaced(old_member_id, member)
            case RebalanceStarted(at_ms, initial_until_ms):
                self._rebalance_started(at_ms, initial_until_ms)
            case InitialDelayExtended():
                self.member_added = False
            case GenerationStarted():
                self._generation_started(record)
            case SyncReceived(member_id, parked):
                self.awaited_syncs.pop(member_id, None)
                self.members[member_id] = self.members[member_id]._replace(awaits_sync=parked)
            case GroupStored(_, value):
                self._stored(value)

    def _joined(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.given_ids.pop(member.member_id, None)
        if member.member_id not in self.members and self.initial_until_ms is not None:
            self.member_added = True
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def _left(self, member_id: str) -> None:
        self.given_ids.pop(member_id, None)
        self.awaited_syncs.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        if member.instance_id is not None and self.statics.get(member.instance_id) == member_id:
            del self.statics[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def _replaced(self, old_member_id: str, member: Member) -> None:
        # The dictionary is rebuilt so that the newcomer has the place of the one it replaces.
        self.members = {
            (member.member_id if member_id == old_member_id else member_id): (
                member if member_id == old_member_id else other
            )
            for member_id, other in self.members.items()
        }
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        if old_member_id in self.awaited_syncs:
            del self.awaited_syncs[old_member_id]
            self.awaited_syncs[member.member_id] = None
        if self.leader == old_member_id:
            self.leader = member.member_id

    def _rebalance_started(self, at_ms: int, initial_until_ms: int | None) -> None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            for member_id, member in self.members.items():
                self.members[member_id] = member._replace(assignment=b"", awaits_sync=False)
        self.state, self.state_since_ms = GroupState.PREPARING_REBALANCE, at_ms
        self.initial_until_ms = initial_until_ms
        self.member_added = False
        self.awaited_syncs.clear()

    def _generation_started(self, record: GenerationStarted) -> None:
        self.state, self.state_since_ms = GroupState.COMPLETING_REBALANCE, record.at_ms
        self.generation, self.protocol = record.generation, record.protocol
        self.leader = record.leader
        self.initial_until_ms = None
        for member_id, member in self.members.items():
            self.members[member_id] = member._replace(awaits_join=False, is_new=False)
        self.awaited_syncs = dict.fromkeys(self.members)

    def _stored(self, value: StoredGroup | None) -> None:
        self.initial_until_ms = None
        self.is_stored = value is not None
        if value is None:
            self.members, self.statics, self.awaited_syncs = {}, {}, {}
            self.state, self.leader, self.protocol = GroupState.EMPTY, None, None
            return
        self.protocol_type = value.protocol_type or None
        self.generation, self.protocol = value.generation, value.protocol
        self.leader, self.state_since_ms = value.leader, value.state_since_ms
        self.state = GroupState.STABLE if value.members else GroupState.EMPTY
        self.members = {m.member_id: self._restored(m, value) for m in value.members}
        self.statics = {
            m.instance_id: m.member_id for m in value.members if m.instance_id is not None
        }

    def _restored(self, stored: StoredMember, group: StoredGroup) -> Member:
        """The member as stored, with the other protocols it offered if memory knows them."""
        here = self.members.get(stored.member_id)
        protocols: tuple[tuple[str, bytes], ...] = ((group.protocol or "", stored.subscription),)
        if here is not None and here.metadata(group.protocol) == stored.subscription:
            protocols = here.protocols
        return Member(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.session_timeout_ms,
            stored.rebalance_timeout_ms,
            protocols,
            stored.assignment,
        )
