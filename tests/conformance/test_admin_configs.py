"""Settings of topics, brokers and groups: described with their source, changed, refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from support.clients import Record, Refused
from support.clients.confluent import Confluent
from support.waiting import eventually

Name = Callable[[str], str]
MakeTopic = Callable[..., str]


def described(admin: AdminClient, kind: ResourceType, what: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, what)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(10)
    return found


def alter(admin: AdminClient, kind: ResourceType, what: str, *changes: tuple[str, Any, Any]) -> Any:
    """Incrementally: (name, value, operation) each; the future of the answer."""
    entries = [
        ConfigEntry(setting, value, incremental_operation=operation)
        for setting, value, operation in changes
    ]
    resource = ConfigResource(kind, what, incremental_configs=entries)
    return admin.incremental_alter_configs([resource])[resource]


def broker_id(admin: AdminClient) -> str:
    return str(admin.describe_cluster().result(10).nodes[0].id)


SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE
APPEND, SUBTRACT = AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT
TOPIC, BROKER, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP


def test_a_topics_settings_come_with_their_defaults_and_sources(
    admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(retention_ms=3_600_000)
    found = described(admin, TOPIC, topic)
    assert found["retention.ms"].value == "3600000"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not found["retention.ms"].is_default
    assert found["cleanup.policy"].value == "delete"
    assert found["cleanup.policy"].source == ConfigSource.DEFAULT_CONFIG.value
    expected = {
        "compression.type": "producer",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "1",
        "segment.bytes": "1073741824",
        "delete.retention.ms": "86400000",
        "min.cleanable.dirty.ratio": "0.5",
        "retention.bytes": "-1",
        "segment.ms": "604800000",
    }
    assert {setting: found[setting].value for setting in expected} == expected


def test_every_setting_of_a_topic_is_described(admin: AdminClient, topic: str) -> None:
    assert len(described(admin, TOPIC, topic)) > 25


def test_a_changed_setting_takes_effect_at_once(
    admin: AdminClient, confluent: Confluent, topic: str
) -> None:
    confluent.produce(topic, [Record(b"x" * 5000)])
    alter(admin, TOPIC, topic, ("max.message.bytes", "1000", SET)).result(10)

    def refused() -> bool:
        try:
            confluent.produce(topic, [Record(b"x" * 5000)])
        except Refused as error:
            return bool(error.args[0] == "MSG_SIZE_TOO_LARGE")
        return False

    eventually(refused, within=5)
    alter(admin, TOPIC, topic, ("max.message.bytes", None, DELETE)).result(10)
    eventually(lambda: described(admin, TOPIC, topic)["max.message.bytes"].value == "1048588")


def test_lists_can_be_appended_to_and_subtracted_from(admin: AdminClient, topic: str) -> None:
    alter(admin, TOPIC, topic, ("cleanup.policy", "compact", APPEND)).result(10)

    def policy() -> set[str]:
        return set(described(admin, TOPIC, topic)["cleanup.policy"].value.split(","))

    eventually(lambda: policy() == {"compact", "delete"})
    alter(admin, TOPIC, topic, ("cleanup.policy", "delete", SUBTRACT)).result(10)
    eventually(lambda: policy() == {"compact"})


def test_incremental_changes_leave_the_other_settings_alone(
    admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(retention_ms=1_000_000)
    alter(admin, TOPIC, topic, ("segment.bytes", "2000000", SET)).result(10)
    eventually(lambda: described(admin, TOPIC, topic)["segment.bytes"].value == "2000000")
    assert described(admin, TOPIC, topic)["retention.ms"].value == "1000000"


def test_the_old_alter_replaces_all_settings(admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(retention_ms=1_000_000)
    resource = ConfigResource(TOPIC, topic, set_config={"segment.bytes": "2000000"})
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        admin.alter_configs([resource])[resource].result(10)
    eventually(lambda: described(admin, TOPIC, topic)["segment.bytes"].value == "2000000")
    assert described(admin, TOPIC, topic)["retention.ms"].value == "604800000"


@pytest.mark.parametrize(
    "change",
    [
        ("no.such.setting", "1", SET),
        ("retention.ms", "soon", SET),
        ("cleanup.policy", "shred", SET),
        ("retention.ms", "5", APPEND),
    ],
    ids=["unknown", "no-number", "no-choice", "append-to-no-list"],
)
def test_a_bad_change_is_refused_and_changes_nothing(
    admin: AdminClient, topic: str, change: tuple[str, Any, Any]
) -> None:
    before = {name: entry.value for name, entry in described(admin, TOPIC, topic).items()}
    with pytest.raises(KafkaException) as failed:
        alter(admin, TOPIC, topic, ("segment.bytes", "2000000", SET), change).result(10)
    assert failed.value.args[0].name() == "INVALID_CONFIG"
    assert before == {name: one.value for name, one in described(admin, TOPIC, topic).items()}


def test_settings_of_a_missing_topic_are_refused(admin: AdminClient, name: Name) -> None:
    missing = name("missing")
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        described(admin, TOPIC, missing)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        alter(admin, TOPIC, missing, ("retention.ms", "1", SET)).result(10)


def test_the_broker_tells_its_settings(admin: AdminClient, bootstrap: str) -> None:
    found = described(admin, BROKER, broker_id(admin))
    assert found["num.partitions"].value == "4", "Penstock's default; the oracle is set to it"
    assert found["auto.create.topics.enable"].value == "true"
    assert bootstrap in found["advertised.listeners"].value
    assert found["log.retention.ms"].value in {None, "604800000"}


def test_a_brokers_setting_can_change_while_it_runs_and_be_taken_back(admin: AdminClient) -> None:
    node = broker_id(admin)
    setting = "log.cleaner.backoff.ms"
    before = described(admin, BROKER, node)[setting].value
    alter(admin, BROKER, node, (setting, "299", SET)).result(10)
    eventually(lambda: described(admin, BROKER, node)[setting].value == "299")
    found = described(admin, BROKER, node)[setting]
    assert found.source == ConfigSource.DYNAMIC_BROKER_CONFIG.value
    alter(admin, BROKER, node, (setting, None, DELETE)).result(10)
    eventually(lambda: described(admin, BROKER, node)[setting].value == before)


def test_a_brokers_fixed_setting_cannot_change(admin: AdminClient) -> None:
    with pytest.raises(KafkaException, match=r"INVALID_REQUEST|INVALID_CONFIG"):
        alter(admin, BROKER, broker_id(admin), ("node.id", "7", SET)).result(10)


def test_a_groups_settings_can_be_set_before_the_group_exists(
    admin: AdminClient, name: Name
) -> None:
    group = name("group")
    alter(admin, GROUP, group, ("consumer.heartbeat.interval.ms", "400", SET)).result(10)
    eventually(
        lambda: described(admin, GROUP, group)["consumer.heartbeat.interval.ms"].value == "400"
    )
    with pytest.raises(KafkaException, match="INVALID_CONFIG"):
        alter(admin, GROUP, group, ("consumer.nonsense", "400", SET)).result(10)
