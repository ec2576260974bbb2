"""Every partition of this broker, opened when it is first used.

A partition that nobody touches costs nothing here: its topic is a row of the catalogue, its files
are closed. `find` is the hot path, one dict look-up; `replica` opens what is not open yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

from penstock.errors import UnknownTopicOrPartition
from penstock.log.flusher import Flusher
from penstock.log.settings import LogSettings
from penstock.log.store import LogStore
from penstock.model.ids import TopicPartition
from penstock.model.topic import OFFSETS_TOPIC, Topic
from penstock.model.topic_config import TopicSettings
from penstock.runtime.clock import Clock
from penstock.services.replica import Replica
from penstock.services.topics import Topics

MarkerListener = Callable[[int, int, int, bool], None]

_LOG_FIELDS = tuple(LogSettings.__dataclass_fields__)


def log_settings(settings: TopicSettings) -> LogSettings:
    """The log's share of a topic's settings."""
    return LogSettings(**{name: getattr(settings, name) for name in _LOG_FIELDS})


class Partitions:
    """Replicas by topic name and partition."""

    def __init__(
        self, topics: Topics, store: LogStore, flusher: Flusher, clock: Clock, leader_epoch: int
    ) -> None:
        self._topics = topics
        self._store = store
        self._flusher = flusher
        self._clock = clock
        self.leader_epoch = leader_epoch
        self._replicas: dict[tuple[str, int], Replica] = {}
        self._opening: dict[tuple[str, int], asyncio.Task[Replica]] = {}
        # Told of every marker in the offsets topic: partition, producer id, epoch, committed.
        self.on_offsets_marker: MarkerListener | None = None
        topics.on_deleted.append(self._topic_deleted)
        topics.on_changed.append(self._topic_changed)

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self._replicas.values()))

    def find(self, topic: str, partition: int) -> Replica | None:
        """The replica if it is open."""
        return self._replicas.get((topic, partition))

    async def replica(self, topic: str, partition: int) -> Replica:
        """The replica, opened if need be; `UnknownTopicOrPartition` if there is none."""
        found = self._replicas.get((topic, partition))
        if found is not None:
            return found
        known = self._topics.find(topic)
        if known is None or not known.has_partition(partition):
            raise UnknownTopicOrPartition(f"there is no partition {partition} of topic {topic!r}")
        key = (topic, partition)
        opening = self._opening.get(key)
        if opening is None:
            opening = self._opening[key] = asyncio.create_task(self._open(known, partition))
            opening.add_done_callback(partial(self._opened, key))
        # Shielded: one client that goes away must not end the opening that others wait for.
        return await asyncio.shield(opening)

    def _opened(self, key: tuple[str, int], task: asyncio.Task[Replica]) -> None:
        if self._opening.get(key) is task:  # else its topic is gone, and there may be another
            del self._opening[key]

    async def _open(self, topic: Topic, partition: int) -> Replica:
        settings = self._topics.settings(topic.name)
        log = self._store.get(topic.name, topic.id, partition, log_settings(settings))
        replica = Replica(topic.name, partition, log, self._flusher, settings, self.leader_epoch)
        await replica.load(self._clock.now_ms())
        if log.retired:
            raise UnknownTopicOrPartition(f"topic {topic.name!r} has just been deleted")
        self._replicas[topic.name, partition] = replica
        return replica

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """How far readers may see in every open partition, for the checkpoint."""
        return {
            TopicPartition(topic, partition): replica.high_watermark
            for (topic, partition), replica in self._replicas.items()
        }

    def has_data(self, topic: Topic, partition: int) -> bool:
        """Whether anything was ever written there, without opening it."""
        return self._store.exists(topic.name, partition)

    def end_offset(self, topic: str, partition: int) -> int | None:
        """Where readers stop now, without opening the partition; None if nobody knows."""
        replica = self._replicas.get((topic, partition))
        if replica is not None:
            return replica.high_watermark
        return self._store.high_watermark(topic, partition)

    def size_bytes(self, topic: str, partition: int) -> int | None:
        """Bytes of its log; None if nobody has opened it."""
        replica = self._replicas.get((topic, partition))
        return replica.log.size_bytes if replica is not None else None

    async def write_marker(
        self,
        topic: str,
        partition: int,
        *,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        coordinator_epoch: int,
    ) -> None:
        """End a transaction in one partition; returns when that is durable."""
        replica = await self.replica(topic, partition)
        await replica.write_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=self._clock.now_ms(),
        )
        if topic == OFFSETS_TOPIC and self.on_offsets_marker is not None:
            self.on_offsets_marker(partition, producer_id, producer_epoch, commit)

    def expire_producers(self, expiration_ms: int) -> int:
        """Forget producers that have been silent for long."""
        now_ms = self._clock.now_ms()
        return sum(replica.producers.expire(now_ms, expiration_ms) for replica in self)

    async def close(self) -> None:
        """Write what a clean restart needs: a producer snapshot at the end of every log."""
        for replica in self:
            await replica.safe(replica.log.end_offset)
            replica.log.write_producer_snapshot(replica.producers.snapshot())

    async def _topic_deleted(self, topic: Topic) -> None:
        for partition in range(topic.partition_count):
            self._opening.pop((topic.name, partition), None)
            replica = self._replicas.pop((topic.name, partition), None)
            if replica is not None:
                replica.abandon()
        self._store.delete(topic.name, topic.id)

    def _topic_changed(self, topic: Topic, settings: TopicSettings) -> None:
        for partition in range(topic.partition_count):
            replica = self._replicas.get((topic.name, partition))
            if replica is not None:
                replica.settings = settings
                replica.log.settings = log_settings(settings)
