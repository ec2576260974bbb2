"""The broker's topics as KIP-848 groups see them."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, Protocol

from penstock.model.consumer_group_records import SubscribedTopic
from penstock.model.topic import Topic, is_internal


class TopicSource(Protocol):
    """What the groups need of `services.topics.Topics`."""

    on_created: list[Callable[[Topic], None]]
    on_changed: list[Callable[[Topic, Any], None]]
    on_deleted: list[Callable[[Topic], Awaitable[None]]]

    def find(self, name: str) -> Topic | None: ...

    def by_id(self, topic_id: uuid.UUID) -> Topic | None: ...

    def all(self) -> Collection[Topic]: ...


class GroupTopics:
    """A view for the machines. `version` grows whenever a topic comes, grows or goes."""

    def __init__(
        self, topics: TopicSource, on_deleted: Callable[[Collection[str]], Awaitable[None]]
    ) -> None:
        self.version = 0
        self._topics = topics
        self._on_deleted = on_deleted
        topics.on_created.append(self._created)
        topics.on_changed.append(self._changed)
        topics.on_deleted.append(self._deleted)

    def __repr__(self) -> str:
        return f"<GroupTopics version {self.version}>"

    def find(self, name: str) -> SubscribedTopic | None:
        topic = self._topics.find(name)
        return None if topic is None else SubscribedTopic(topic.id, name, topic.partition_count)

    def names(self) -> Iterable[str]:
        """What patterns are matched with: internal topics must be named to be read.

        A consumer of `.*` would otherwise read its own commits, and commit that it did, for ever.
        """
        return (topic.name for topic in self._topics.all() if not is_internal(topic.name))

    def name_of(self, topic_id: uuid.UUID) -> str | None:
        topic = self._topics.by_id(topic_id)
        return None if topic is None else topic.name

    def _created(self, topic: Topic) -> None:
        self.version += 1

    def _changed(self, topic: Topic, settings: Any) -> None:
        self.version += 1

    async def _deleted(self, topic: Topic) -> None:
        self.version += 1
        await self._on_deleted((topic.name,))
