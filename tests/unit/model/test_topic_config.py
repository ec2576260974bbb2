"""Topic settings: Kafka's names, defaults and refusals."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidConfig
from penstock.model.setting import LONG_MAX, SettingType
from penstock.model.topic_config import SETTINGS, check, resolve, setting

# Name, type and default as Apache Kafka 4.3 describes a topic with nothing set.
KAFKA_4_3 = {
    "cleanup.policy": (SettingType.LIST, "delete"),
    "compression.gzip.level": (SettingType.INT, "-1"),
    "compression.lz4.level": (SettingType.INT, "9"),
    "compression.type": (SettingType.STRING, "producer"),
    "compression.zstd.level": (SettingType.INT, "3"),
    "delete.retention.ms": (SettingType.LONG, "86400000"),
    "errors.deadletterqueue.group.enable": (SettingType.BOOLEAN, "false"),
    "file.delete.delay.ms": (SettingType.LONG, "60000"),
    "flush.messages": (SettingType.LONG, "9223372036854775807"),
    "flush.ms": (SettingType.LONG, "9223372036854775807"),
    "follower.replication.throttled.replicas": (SettingType.LIST, ""),
    "index.interval.bytes": (SettingType.INT, "4096"),
    "leader.replication.throttled.replicas": (SettingType.LIST, ""),
    "local.retention.bytes": (SettingType.LONG, "-2"),
    "local.retention.ms": (SettingType.LONG, "-2"),
    "max.compaction.lag.ms": (SettingType.LONG, "9223372036854775807"),
    "max.message.bytes": (SettingType.INT, "1048588"),
    "message.timestamp.after.max.ms": (SettingType.LONG, "3600000"),
    "message.timestamp.before.max.ms": (SettingType.LONG, "9223372036854775807"),
    "message.timestamp.type": (SettingType.STRING, "CreateTime"),
    "min.cleanable.dirty.ratio": (SettingType.DOUBLE, "0.5"),
    "min.compaction.lag.ms": (SettingType.LONG, "0"),
    "min.insync.replicas": (SettingType.INT, "1"),
    "preallocate": (SettingType.BOOLEAN, "false"),
    "remote.log.copy.disable": (SettingType.BOOLEAN, "false"),
    "remote.log.delete.on.disable": (SettingType.BOOLEAN, "false"),
    "remote.storage.enable": (SettingType.BOOLEAN, "false"),
    "retention.bytes": (SettingType.LONG, "-1"),
    "retention.ms": (SettingType.LONG, "604800000"),
    "segment.bytes": (SettingType.INT, "1073741824"),
    "segment.index.bytes": (SettingType.INT, "10485760"),
    "segment.jitter.ms": (SettingType.LONG, "0"),
    "segment.ms": (SettingType.LONG, "604800000"),
    "unclean.leader.election.enable": (SettingType.BOOLEAN, "false"),
}


def test_the_table_is_kafkas_and_one_setting_of_our_own() -> None:
    ours = {name: (each.type, each.default) for name, each in SETTINGS.items()}
    assert ours.pop("penstock.durability") == (SettingType.STRING, "fsync")
    assert ours == KAFKA_4_3


def test_every_setting_is_explained_and_its_default_is_valid() -> None:
    for declared in SETTINGS.values():
        assert declared.doc.endswith((".", ")")), declared.name
        declared.parse(declared.default)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "x"),
        ("retention.ms", ""),
        ("retention.ms", "-2"),
        ("retention.ms", str(LONG_MAX + 1)),
        ("retention.ms", "1_000"),
        ("retention.ms", "9" * 10_000),
        ("max.message.bytes", str(2**31)),
        ("max.message.bytes", "-1"),
        ("segment.bytes", "1048575"),
        ("segment.ms", "0"),
        ("cleanup.policy", "compact,burn"),
        ("compression.type", "zip"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("message.timestamp.type", "createtime"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("min.insync.replicas", "0"),
        ("preallocate", "yes"),
        ("remote.storage.enable", "true"),
        ("leader.replication.throttled.replicas", "0:1,x"),
        ("penstock.durability", "maybe"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        check({name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", " 5 "),
        ("retention.bytes", "-5"),
        ("cleanup.policy", "compact, delete"),
        ("cleanup.policy", "delete,delete"),
        ("cleanup.policy", ""),
        ("preallocate", "TRUE"),
        ("min.cleanable.dirty.ratio", "0"),
        ("leader.replication.throttled.replicas", "*"),
        ("follower.replication.throttled.replicas", "0:1,1:1"),
        ("remote.storage.enable", "false"),
    ],
)
def test_what_kafka_accepts_is_accepted(name: str, text: str) -> None:
    check({name: text})


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="Unknown topic config name: retention"):
        check({"retention": "1"})
    with pytest.raises(InvalidConfig):
        setting("")


def test_null_is_no_value() -> None:
    with pytest.raises(InvalidConfig, match="null"):
        check({"retention.ms": None})


def test_lags_that_contradict_each_other_are_refused_also_across_defaults() -> None:
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms"):
        check({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms"):
        check({"min.compaction.lag.ms": "10"}, {"max.compaction.lag.ms": "5"})


def test_overrides_win_over_the_brokers_defaults_and_those_over_ours() -> None:
    settings = resolve(
        {"retention.ms": "5", "cleanup.policy": "compact"},
        {"retention.ms": "7", "segment.ms": "9", "penstock.durability": "os"},
    )
    assert (settings.retention_ms, settings.segment_ms, settings.index_interval_bytes) == (
        5,
        9,
        4096,
    )
    assert settings.cleanup_policy == {"compact"}
    assert settings.compacted
    assert settings.durability == "os"
    assert not settings.log_append_time


def test_any_negative_size_means_no_limit() -> None:
    assert resolve({"retention.bytes": "-77"}, {}).retention_bytes == -1


def test_equal_configurations_share_one_settings_object() -> None:
    one = resolve({"retention.ms": "5", "segment.ms": "9"}, {})
    assert resolve({"segment.ms": "9", "retention.ms": "5"}, {}) is one


@given(st.sampled_from(sorted(SETTINGS)), st.text(max_size=40))
def test_any_text_is_either_a_value_or_refused_in_words(name: str, text: str) -> None:
    with contextlib.suppress(InvalidConfig):
        check({name: text})
