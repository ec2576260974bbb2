"""The catalogue: what exists and how it is configured, apart from the data itself.

Topics, configuration of brokers and groups, client quotas, the last block of producer ids, and a
mirror of the consumer groups for people who look. This module is the interface; `sqlite` is its
home when a broker is alone.

Promises: a write that returned survives a crash; a write that raised did not happen; each write is
atomic. Writing a topic's row is the moment the topic exists, and removing it the moment it is gone:
directories of partitions carry the topic's id, and one whose id is not here is an orphan.

It does not check anything. Services decide, keep the state in memory and write it here.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from penstock.model.quota import QuotaEntity
from penstock.model.topic import Topic
from penstock.model.topic_config import TopicSettings

ResourceType = Literal["broker", "group"]


class Shown(NamedTuple):
    """The settings of a topic that have a column of their own: those in force, for people."""

    retention_ms: int
    max_message_bytes: int
    compression_type: str
    cleanup_policy: str

    @classmethod
    def of(cls, settings: TopicSettings) -> Shown:
        return cls(
            settings.retention_ms,
            settings.max_message_bytes,
            settings.compression_type,
            ",".join(sorted(settings.cleanup_policy)),
        )


class TopicRow(NamedTuple):
    """A row of the `topics` table. What it shows may be stale after the defaults changed."""

    topic: Topic
    shown: Shown


class GroupRow(NamedTuple):
    """A consumer group as the `consumer_groups` table shows it. A mirror: the log is the truth."""

    group_id: str
    coordinator_id: int
    state: str
    protocol_type: str
    generation_id: int
    leader_id: str
    created_at_ms: int
    last_heartbeat_ms: int


@dataclass(slots=True)
class Contents:
    """Everything in a catalogue, as read at the start of a broker."""

    topics: list[TopicRow] = field(default_factory=list)
    configs: dict[tuple[ResourceType, str], dict[str, str]] = field(default_factory=dict)
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)


class Catalogue(Protocol):
    """Where a broker keeps its catalogue. Errors of the disk are raised as StorageError."""

    async def load(self) -> Contents:
        """Everything, once, at the start."""

    async def put_topics(self, rows: Sequence[TopicRow]) -> None:
        """Create these topics, or replace the rows of those that exist."""

    async def show_topics(self, rows: Sequence[TopicRow]) -> None:
        """Refresh what the rows of these topics show. Topics deleted meanwhile stay deleted."""

    async def delete_topics(self, topic_ids: Collection[uuid.UUID]) -> None:
        """Forget these topics. Unknown ids are ignored."""

    async def put_config(
        self, resource: ResourceType, name: str, config: Mapping[str, str]
    ) -> None:
        """Replace the whole configuration of a resource; an empty one is forgotten."""

    async def put_quota(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        """Replace all quotas of an entity; none are forgotten."""

    async def reserve_producer_ids(self, count: int) -> int:
        """The first of `count` producer ids that were never given out before, and never will be."""

    async def put_groups(self, rows: Sequence[GroupRow]) -> None:
        """Show these groups in the mirror, in place of what it showed of them.

        The earliest time of creation stays: after a restart a group may not know its own.
        """

    async def delete_groups(self, group_ids: Collection[str]) -> None:
        """Take these groups out of the mirror."""

    async def keep_groups(self, group_ids: Collection[str]) -> None:
        """Take all other groups out of the mirror: those that went just before a crash."""

    async def close(self) -> None:
        """Finish what was begun and let go of the files."""
