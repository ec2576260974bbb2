"""The configuration of topics, of this broker and of groups: shown, and changed while it runs.

A topic's overrides live with the topic; those of brokers and groups are rows of the catalogue. A
broker's value comes from the first of: set for this broker, set for all brokers (the empty name),
given at the start (file, environment, flag), the built-in default. A change is checked, committed,
and only then in force; `config` always is the broker's configuration in force.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from penstock.catalogue.catalogue import Catalogue, ResourceType
from penstock.config import OPTIONS, BrokerConfig, find_option
from penstock.errors import ConfigurationError, InvalidRequest
from penstock.model import group_config, topic_config
from penstock.model.cluster import Cluster
from penstock.model.config_change import ConfigChange, apply_changes, check_changes
from penstock.model.described_setting import ConfigSource, DescribedSetting, Synonym
from penstock.model.group_config import GroupSettings
from penstock.model.setting import Setting, SettingType
from penstock.model.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, check_topic_name
from penstock.model.topic_defaults import InternalTopic, TopicDefaults
from penstock.options.option import Address, to_text
from penstock.runtime.turns import Turns
from penstock.services.group_config import group_limits
from penstock.services.topics import Topics

log = logging.getLogger(__name__)

Stored = dict[tuple[ResourceType, str], dict[str, str]]

ALL_BROKERS = ""
_OPTION_OF_TOPIC_SETTING = {
    option.topic: option.name for option in OPTIONS.values() if option.topic is not None
}


def topic_defaults(config: BrokerConfig) -> TopicDefaults:
    """What the broker's options say about topics."""
    return TopicDefaults(
        partitions=config.num_partitions,
        replication_factor=config.default_replication_factor,
        auto_create=config.auto_create_topics_enable,
        settings=config.topic_defaults(),
        internal={
            OFFSETS_TOPIC: InternalTopic(
                partitions=config.offsets_topic_num_partitions,
                replication_factor=config.offsets_topic_replication_factor,
                segment_bytes=config.offsets_topic_segment_bytes,
            ),
            TRANSACTIONS_TOPIC: InternalTopic(
                partitions=config.transaction_state_log_num_partitions,
                replication_factor=config.transaction_state_log_replication_factor,
                min_insync_replicas=config.transaction_state_log_min_isr,
                segment_bytes=config.transaction_state_log_segment_bytes,
            ),
        },
    )


class Configs:
    """Configuration by resource. `static` is what the broker was started with."""

    def __init__(
        self, catalogue: Catalogue, topics: Topics, static: BrokerConfig, cluster: Cluster
    ) -> None:
        self.on_changed: list[Callable[[BrokerConfig], None]] = []
        self._catalogue = catalogue
        self._topics = topics
        self._static = static
        self._config = static
        self._cluster = cluster
        self._node = str(cluster.node_id)
        self._stored: Stored = {}
        self._group_settings: dict[str, GroupSettings] = {}
        self._turns = Turns()

    def __repr__(self) -> str:
        return f"Configs({len(self._stored)} resources)"

    @property
    def config(self) -> BrokerConfig:
        """The broker's configuration in force."""
        return self._config

    async def load(self, stored: Mapping[tuple[ResourceType, str], Mapping[str, str]]) -> None:
        """Take over what the catalogue holds. Options that are no longer valid are left out."""
        self._stored = {key: dict(config) for key, config in stored.items()}
        config = self._static
        overrides = {**self._overrides(ALL_BROKERS), **self._overrides(self._node)}
        for name, text in overrides.items():
            try:
                config = config.with_dynamic({name: text})
            except ConfigurationError as problem:
                log.warning("the catalogue sets a broker option that is left out: %s", problem)
        await self._put_in_force(config)

    # --- topics -----------------------------------------------------------------------------------

    def describe_topic(self, name: str) -> list[DescribedSetting]:
        """Every setting of a topic, or UnknownTopicOrPartition."""
        check_topic_name(name)
        return self.describe_topic_config(self._topics.get(name).config)

    def describe_topic_config(self, overrides: Mapping[str, str]) -> list[DescribedSetting]:
        """Every setting of a topic with these overrides, whether it exists or not."""
        option_of = _OPTION_OF_TOPIC_SETTING.get
        return [
            self._described(setting, overrides, ConfigSource.TOPIC, option_of(setting.name))
            for setting in topic_config.SETTINGS.values()
        ]

    def _described(
        self,
        setting: Setting,
        overrides: Mapping[str, str],
        source: ConfigSource,
        option: str | None,
    ) -> DescribedSetting:
        """A setting with what was set for the resource itself, before the broker's `option`."""
        own = overrides.get(setting.name)
        synonyms = []
        if own is not None:
            synonyms.append(Synonym(setting.name, setting.canonical(own), source))
        if option is not None:
            synonyms += self._broker_synonyms(option)
        return DescribedSetting.of(setting, synonyms)

    async def alter_topic(
        self,
        name: str,
        changes: Sequence[ConfigChange],
        *,
        replace: bool = False,
        validate_only: bool = False,
    ) -> None:
        """Change a topic's overrides; with `replace` the changes become all there are."""
        check_changes(changes)
        if not name:
            raise InvalidRequest("Default topic resources are not allowed.")
        check_topic_name(name)
        defaults = self._topics.defaults.settings

        def known(setting: str) -> tuple[SettingType, str] | None:
            declared = topic_config.SETTINGS.get(setting)
            if declared is None:
                return None
            return declared.type, defaults.get(setting, declared.default)

        await self._topics.reconfigure(
            name,
            lambda config: apply_changes({} if replace else config, changes, known),
            validate_only=validate_only,
        )

    # --- this broker ------------------------------------------------------------------------------

    def describe_broker(self, name: str) -> list[DescribedSetting]:
        """Every option of this broker; under the empty name, what is set for all brokers."""
        if name == ALL_BROKERS:
            overrides = self._overrides(ALL_BROKERS)
            return [self._described_default(option, text) for option, text in overrides.items()]
        self._check_node(name, "expected {0} or empty string, but received {1}")
        node = self._cluster.this_node  # knows the port that was really bound
        advertised = f"PLAINTEXT://{Address(node.host, node.port)}"
        return [
            DescribedSetting(
                entry.name,
                advertised if entry.name == "advertised.listeners" else entry.value,
                self._broker_source(entry.name),
                SettingType[entry.kind.upper()],
                entry.doc,
                entry.read_only,
                self._broker_synonyms(entry.name),
            )
            for entry in self._config.describe()
        ]

    async def alter_broker(
        self,
        name: str,
        changes: Sequence[ConfigChange],
        *,
        replace: bool = False,
        validate_only: bool = False,
    ) -> None:
        """Change the dynamic options of this broker or, under the empty name, of all brokers."""
        check_changes(changes)
        self._check_node(name, "expected {0}, but received {1}")

        def known(option: str) -> tuple[SettingType, str] | None:
            if option not in OPTIONS:
                return None
            return SettingType[OPTIONS[option].kind.upper()], self._config.text_of(option)

        async def work() -> None:
            before = {} if replace else self._overrides(name)
            after = _read_options(apply_changes(before, changes, known))
            layers = {layer: self._overrides(layer) for layer in (ALL_BROKERS, self._node)}
            layers[name] = after
            try:
                config = self._static.with_dynamic({**layers[ALL_BROKERS], **layers[self._node]})
            except ConfigurationError as problem:
                raise InvalidRequest(str(problem)) from problem
            self._topics.check_defaults(topic_defaults(config))
            if not validate_only:
                await self._store("broker", name, after)
                await self._put_in_force(config)

        await self._turns.take("broker", work())

    async def _put_in_force(self, config: BrokerConfig) -> None:
        self._config = config
        self._group_settings.clear()  # their defaults are options of the broker
        if (defaults := topic_defaults(config)) != self._topics.defaults:
            await self._topics.change_defaults(defaults)
        for listener in self.on_changed:
            listener(config)

    def _check_node(self, name: str, words: str) -> None:
        if name in (ALL_BROKERS, self._node):
            return
        if not name.isdecimal():
            raise InvalidRequest(f"Node id must be an integer, but it is: {name[:100]}")
        raise InvalidRequest("Unexpected broker id, " + words.format(self._node, name[:100]))

    def _overrides(self, layer: str) -> dict[str, str]:
        return self._stored.get(("broker", layer), {})

    def _broker_synonyms(self, option: str) -> list[Synonym]:
        """Every place that gives this option a value, strongest first."""
        declared = OPTIONS.get(option)
        if declared is None:  # one of Kafka's names that is derived from an option of ours
            return []
        found = []
        for name, source in (
            (self._node, ConfigSource.DYNAMIC_BROKER),
            (ALL_BROKERS, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ):
            text = self._overrides(name).get(option)
            if text is not None:
                found.append(Synonym(option, text, source))
        if option in self._static.sources:
            text = self._static.text_of(option)
            found.append(Synonym(option, text, ConfigSource.STATIC_BROKER))
        found.append(Synonym(option, declared.default_text, ConfigSource.DEFAULT))
        return found

    def _broker_source(self, option: str) -> ConfigSource:
        synonyms = self._broker_synonyms(option)
        return synonyms[0].source if synonyms else ConfigSource.STATIC_BROKER

    def _described_default(self, option: str, text: str) -> DescribedSetting:
        declared = find_option(option)
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER
        return DescribedSetting(
            option,
            text,
            source,
            SettingType[declared.kind.upper()],
            declared.doc,
            synonyms=[Synonym(option, text, source)],
        )

    # --- groups -----------------------------------------------------------------------------------

    def group_settings(self, group_id: str) -> GroupSettings:
        """The settings in force for a group, whether it exists or not. Cheap to ask again."""
        if ("group", group_id) not in self._stored:
            group_id = ""  # all groups without settings of their own share one answer
        settings = self._group_settings.get(group_id)
        if settings is None:
            overrides = self._stored.get(("group", group_id), {})
            settings = group_config.resolve(overrides, self._group_limits())
            self._group_settings[group_id] = settings
        return settings

    def configured_groups(self) -> Sequence[str]:
        """The groups that have settings of their own."""
        return [name for resource, name in self._stored if resource == "group"]

    def describe_group(self, group_id: str) -> list[DescribedSetting]:
        if not group_id:
            raise InvalidRequest("Group name must not be empty")
        overrides = self._stored.get(("group", group_id), {})
        option_of = group_config.broker_option
        return [
            self._described(setting, overrides, ConfigSource.GROUP, option_of(setting.name))
            for setting in group_config.SETTINGS.values()
        ]

    async def alter_group(
        self,
        group_id: str,
        changes: Sequence[ConfigChange],
        *,
        replace: bool = False,
        validate_only: bool = False,
    ) -> None:
        """Change a group's settings; the group need not exist yet."""
        check_changes(changes)
        if not group_id:
            raise InvalidRequest("Default group resources are not allowed.")

        def known(setting: str) -> tuple[SettingType, str] | None:
            declared = group_config.SETTINGS.get(setting)
            return None if declared is None else (declared.type, declared.default)

        async def work() -> None:
            before = {} if replace else self._stored.get(("group", group_id), {})
            after = apply_changes(before, changes, known)
            group_config.check(after, self._group_limits())
            if not validate_only:
                await self._store("group", group_id, after)
                self._group_settings.pop(group_id, None)

        await self._turns.take(f"group {group_id}", work())

    def _group_limits(self) -> Mapping[str, str]:
        """The broker's options that are defaults or bounds of a group's settings."""
        return group_limits(self._config)

    async def _store(self, resource: ResourceType, name: str, config: dict[str, str]) -> None:
        await self._catalogue.put_config(resource, name, config)
        if config:
            self._stored[resource, name] = config
        else:
            self._stored.pop((resource, name), None)


def _read_options(config: Mapping[str, str]) -> dict[str, str]:
    """Dynamic broker options in their canonical text, or InvalidRequest.

    Kafka answers InvalidRequest, not InvalidConfig, for a broker's options (KAFKA-13609); clients
    have come to expect it.
    """
    fixed = sorted(name for name in config if name in OPTIONS and not OPTIONS[name].dynamic)
    if fixed:
        raise InvalidRequest(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    try:
        return {name: to_text(find_option(name).read(text)) for name, text in config.items()}
    except ConfigurationError as problem:
        raise InvalidRequest(str(problem)) from problem
