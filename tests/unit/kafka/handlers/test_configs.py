"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from support.admin import (
    ALTER_CONFIGS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    LIST_CONFIG_RESOURCES,
    Admin,
    admin,
)
from support.scenario import scenario

UNKNOWN, TOPIC, BROKER, LOGGER, METRICS, GROUP = 1, 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


async def describe(
    broker: Admin, kind: int, name: str, *keys: str, version: int = 4, **more: Any
) -> Any:
    resource = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": keys or None,
    }
    answer = await broker.ask(DESCRIBE_CONFIGS, version, resources=[resource], **more)
    return answer.results[0]


async def increment(
    broker: Admin, kind: int, name: str, *changes: tuple[str, int, str | None], **more: Any
) -> Any:
    configs = [{"name": n, "config_operation": op, "value": v} for n, op, v in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    version = more.pop("version", 1)
    answer = await broker.ask(INCREMENTAL_ALTER_CONFIGS, version, resources=[resource], **more)
    return answer.responses[0]


async def replace(
    broker: Admin, kind: int, name: str, *settings: tuple[str, str | None], **more: Any
) -> Any:
    configs = [{"name": n, "value": v} for n, v in settings]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    version = more.pop("version", 2)
    answer = await broker.ask(ALTER_CONFIGS, version, resources=[resource], **more)
    return answer.responses[0]


@pytest.mark.parametrize("version", range(1, 5))
@scenario
async def test_every_version_describes_a_topic_fully(version: int) -> None:
    async with admin() as broker:
        await broker.topics.create("orders", config={"retention.ms": "5"})
        result = await describe(broker, TOPIC, "orders", version=version, include_synonyms=True)
        assert result.error_code is ErrorCode.none
        assert len(result.configs) == 35
        named = {each.name: each for each in result.configs}
        own, default = named["retention.ms"], named["cleanup.policy"]
        assert (own.value, own.config_source) == ("5", 1)
        assert (default.value, default.config_source) == ("delete", 5)
        assert not own.read_only
        assert not own.is_sensitive
        assert [(each.name, each.source) for each in own.synonyms] == [
            ("retention.ms", 1),
            ("log.retention.ms", 5),
        ]
        if version >= 3:
            assert (own.config_type, default.config_type) == (5, 7)
            assert own.documentation is None


@scenario
async def test_words_and_synonyms_come_only_when_asked_for() -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        plain = await describe(broker, TOPIC, "orders")
        assert all(each.synonyms == () for each in plain.configs)
        told = await describe(broker, TOPIC, "orders", include_documentation=True)
        assert all(each.documentation for each in told.configs)


@scenario
async def test_only_the_keys_asked_for_are_described_and_unknown_ones_left_out() -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        result = await describe(broker, TOPIC, "orders", "retention.ms", "nope")
        assert [each.name for each in result.configs] == ["retention.ms"]
        broker_result = await describe(
            broker, BROKER, "1", "num.partitions", "advertised.listeners"
        )
        assert {each.name: each.value for each in broker_result.configs} == {
            "num.partitions": "4",
            "advertised.listeners": "PLAINTEXT://127.0.0.1:9092",
        }


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (TOPIC, "ghost", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "", ErrorCode.invalid_topic_exception),
        (TOPIC, "a b", ErrorCode.invalid_topic_exception),
        (BROKER, "2", ErrorCode.invalid_request),
        (BROKER, "x", ErrorCode.invalid_request),
        (LOGGER, "", ErrorCode.invalid_request),
        (LOGGER, "2", ErrorCode.invalid_request),
        (GROUP, "", ErrorCode.invalid_request),
        (METRICS, "m", ErrorCode.invalid_request),
        (UNKNOWN, "x", ErrorCode.invalid_request),
        (64, "x", ErrorCode.invalid_request),
    ],
)
@scenario
async def test_what_does_not_exist_is_not_described(kind: int, name: str, error: ErrorCode) -> None:
    async with admin() as broker:
        result = await describe(broker, kind, name)
        assert (result.error_code, result.configs) == (error, ())
        assert result.error_message
        assert (result.resource_type, result.resource_name) == (kind, name)


@scenario
async def test_loggers_and_groups_are_described() -> None:
    async with admin() as broker:
        logger = await describe(broker, LOGGER, "1")
        assert {each.name: each.config_source for each in logger.configs}["root"] == 6
        group = await describe(broker, GROUP, "any", "consumer.session.timeout.ms")
        assert [each.value for each in group.configs] == ["45000"]


@pytest.mark.parametrize("version", range(2))
@scenario
async def test_incremental_changes_set_append_subtract_and_delete(version: int) -> None:
    async with admin() as broker:
        await broker.topics.create("orders", config={"retention.ms": "5"})
        row = await increment(
            broker,
            TOPIC,
            "orders",
            ("segment.ms", SET, "9"),
            ("retention.ms", DELETE, None),
            ("cleanup.policy", APPEND, "compact"),
            version=version,
        )
        assert (row.error_code, row.error_message) == (ErrorCode.none, None)
        assert broker.topics.get("orders").config == {
            "segment.ms": "9",
            "cleanup.policy": "delete,compact",
        }
        await increment(broker, TOPIC, "orders", ("cleanup.policy", SUBTRACT, "delete"))
        assert broker.topics.settings("orders").cleanup_policy == {"compact"}


@pytest.mark.parametrize("version", range(3))
@scenario
async def test_alter_configs_drops_what_is_not_given(version: int) -> None:
    async with admin() as broker:
        await broker.topics.create("orders", config={"retention.ms": "5"})
        row = await replace(broker, TOPIC, "orders", ("segment.ms", "9"), version=version)
        assert row.error_code is ErrorCode.none
        assert broker.topics.get("orders").config == {"segment.ms": "9"}


@pytest.mark.parametrize(
    ("kind", "name", "change", "error"),
    [
        (TOPIC, "orders", ("nope", SET, "1"), ErrorCode.invalid_config),
        (TOPIC, "orders", ("nope", DELETE, None), ErrorCode.none),
        (TOPIC, "orders", ("retention.ms", SET, "x"), ErrorCode.invalid_config),
        (TOPIC, "orders", ("retention.ms", SET, None), ErrorCode.invalid_request),
        (TOPIC, "orders", ("retention.ms", APPEND, "1"), ErrorCode.invalid_config),
        (TOPIC, "orders", ("retention.ms", 9, "1"), ErrorCode.invalid_request),
        (TOPIC, "ghost", ("retention.ms", SET, "1"), ErrorCode.unknown_topic_or_partition),
        (TOPIC, "", ("retention.ms", SET, "1"), ErrorCode.invalid_request),
        (TOPIC, "a b", ("retention.ms", SET, "1"), ErrorCode.invalid_topic_exception),
        (BROKER, "1", ("node.id", SET, "3"), ErrorCode.invalid_request),
        (BROKER, "1", ("num.partitions", SET, "x"), ErrorCode.invalid_request),
        (BROKER, "2", ("num.partitions", SET, "3"), ErrorCode.invalid_request),
        (GROUP, "g", ("nope", SET, "3"), ErrorCode.invalid_config),
        (GROUP, "g", ("consumer.session.timeout.ms", SET, "3"), ErrorCode.invalid_config),
        (GROUP, "", ("consumer.session.timeout.ms", SET, "50000"), ErrorCode.invalid_request),
        (LOGGER, "1", ("no.such.logger", SET, "INFO"), ErrorCode.invalid_config),
        (LOGGER, "2", ("root", SET, "INFO"), ErrorCode.invalid_request),
        (METRICS, "m", ("interval.ms", SET, "1"), ErrorCode.invalid_request),
        (UNKNOWN, "m", ("interval.ms", SET, "1"), ErrorCode.invalid_request),
    ],
)
@scenario
async def test_refusals_are_kafkas_also_when_only_checked(
    kind: int, name: str, change: tuple[str, int, str | None], error: ErrorCode
) -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        for only_checked in (True, False):
            row = await increment(broker, kind, name, change, validate_only=only_checked)
            assert row.error_code is error
            assert bool(row.error_message) == (error is not ErrorCode.none)
        assert broker.topics.get("orders").config == {}


@scenario
async def test_a_broker_a_group_and_a_logger_are_changed() -> None:
    import logging

    before = logging.getLogger("penstock").level
    try:
        async with admin() as broker:
            await increment(broker, BROKER, "", ("num.partitions", SET, "9"))
            assert broker.configs.config.num_partitions == 9
            await increment(broker, GROUP, "g", ("share.auto.offset.reset", SET, "earliest"))
            assert broker.configs.group_settings("g").share_auto_offset_reset == "earliest"
            await increment(broker, LOGGER, "1", ("root", SET, "ERROR"))
            assert logging.getLogger("penstock").level == logging.ERROR
            row = await replace(broker, LOGGER, "1", ("root", "INFO"))
            assert row.error_code is ErrorCode.invalid_request
            row = await replace(broker, BROKER, "")
            assert row.error_code is ErrorCode.none
            assert broker.configs.config.num_partitions == 4
    finally:
        logging.getLogger("penstock").setLevel(before)


@scenario
async def test_a_resource_named_twice_is_refused_both_times() -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        one = {
            "resource_type": TOPIC,
            "resource_name": "orders",
            "configs": [{"name": "retention.ms", "config_operation": SET, "value": "1"}],
        }
        answer = await broker.ask(INCREMENTAL_ALTER_CONFIGS, 1, resources=[one, one])
        assert [row.error_code for row in answer.responses] == [ErrorCode.invalid_request] * 2
        assert broker.topics.get("orders").config == {}


@scenario
async def test_a_setting_named_twice_is_refused() -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        twice = (("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
        row = await increment(broker, TOPIC, "orders", *twice)
        assert row.error_code is ErrorCode.invalid_request
        row = await replace(broker, TOPIC, "orders", ("retention.ms", "1"), ("retention.ms", "2"))
        assert row.error_code is ErrorCode.invalid_request


async def listed(broker: Admin, *kinds: int) -> Any:
    answer = await broker.ask(LIST_CONFIG_RESOURCES, 1, resource_types=kinds)
    resources = [(each.resource_type, each.resource_name) for each in answer.config_resources]
    return answer.error_code, resources


@scenario
async def test_what_has_settings_is_listed() -> None:
    async with admin() as broker:
        await broker.topics.create("orders")
        await increment(broker, GROUP, "g", ("share.auto.offset.reset", SET, "earliest"))
        everything = [(TOPIC, "orders"), (BROKER, "1"), (LOGGER, "1"), (GROUP, "g")]
        assert await listed(broker) == (ErrorCode.none, everything)
        assert await listed(broker, GROUP) == (ErrorCode.none, [(GROUP, "g")])
        assert await listed(broker, METRICS) == (ErrorCode.none, [])
        assert await listed(broker, UNKNOWN) == (ErrorCode.unsupported_version, [])
        old = await broker.ask(LIST_CONFIG_RESOURCES, 0)
        assert (old.error_code, old.config_resources) == (ErrorCode.none, ())
