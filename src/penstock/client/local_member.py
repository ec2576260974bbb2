"""A member of a consumer group that lives in the broker's own process (KIP-848).

It says what a Kafka client would say over the wire, but to the service itself. So members in this
process and clients at the Kafka door share groups. `beat` is one heartbeat; what it changes is in
`target`: the partitions this member is to own, while `owned` is what it says it owns.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping

from penstock.client.errors import InvalidArgument, of_broker_error
from penstock.client.home import StreamOptions
from penstock.errors import (
    BrokerError,
    FencedMemberEpoch,
    GroupIdNotFound,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMember,
)
from penstock.model.ids import TopicPartition
from penstock.services.consumer_groups import ConsumerHeartbeat
from penstock.services.group_offsets import Commit, PartitionCommit
from penstock.services.groups import Groups
from penstock.services.topics import Topics

JOINING, LEAVING, STATIC_LEAVING = 0, -1, -2
EXPELLED = (UnknownMember, FencedMemberEpoch, GroupIdNotFound)

Places = frozenset[TopicPartition]


class Expelled(Exception):
    """The group went on without this member; it must join again, owning nothing."""


class LocalMember:
    """One member of one group."""

    def __init__(self, groups: Groups, topics: Topics, group: str, options: StreamOptions) -> None:
        if not group:
            raise InvalidArgument("a group needs a name")
        self.group = group
        self.member_id = str(uuid.uuid4())
        self.epoch = JOINING
        self.owned: Places = frozenset()
        self.target: Places = frozenset()
        self._groups = groups
        self._topics = topics
        self._options = options

    def __repr__(self) -> str:
        return f"<LocalMember of {self.group} epoch {self.epoch} owns {sorted(self.owned)}>"

    @property
    def is_settled(self) -> bool:
        """Whether it is in the group and has what it is to have."""
        return self.epoch > 0 and self.owned == self.target

    async def beat(self, owned: Places | None = None) -> None:
        """One heartbeat; with `owned`, telling that this is what the member has now."""
        joining = self.epoch == JOINING
        if owned is not None:
            self.owned = owned
        options = self._options
        try:
            reply = await self._groups.consumers.heartbeat(
                self.group,
                ConsumerHeartbeat(
                    self.member_id,
                    self.epoch,
                    options.instance_id,
                    None,
                    options.client_id,
                    "/in-process",
                    int(options.max_poll_interval * 1000) if joining else -1,
                    self._topic_names() if joining else None,
                    options.pattern if joining else None,
                    None,
                    self._by_id(self.owned) if joining or owned is not None else None,
                ),
            )
        except EXPELLED as expelled:
            self._forget()
            raise Expelled(str(expelled)) from None
        except BrokerError as refusal:
            raise of_broker_error(refusal) from refusal
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.target = self._by_name(reply.assignment)

    def _topic_names(self) -> tuple[str, ...]:
        return self._options.topics if self._options.pattern is None else ()

    def _forget(self) -> None:
        self.epoch = JOINING
        self.owned = self.target = frozenset()

    def _by_id(self, places: Iterable[TopicPartition]) -> dict[uuid.UUID, tuple[int, ...]]:
        found: dict[uuid.UUID, list[int]] = {}
        for place in sorted(places):
            topic = self._topics.find(place.topic)
            if topic is not None:
                found.setdefault(topic.id, []).append(place.partition)
        return {topic_id: tuple(indexes) for topic_id, indexes in found.items()}

    def _by_name(self, assignment: Mapping[uuid.UUID, tuple[int, ...]]) -> Places:
        return frozenset(
            TopicPartition(topic.name, index)
            for topic_id, indexes in assignment.items()
            if (topic := self._topics.by_id(topic_id)) is not None
            for index in indexes
        )

    async def leave(self) -> None:
        """Go. A static member keeps its partitions for the time of its session."""
        if self.epoch == JOINING:
            return
        self.epoch = LEAVING if self._options.instance_id is None else STATIC_LEAVING
        with contextlib.suppress(Expelled):  # then it is gone already
            await self.beat()
        self._forget()

    # --- offsets ----------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Remember offsets; a heartbeat mends an epoch that is behind."""
        refusal: BrokerError | None = None
        for _ in range(3):
            try:
                answers = await self._groups.offsets.commit(self.as_commit(offsets))
                refusal = next((refused for _, refused in answers if refused is not None), None)
            except BrokerError as failure:
                refusal = failure
            if not isinstance(refusal, StaleMemberEpoch | RebalanceInProgress):
                break
            try:
                await self.beat(self.owned)  # all of it: a lost answer is known by that
            except Expelled:
                break
        if refusal is not None:
            raise of_broker_error(refusal) from refusal

    def as_commit(self, offsets: Mapping[TopicPartition, int]) -> Commit:
        """A commit in this member's name."""
        return Commit(
            self.group,
            self.member_id,
            self._options.instance_id,
            self.epoch,
            [PartitionCommit(*place, offset) for place, offset in offsets.items()],
        )
