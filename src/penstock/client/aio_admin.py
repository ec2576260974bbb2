"""Administration, for code with an event loop. The calls are those of `admin.Admin`."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.client.admin import ConfigValue, check_new_topic, config_text
from penstock.client.home import EARLIEST, Home, Start
from penstock.client.views import ClusterInfo, GroupInfo, TopicInfo
from penstock.model.ids import TopicPartition


class AsyncAdmin:
    """Topics, groups and the server."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, ConfigValue] | None = None,
    ) -> None:
        """Create a topic; what is not said is as the server's defaults are."""
        settings = {key: value for key, value in config_text(config).items() if value is not None}
        check_new_topic(name, partitions)
        home = self._home
        await home.arun(home.create_topic(name, partitions, replication_factor, settings))

    async def delete_topic(self, name: str) -> None:
        """Delete a topic and everything in it."""
        await self._home.arun(self._home.delete_topic(name))

    async def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions."""
        await self._home.arun(self._home.add_partitions(name, total))

    async def alter_topic(self, name: str, config: Mapping[str, ConfigValue | None]) -> None:
        """Change settings of a topic; None takes one back to its default."""
        await self._home.arun(self._home.alter_topic(name, config_text(config)))

    async def topic_config(self, name: str) -> dict[str, str]:
        """Every setting of a topic that is in force."""
        return await self._home.arun(self._home.topic_config(name))

    async def topics(self) -> list[str]:
        """The names of all topics but the server's own."""
        return await self._home.arun(self._home.topic_names())

    async def topic(self, name: str) -> TopicInfo:
        """A topic with its partitions: sizes and offsets."""
        return await self._home.arun(self._home.topic(name))

    async def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Forget everything before an offset (-1: everything)."""
        place = TopicPartition(topic, partition)
        await self._home.arun(self._home.delete_records(place, before))

    async def groups(self) -> list[str]:
        """The names of all groups."""
        return await self._home.arun(self._home.group_names())

    async def group(self, name: str) -> GroupInfo:
        """A group: its members, committed offsets and lag."""
        return await self._home.arun(self._home.group(name))

    async def set_group_offsets(self, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Let a group without members go on from elsewhere."""
        places = {TopicPartition(*place): offset for place, offset in offsets.items()}
        await self._home.arun(self._home.set_group_offsets(name, places))

    async def reset_group(self, name: str, topic: str, to: Start = EARLIEST) -> None:
        """Let a group without members read a topic again from its beginning, end or a moment."""
        home = self._home
        partitions = (await self.topic(topic)).partitions
        places = [TopicPartition(topic, info.partition) for info in partitions]
        offsets = {place: await home.arun(home.find(place, to)) for place in places}
        await home.arun(home.set_group_offsets(name, offsets))

    async def delete_group(self, name: str) -> None:
        """Forget a group without members, and its offsets."""
        await self._home.arun(self._home.delete_group(name))

    async def cluster(self) -> ClusterInfo:
        """The server's brokers."""
        return await self._home.arun(self._home.cluster())
