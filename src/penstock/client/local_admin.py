"""Administration of the home in this process: the services are asked directly."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.client.errors import InvalidArgument, NotFound
from penstock.client.views import GroupInfo, MemberInfo, PartitionInfo, TopicInfo
from penstock.errors import (
    BrokerError,
    CorruptRecord,
    GroupIdNotFound,
    UnknownTopicOrPartition,
)
from penstock.model import consumer_protocol
from penstock.model.ids import TopicPartition
from penstock.services.configs import Configs
from penstock.services.group_offsets import Commit, PartitionCommit
from penstock.services.groups import Groups
from penstock.services.partitions import Partitions
from penstock.services.topics import Topics


class LocalAdmin:
    """Topics and groups."""

    def __init__(
        self, topics: Topics, partitions: Partitions, groups: Groups, configs: Configs, node_id: int
    ) -> None:
        self._topics = topics
        self._partitions = partitions
        self._groups = groups
        self._configs = configs
        self._node_id = node_id

    # --- topics -----------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int | None,
        replication_factor: int | None,
        config: Mapping[str, str],
    ) -> None:
        await self._topics.create(
            name, partitions=partitions, replication_factor=replication_factor, config=dict(config)
        )

    async def delete_topic(self, name: str) -> None:
        await self._topics.delete(name)

    async def add_partitions(self, name: str, total: int) -> None:
        await self._topics.add_partitions(name, total)

    async def alter_topic(self, name: str, config: Mapping[str, str | None]) -> None:
        await self._topics.alter_config(name, dict(config))

    async def topic_config(self, name: str) -> dict[str, str]:
        return {
            setting.name: setting.value
            for setting in self._configs.describe_topic(name)
            if setting.value is not None
        }

    async def topic_names(self) -> list[str]:
        return [name for name in self._topics.names() if not name.startswith("__")]

    async def topic(self, name: str) -> TopicInfo:
        topic = self._topics.get(name)
        rows = [await self._partition(name, index) for index in range(topic.partition_count)]
        return TopicInfo(name=name, partitions=tuple(rows), config=dict(topic.config))

    async def _partition(self, name: str, index: int) -> PartitionInfo:
        replica = await self._partitions.replica(name, index)
        return PartitionInfo(
            partition=index,
            start_offset=replica.log.start_offset,
            end_offset=replica.high_watermark,
            leader=self._node_id,
            size_bytes=replica.log.size_bytes,
        )

    async def delete_records(self, place: TopicPartition, before: int) -> None:
        replica = await self._partitions.replica(*place)
        replica.delete_before(before)

    # --- groups -----------------------------------------------------------------------------------

    async def group_names(self) -> list[str]:
        return sorted(group.group_id for group in self._groups.list_groups())

    async def group(self, name: str) -> GroupInfo:
        state, members = self._state_and_members(name)
        offsets = {
            place: found.offset
            for place, found in self._groups.offsets.fetch_all(name, require_stable=False)
            if not isinstance(found, BrokerError) and found.offset >= 0
        }
        lag: dict[TopicPartition, int] = {}
        for place, offset in offsets.items():
            try:
                replica = await self._partitions.replica(*place)
            except UnknownTopicOrPartition:
                continue
            lag[place] = max(0, replica.high_watermark - offset)
        return GroupInfo(name=name, state=state, members=members, offsets=offsets, lag=lag)

    def _state_and_members(self, name: str) -> tuple[str, tuple[MemberInfo, ...]]:
        if not any(group.group_id == name for group in self._groups.list_groups()):
            raise NotFound(f"there is no group {name!r}")
        try:
            group = self._groups.consumers.describe(name)
        except GroupIdNotFound:
            return self._classic(name)
        return group.state, tuple(
            MemberInfo(
                member_id=member.member_id,
                client_id=member.client_id,
                host=member.client_host.lstrip("/"),
                assignment=tuple(
                    TopicPartition(topic.name, index)
                    for topic in member.assignment
                    for index in topic.partitions
                ),
            )
            for member in group.members
        )

    def _classic(self, name: str) -> tuple[str, tuple[MemberInfo, ...]]:
        group = self._groups.describe(name)
        return group.state, tuple(
            MemberInfo(
                member_id=member.member_id,
                client_id=member.client_id,
                host=member.client_host.lstrip("/"),
                assignment=_assigned(member.assignment),
            )
            for member in group.members
        )

    async def set_group_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        for place in offsets:
            if not self._topics.get(place.topic).has_partition(place.partition):
                raise InvalidArgument(f"there is no partition {place}")
        commits = [PartitionCommit(*place, offset) for place, offset in offsets.items()]
        for _, refusal in await self._groups.offsets.commit(Commit(name, "", None, -1, commits)):
            if refusal is not None:
                raise refusal

    async def delete_group(self, name: str) -> None:
        await self._groups.delete(name)


def _assigned(assignment: bytes) -> tuple[TopicPartition, ...]:
    try:
        topics = consumer_protocol.read_assignment(assignment)
    except CorruptRecord:  # a group of another kind than consumers
        return ()
    return tuple(TopicPartition(topic, index) for topic, indexes in topics for index in indexes)
