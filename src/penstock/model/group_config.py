"""Every setting a group may have: Kafka's names, types, defaults and bounds (KIP-848, KIP-932).

A group's settings exist apart from the group: they may be set before its first member comes. Their
defaults and most of their bounds are options of the broker, which arrive here as `limits`, by the
option's name (`group.consumer.min.session.timeout.ms`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import InvalidConfig
from penstock.model.setting import Setting, SettingType, Value, table_of

_DURATION = re.compile(
    r"by_duration:P(?=.)(?:\d+D)?(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+(?:\.\d{1,9})?S)?)?", re.I
)


def _offset_reset(value: Value) -> str | None:
    if value in ("earliest", "latest") or _DURATION.fullmatch(str(value)):
        return None
    return "it must be earliest, latest, or by_duration: and a length of time such as PT1H"


SETTINGS: Mapping[str, Setting] = table_of(
    [
        Setting(
            "consumer.heartbeat.interval.ms",
            SettingType.INT,
            "5000",
            "How often members of a consumer group (KIP-848) send a heartbeat.",
            minimum=1,
        ),
        Setting(
            "consumer.session.timeout.ms",
            SettingType.INT,
            "45000",
            "How long a member of a consumer group (KIP-848) may be silent before it is out.",
            minimum=1,
        ),
        Setting(
            "errors.deadletterqueue.copy.record.enable",
            SettingType.BOOLEAN,
            "false",
            "Whether dead letters of a share group carry the record's key, value and headers, or "
            "only say where it is (KIP-1191).",
        ),
        Setting(
            "errors.deadletterqueue.topic.name",
            SettingType.STRING,
            "",
            "The topic for records that a share group rejected or was given too often; none if "
            "empty (KIP-1191).",
        ),
        Setting(
            "share.auto.offset.reset",
            SettingType.STRING,
            "latest",
            "Where a share group starts in a partition it has not read: earliest, latest, or "
            "by_duration:PT1H for what was written in the last hour.",
            check=_offset_reset,
        ),
        Setting(
            "share.delivery.count.limit",
            SettingType.INT,
            "5",
            "How often a share group is given a record before it counts as undeliverable.",
            minimum=2,
        ),
        Setting(
            "share.heartbeat.interval.ms",
            SettingType.INT,
            "5000",
            "How often members of a share group send a heartbeat.",
            minimum=1,
        ),
        Setting(
            "share.isolation.level",
            SettingType.STRING,
            "read_uncommitted",
            "Whether a share group is given records of transactions that are not committed.",
            choices=("read_committed", "read_uncommitted"),
        ),
        Setting(
            "share.partition.max.record.locks",
            SettingType.INT,
            "2000",
            "How many records of a partition a share group may have in its members' hands.",
            minimum=100,
        ),
        Setting(
            "share.record.lock.duration.ms",
            SettingType.INT,
            "30000",
            "How long a member of a share group keeps a record before another may have it.",
            minimum=1000,
        ),
        Setting(
            "share.renew.acknowledge.enable",
            SettingType.BOOLEAN,
            "true",
            "Whether a member of a share group may ask for more time with a record.",
        ),
        Setting(
            "share.session.timeout.ms",
            SettingType.INT,
            "45000",
            "How long a member of a share group may be silent before it is out.",
            minimum=1,
        ),
    ]
)

# setting: the broker options that bound it, and Kafka's bounds where the broker does not say.
_BOUNDED_BY = {
    "consumer.heartbeat.interval.ms": ("group.consumer", "heartbeat.interval.ms", 5_000, 15_000),
    "consumer.session.timeout.ms": ("group.consumer", "session.timeout.ms", 45_000, 60_000),
    "share.delivery.count.limit": ("group.share", "delivery.count.limit", 2, 10),
    "share.heartbeat.interval.ms": ("group.share", "heartbeat.interval.ms", 5_000, 15_000),
    "share.partition.max.record.locks": ("group.share", "partition.max.record.locks", 100, 4_000),
    "share.record.lock.duration.ms": ("group.share", "record.lock.duration.ms", 15_000, 60_000),
    "share.session.timeout.ms": ("group.share", "session.timeout.ms", 45_000, 60_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """A group's effective settings, typed."""

    consumer_heartbeat_interval_ms: int
    consumer_session_timeout_ms: int
    errors_deadletterqueue_copy_record_enable: bool
    errors_deadletterqueue_topic_name: str
    share_auto_offset_reset: str
    share_delivery_count_limit: int
    share_heartbeat_interval_ms: int
    share_isolation_level: str
    share_partition_max_record_locks: int
    share_record_lock_duration_ms: int
    share_renew_acknowledge_enable: bool
    share_session_timeout_ms: int


_FIELDS = {field: field.replace("_", ".") for field in GroupSettings.__dataclass_fields__}
assert set(_FIELDS.values()) == SETTINGS.keys()


def broker_option(name: str) -> str:
    """The broker option that a group setting takes its default from."""
    return f"group.{name}"


def resolve(overrides: Mapping[str, str], limits: Mapping[str, str]) -> GroupSettings:
    """The settings in force. Values are trusted: `check` has seen them when they were set."""
    values: dict[str, Any] = {}
    for field, name in _FIELDS.items():
        declared = SETTINGS[name]
        text = overrides.get(name, limits.get(broker_option(name), declared.default))
        values[field] = declared.parse(text)
    return GroupSettings(**values)


def check(overrides: Mapping[str, str], limits: Mapping[str, str]) -> None:
    """Raise InvalidConfig unless a group may be configured so."""
    for name, text in overrides.items():
        declared = SETTINGS.get(name)
        if declared is None:
            raise InvalidConfig(f"Unknown group config name: {name[:200]}")
        value = declared.parse(text)
        if name in _BOUNDED_BY:
            assert isinstance(value, int)
            _check_bounds(name, value, limits)
    settings = resolve(overrides, limits)
    for kind in ("consumer", "share"):
        heartbeat = getattr(settings, f"{kind}_heartbeat_interval_ms")
        if heartbeat >= getattr(settings, f"{kind}_session_timeout_ms"):
            raise InvalidConfig(
                f"{kind}.session.timeout.ms must be greater than {kind}.heartbeat.interval.ms"
            )


def _check_bounds(name: str, value: int, limits: Mapping[str, str]) -> None:
    prefix, rest, lowest, highest = _BOUNDED_BY[name]
    low, high = f"{prefix}.min.{rest}", f"{prefix}.max.{rest}"
    if value < int(limits.get(low, lowest)):
        raise InvalidConfig(f"{name} must be greater than or equal to {low}")
    if value > int(limits.get(high, highest)):
        raise InvalidConfig(f"{name} must be less than or equal to {high}")
