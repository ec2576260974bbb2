"""Configuration of topics, broker and groups: where values come from, and changes while running."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import BrokerConfig
from penstock.errors import InvalidConfig, InvalidRequest, InvalidTopicName, UnknownTopicOrPartition
from penstock.model.config_change import ConfigChange, Operation
from penstock.model.described_setting import ConfigSource, DescribedSetting
from support.admin import Admin, admin
from support.scenario import scenario

SET, DELETE, APPEND, SUBTRACT = Operation


def change(name: str, value: str | None, operation: int = SET) -> list[ConfigChange]:
    return [ConfigChange(name, operation, value)]


def found(described: list[DescribedSetting], name: str) -> DescribedSetting:
    return next(each for each in described if each.name == name)


def chain(setting: DescribedSetting) -> list[tuple[str, str | None, int]]:
    return [(each.name, each.value, each.source) for each in setting.synonyms]


@scenario
async def test_a_value_is_shown_with_everything_beneath_it() -> None:
    async with admin() as broker:
        await broker.topics.create("orders", config={"retention.ms": "5"})
        await broker.configs.alter_broker("", change("log.retention.ms", "6"))
        await broker.configs.alter_broker("1", change("log.retention.ms", "7"))
        retention = found(broker.configs.describe_topic("orders"), "retention.ms")
        assert (retention.value, retention.source) == ("5", ConfigSource.TOPIC)
        assert chain(retention) == [
            ("retention.ms", "5", ConfigSource.TOPIC),
            ("log.retention.ms", "7", ConfigSource.DYNAMIC_BROKER),
            ("log.retention.ms", "6", ConfigSource.DYNAMIC_DEFAULT_BROKER),
            ("log.retention.ms", "604800000", ConfigSource.DEFAULT),
        ]
        plain = found(broker.configs.describe_topic("orders"), "flush.messages")
        assert (plain.source, plain.synonyms) == (ConfigSource.DEFAULT, [])


@pytest.mark.parametrize(
    ("name", "written", "shown"),
    [
        ("retention.ms", " 007 ", "7"),
        ("preallocate", "TRUE", "true"),
        ("cleanup.policy", " delete , compact", "delete,compact"),
        ("min.cleanable.dirty.ratio", "0.50", "0.5"),
        ("compression.type", " gzip", "gzip"),
    ],
)
@scenario
async def test_a_value_is_shown_in_one_way_however_it_was_written(
    name: str, written: str, shown: str
) -> None:
    async with admin() as broker:
        await broker.topics.create("orders", config={name: written})
        setting = found(broker.configs.describe_topic("orders"), name)
        assert (setting.value, setting.synonyms[0].value) == (shown, shown)


@scenario
async def test_what_a_file_gave_is_static_and_comes_back_when_an_override_goes() -> None:
    async with admin() as broker:
        static = BrokerConfig.load(flags={"log.retention.ms": "42"}, environ={})
        from penstock.services.configs import Configs

        services = broker.services
        configs = Configs(broker.catalogue, broker.topics, static, services.cluster)
        await configs.load({})
        retention = found(configs.describe_broker("1"), "log.retention.ms")
        assert (retention.value, retention.source) == ("42", ConfigSource.STATIC_BROKER)
        await configs.alter_broker("1", change("log.retention.ms", "43"))
        assert configs.config.log_retention_ms == 43
        await configs.alter_broker("1", change("log.retention.ms", None, DELETE))
        assert configs.config.log_retention_ms == 42


@scenario
async def test_the_broker_lists_every_option_and_what_tools_look_for() -> None:
    async with admin() as broker:
        described = broker.configs.describe_broker("1")
        named = {each.name: each for each in described}
        assert named["num.partitions"].value == "4"
        assert named["advertised.listeners"].value == "PLAINTEXT://127.0.0.1:9092"
        assert named["node.id"].read_only
        assert not named["log.retention.ms"].read_only
        assert all(each.doc for each in described)
        assert len(named) == len(described)


@scenario
async def test_under_the_empty_name_only_what_is_set_for_all_brokers_is_listed() -> None:
    async with admin() as broker:
        assert broker.configs.describe_broker("") == []
        await broker.configs.alter_broker("", change("num.partitions", "9"))
        (only,) = broker.configs.describe_broker("")
        assert (only.name, only.value) == ("num.partitions", "9")
        assert only.source == ConfigSource.DYNAMIC_DEFAULT_BROKER


@scenario
async def test_dynamic_options_are_in_force_at_once_and_after_a_restart(tmp_path: Path) -> None:
    async with admin(tmp_path / "c.sqlite") as broker:
        told: list[int] = []
        broker.configs.on_changed.append(lambda config: told.append(config.num_partitions))
        await broker.topics.create("before")
        await broker.configs.alter_broker("1", change("num.partitions", "9"))
        await broker.configs.alter_broker("1", change("log.retention.ms", "60000"))
        assert told == [9, 9]
        assert (await broker.topics.create("after")).partition_count == 9
        assert broker.topics.settings("before").retention_ms == 60_000
    async with admin(tmp_path / "c.sqlite") as broker:
        assert broker.configs.config.num_partitions == 9
        assert broker.topics.settings("before").retention_ms == 60_000


@scenario
async def test_replacing_a_brokers_options_drops_those_not_given() -> None:
    async with admin() as broker:
        await broker.configs.alter_broker("1", change("num.partitions", "9"))
        await broker.configs.alter_broker("1", change("log.retention.ms", "5"), replace=True)
        assert broker.configs.config.num_partitions == 4
        assert broker.configs.config.log_retention_ms == 5


@pytest.mark.parametrize(
    ("node", "name", "value", "words"),
    [
        ("1", "node.id", "3", r"Cannot update these configs dynamically: \[node.id\]"),
        ("1", "num.partitions", "many", "num.partitions"),
        ("1", "num.partitions", "0", "num.partitions"),
        ("", "log.retention.ms", "-2", "log.retention.ms"),
        ("1", "no.such.option", "1", "no.such.option"),
        ("2", "num.partitions", "3", "expected 1, but received 2"),
        ("x", "num.partitions", "3", "must be an integer, but it is: x"),
    ],
)
@scenario
async def test_a_broker_refuses_as_kafka_does(node: str, name: str, value: str, words: str) -> None:
    async with admin() as broker:
        with pytest.raises(InvalidRequest, match=words):
            await broker.configs.alter_broker(node, change(name, value))
        assert broker.configs.describe_broker("") == []


@scenario
async def test_validating_a_brokers_options_changes_nothing() -> None:
    async with admin() as broker:
        await broker.configs.alter_broker("1", change("num.partitions", "9"), validate_only=True)
        assert broker.configs.config.num_partitions == 4


@scenario
async def test_a_default_that_contradicts_a_topic_is_refused() -> None:
    async with admin() as broker:
        await broker.topics.create("orders", config={"min.compaction.lag.ms": "1000"})
        with pytest.raises(InvalidConfig, match=r"max\.compaction\.lag\.ms"):
            await broker.configs.alter_broker(
                "", change("log.cleaner.max.compaction.lag.ms", "999")
            )
        assert broker.topics.settings("orders").max_compaction_lag_ms > 999


@scenario
async def test_topic_settings_are_set_appended_subtracted_and_deleted() -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        alter = broker.configs.alter_topic
        await alter("orders", change("cleanup.policy", "compact", APPEND))
        assert broker.topics.settings("orders").cleanup_policy == {"compact", "delete"}
        await alter("orders", change("cleanup.policy", "delete", SUBTRACT))
        assert broker.topics.settings("orders").cleanup_policy == {"compact"}
        await alter("orders", change("retention.ms", "5"))
        await alter("orders", change("cleanup.policy", None, DELETE))
        assert broker.topics.get("orders").config == {"retention.ms": "5"}
        await alter("orders", change("segment.ms", "9"), replace=True)
        assert broker.topics.get("orders").config == {"segment.ms": "9"}


@scenario
async def test_a_topic_refuses_as_kafka_does() -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        alter = broker.configs.alter_topic
        with pytest.raises(InvalidConfig, match="Unknown topic config name: nope"):
            await alter("orders", change("nope", "1"))
        with pytest.raises(InvalidConfig, match="not LIST"):
            await alter("orders", change("retention.ms", "1", APPEND))
        with pytest.raises(UnknownTopicOrPartition):
            await alter("ghost", change("retention.ms", "1"))
        with pytest.raises(InvalidTopicName):
            await alter("a b", change("retention.ms", "1"))
        with pytest.raises(InvalidRequest, match="Default topic"):
            await alter("", change("retention.ms", "1"))
        assert broker.topics.get("orders").config == {}


@scenario
async def test_group_settings_may_be_set_before_the_group_exists_and_are_kept(
    tmp_path: Path,
) -> None:
    async with admin(tmp_path / "c.sqlite") as broker:
        configs = broker.configs
        assert configs.group_settings("billing").consumer_session_timeout_ms == 45_000
        await configs.alter_group("billing", change("consumer.session.timeout.ms", "50000"))
        assert configs.group_settings("billing").consumer_session_timeout_ms == 50_000
        assert configs.group_settings("other").consumer_session_timeout_ms == 45_000
    async with admin(tmp_path / "c.sqlite") as broker:
        configs = broker.configs
        assert configs.configured_groups() == ["billing"]
        session = found(configs.describe_group("billing"), "consumer.session.timeout.ms")
        assert chain(session) == [
            ("consumer.session.timeout.ms", "50000", ConfigSource.GROUP),
            ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT),
        ]
        await configs.alter_group("billing", [], replace=True)
        assert configs.configured_groups() == []


@scenario
async def test_a_group_refuses_as_kafka_does() -> None:
    async with admin() as broker:
        alter = broker.configs.alter_group
        with pytest.raises(InvalidConfig, match="Unknown group config name"):
            await alter("g", change("nope", "1"))
        with pytest.raises(InvalidConfig, match="greater than or equal"):
            await alter("g", change("consumer.session.timeout.ms", "10"))
        with pytest.raises(InvalidRequest, match="Default group"):
            await alter("", change("consumer.session.timeout.ms", "50000"))
        with pytest.raises(InvalidRequest, match="must not be empty"):
            broker.configs.describe_group("")
        assert broker.configs.configured_groups() == []


@scenario
async def test_an_option_that_is_no_longer_known_is_left_out_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with admin(tmp_path / "c.sqlite") as broker:
        kept = {"num.partitions": "9", "of.another.age": "1"}
        await broker.catalogue.put_config("broker", "1", kept)

    def partitions(broker: Admin) -> int:
        return broker.configs.config.num_partitions

    async with admin(tmp_path / "c.sqlite") as broker:
        assert partitions(broker) == 9
    assert "of.another.age" in caplog.text
