"""The topics of this broker: found by name and id, created, grown, configured, deleted.

All topics are in memory; the catalogue holds them on disk, and a topic exists from the moment its
row is committed until the moment the row's removal is. Nothing is written to the log here:
directories of partitions appear at the first append and are dropped by those who listen.

Whoever keeps something per topic adds a callable when the broker is put together: `on_created`,
`on_changed` (settings or partition count) and `on_deleted` are called after the commit, with the
name still locked, so that a topic created again under the same name finds nothing of the old one.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from penstock.catalogue.catalogue import Catalogue, Shown, TopicRow
from penstock.errors import (
    BrokerError,
    DataDirectoryDamaged,
    InvalidConfig,
    InvalidRequest,
    InvalidTopicName,
    PolicyViolation,
    TopicExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.machines.placement import (
    USE_DEFAULT,
    Assignment,
    Placement,
    check_more_partitions,
    check_replicas,
    place_topic,
)
from penstock.model import topic_config
from penstock.model.topic import (
    METADATA_TOPIC,
    NO_CONFIG,
    Topic,
    check_topic_name,
    collision_key,
    is_internal,
    topic_id_text,
)
from penstock.model.topic_config import TopicSettings
from penstock.model.topic_defaults import TopicDefaults
from penstock.runtime.clock import Clock
from penstock.runtime.turns import Turns

_log = logging.getLogger("penstock")

Config = Mapping[str, str]


def new_topic_id() -> uuid.UUID:
    """A random id whose text does not begin with '-', which shells would take for an option."""
    while True:
        topic_id = uuid.uuid4()
        if not topic_id_text(topic_id).startswith("-"):
            return topic_id


class Topics:
    """Every topic, by name and by id, with its settings."""

    def __init__(
        self,
        catalogue: Catalogue,
        clock: Clock,
        *,
        brokers: Sequence[int] = (1,),
        defaults: TopicDefaults | None = None,
        new_id: Callable[[], uuid.UUID] = new_topic_id,
    ) -> None:
        self.on_created: list[Callable[[Topic], None]] = []
        self.on_changed: list[Callable[[Topic, TopicSettings], None]] = []
        self.on_deleted: list[Callable[[Topic], Awaitable[None]]] = []
        self._catalogue = catalogue
        self._clock = clock
        self._brokers = brokers
        self._defaults = defaults or TopicDefaults()
        self._new_id = new_id
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[uuid.UUID, Topic] = {}
        self._settings: dict[str, TopicSettings] = {}
        self._keys: dict[str, str] = {}  # collision key: name, for names that contain '.' or '_'
        self._sorted: list[str] | None = None
        self._turns = Turns()

    def __repr__(self) -> str:
        return f"Topics({len(self._by_name)} topics)"

    def __len__(self) -> int:
        return len(self._by_name)

    # --- reading ----------------------------------------------------------------------------------

    @property
    def defaults(self) -> TopicDefaults:
        return self._defaults

    def find(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def get(self, name: str) -> Topic:
        """The topic, or UnknownTopicOrPartition."""
        topic = self._by_name.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"This server does not host the topic {name!r}.")
        return topic

    def by_id(self, topic_id: uuid.UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    def names(self) -> Sequence[str]:
        """All names, sorted. The list is kept between changes: treat it as read-only."""
        if self._sorted is None:
            self._sorted = sorted(self._by_name)
        return self._sorted

    def all(self) -> Collection[Topic]:
        return self._by_name.values()

    def settings(self, name: str) -> TopicSettings:
        """The settings in force, or UnknownTopicOrPartition."""
        settings = self._settings.get(name)
        if settings is None:
            self.get(name)
            raise AssertionError(f"topic {name} has no settings")
        return settings

    def check_replicas(self, partition: int, replicas: Sequence[int]) -> None:
        """Raise InvalidReplicaAssignment unless a partition may live on exactly these brokers."""
        check_replicas(partition, replicas, self._brokers)

    # --- starting ---------------------------------------------------------------------------------

    async def load(self, rows: Sequence[TopicRow]) -> None:
        """Take over what the catalogue holds; rows that show outdated defaults are refreshed."""
        stale = []
        for topic, shown in rows:
            try:
                settings = self._remember(topic)
            except InvalidConfig as problem:
                raise DataDirectoryDamaged(
                    f"the catalogue's row of topic {topic.name!r} has a configuration that is not "
                    f"valid: {problem}. Correct its `config` column."
                ) from problem
            if Shown.of(settings) != shown:
                stale.append(TopicRow(topic, Shown.of(settings)))
        if stale:
            await self._catalogue.show_topics(stale)

    def check_defaults(self, defaults: TopicDefaults) -> None:
        """Raise InvalidConfig when a topic's own settings would contradict these defaults."""
        for topic in self._by_name.values():
            topic_config.resolve(topic.config, defaults.settings)

    async def change_defaults(self, defaults: TopicDefaults) -> None:
        """The broker's options changed: topics that do not override them follow."""
        changed = []
        for topic in self._by_name.values():
            settings = topic_config.resolve(topic.config, defaults.settings)
            if settings != self._settings[topic.name]:
                changed.append((topic, settings))
        self._defaults = defaults
        for topic, settings in changed:
            self._settings[topic.name] = settings
            self._tell_changed(topic)
        if changed:
            await self._catalogue.show_topics([TopicRow(t, Shown.of(s)) for t, s in changed])

    # --- changing ---------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Assignment | None = None,
        config: Mapping[str, str | None] = NO_CONFIG,
        validate_only: bool = False,
        internal: bool = False,
    ) -> Topic:
        """Create a topic. None or -1 asks for the broker's default; None as a value is refused.

        With `validate_only` everything is checked, nothing is kept, and the returned topic is what
        would have been created. Only the broker itself passes `internal`, for its own topics.
        """
        check_topic_name(name)
        if name == METADATA_TOPIC:
            raise InvalidRequest(f"{name} is reserved: no topic can have this name.")
        if is_internal(name) and not internal and name not in self._by_name:
            raise PolicyViolation(f"{name} is the broker's own topic, which it creates by itself.")

        async def work() -> Topic:
            self._check_free(name)
            topic = self._plan(
                name,
                USE_DEFAULT if partitions is None else partitions,
                USE_DEFAULT if replication_factor is None else replication_factor,
                assignment or {},
                config,
            )
            if not validate_only:
                await self._write(topic)
                for listener in self.on_created:
                    listener(topic)
            return topic

        return await self._turns.take(collision_key(name), work())

    async def auto_create(self, name: str) -> Topic:
        """The topic, created with defaults when it is missing and the broker allows that."""
        found = self._by_name.get(name)
        if found is not None:
            return found
        if is_internal(name):
            return await self.ensure_internal(name)
        if not self._defaults.auto_create:
            self.get(name)
        try:
            return await self.create(name)
        except TopicExists:
            return self.get(name)

    async def ensure_internal(self, name: str) -> Topic:
        """One of the broker's own topics, created as the options say when it is missing."""
        found = self._by_name.get(name)
        if found is not None:
            return found
        shape = self._defaults.internal[name]
        try:
            return await self.create(
                name,
                partitions=shape.partitions,
                replication_factor=shape.replication_factor,
                config=shape.config(),
                internal=True,
            )
        except TopicExists:
            return self.get(name)

    async def delete(self, name: str, *, topic_id: uuid.UUID | None = None) -> None:
        """Delete a topic and tell everyone who keeps something of it.

        `topic_id`, when given, must be the topic's: a client that learned an id must not delete a
        topic that was created since under the same name.
        """

        async def work() -> None:
            topic = self.get(name)
            if topic.internal:
                raise PolicyViolation(f"{name} is the broker's own topic and cannot be deleted.")
            if topic_id is not None and topic.id != topic_id:
                raise UnknownTopicId(f"No topic has the id {topic_id_text(topic_id)}.")
            await self._catalogue.delete_topics([topic.id])
            self._forget(topic)
            for listener in self.on_deleted:
                try:
                    await listener(topic)
                except BrokerError as failure:  # the topic is gone all the same, for everybody
                    _log.warning("after the deletion of topic %s: %s", name, failure)

        await self._turns.take(collision_key(name), work())

    async def add_partitions(
        self,
        name: str,
        total: int,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> Topic:
        """Grow a topic to `total` partitions; `assignment` names the brokers of each new one."""

        async def work() -> Topic:
            topic = self.get(name)
            if topic.internal:
                raise PolicyViolation(
                    f"{name} cannot grow: which partition holds which group or transaction "
                    "depends on their number."
                )
            current = Placement(topic.partition_count, topic.replication_factor)
            check_more_partitions(current, total, assignment, self._brokers)
            grown = replace(topic, partition_count=total)
            if not validate_only:
                await self._write(grown)
                self._tell_changed(grown)
            return grown

        return await self._turns.take(collision_key(name), work())

    async def alter_config(
        self, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> Topic:
        """Set the given settings; None puts one back to the broker's default."""

        def change(config: Config) -> dict[str, str]:
            merged = {**config, **changes}
            return {key: text for key, text in merged.items() if text is not None}

        return await self.reconfigure(name, change, validate_only=validate_only)

    async def reconfigure(
        self, name: str, change: Callable[[Config], Config], *, validate_only: bool = False
    ) -> Topic:
        """Replace a topic's overrides by what `change` makes of them. Nobody comes in between."""

        async def work() -> Topic:
            topic = self.get(name)
            config = dict(change(topic.config))
            topic_config.check(config, self._defaults.settings)
            settings = topic_config.resolve(config, self._defaults.settings)
            if topic.internal and not settings.compacted:
                raise InvalidConfig(f"{name} must stay compacted: the broker keeps its state in it")
            changed = replace(topic, config=config or NO_CONFIG)
            if not validate_only and config != topic.config:
                await self._write(changed)
                self._tell_changed(changed)
            return changed

        return await self._turns.take(collision_key(name), work())

    # --- inside -----------------------------------------------------------------------------------

    def _check_free(self, name: str) -> None:
        if name in self._by_name:
            raise TopicExists(f"Topic '{name}' already exists.")
        rival = self._keys.get(collision_key(name))
        if rival is not None:
            raise InvalidTopicName(f"Topic '{name}' collides with existing topic: {rival}")

    def _plan(
        self,
        name: str,
        partitions: int,
        replication_factor: int,
        assignment: Assignment,
        config: Mapping[str, str | None],
    ) -> Topic:
        default = Placement(self._defaults.partitions, self._defaults.replication_factor)
        placement = place_topic(
            partitions, replication_factor, assignment, default=default, brokers=self._brokers
        )
        topic_config.check(config, self._defaults.settings)
        overrides = {key: text for key, text in config.items() if text is not None}
        return Topic(
            name=name,
            id=self._new_id(),
            partition_count=placement.partition_count,
            replication_factor=placement.replication_factor,
            created_at_ms=self._clock.now_ms(),
            config=overrides or NO_CONFIG,
        )

    async def _write(self, topic: Topic) -> None:
        """Commit a new or changed topic, then let it be seen."""
        settings = topic_config.resolve(topic.config, self._defaults.settings)
        await self._catalogue.put_topics([TopicRow(topic, Shown.of(settings))])
        self._remember(topic)

    def _tell_changed(self, topic: Topic) -> None:
        for listener in self.on_changed:
            listener(topic, self._settings[topic.name])

    def _remember(self, topic: Topic) -> TopicSettings:
        settings = topic_config.resolve(topic.config, self._defaults.settings)
        if topic.name not in self._by_name:
            self._sorted = None
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic
        self._settings[topic.name] = settings
        if "." in topic.name or "_" in topic.name:
            self._keys[collision_key(topic.name)] = topic.name
        return settings

    def _forget(self, topic: Topic) -> None:
        self._sorted = None
        del self._by_name[topic.name]
        del self._by_id[topic.id]
        del self._settings[topic.name]
        self._keys.pop(collision_key(topic.name), None)
