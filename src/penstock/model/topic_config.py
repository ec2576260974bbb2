"""What a topic's configuration means: which overrides are refused, and the settings in force.

`SETTINGS` declares every topic setting. `check` refuses a set of overrides as Kafka would (unknown
name, wrong type, out of bounds, contradictory pairs); `resolve` turns overrides and the broker's
defaults into a `TopicSettings`, typed and ready for the log. Topics with equal configuration share
one `TopicSettings`, so a hundred thousand of them cost nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from penstock.errors import InvalidConfig
from penstock.model.setting import Setting
from penstock.model.topic_settings import SETTINGS

__all__ = ["SETTINGS", "TopicSettings", "check", "resolve", "setting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """A topic's effective settings, typed. Field names are the setting names with underscores."""

    cleanup_policy: frozenset[str]
    compression_type: str
    delete_retention_ms: int
    durability: str
    errors_deadletterqueue_group_enable: bool
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    index_interval_bytes: int
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    preallocate: bool
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


_FIELDS: Mapping[str, str] = {
    field: "penstock.durability" if field == "durability" else field.replace("_", ".")
    for field in TopicSettings.__dataclass_fields__
}
assert set(_FIELDS.values()) <= SETTINGS.keys()


def setting(name: str) -> Setting:
    """The declaration of a topic setting, or InvalidConfig when there is none of that name."""
    found = SETTINGS.get(name)
    if found is None:
        raise InvalidConfig(f"Unknown topic config name: {name[:200]}")
    return found


def check(overrides: Mapping[str, str | None], defaults: Mapping[str, str] | None = None) -> None:
    """Raise InvalidConfig unless a topic may be configured so, on top of `defaults`."""
    for name, text in overrides.items():
        setting(name).parse(text)
    resolve({name: text for name, text in overrides.items() if text is not None}, defaults or {})


def resolve(overrides: Mapping[str, str], defaults: Mapping[str, str]) -> TopicSettings:
    """The settings in force for a topic with these overrides. Equal inputs share one result."""
    return _resolve(frozenset(overrides.items()), frozenset(defaults.items()))


@lru_cache(maxsize=4096)
def _resolve(
    overrides: frozenset[tuple[str, str]], defaults: frozenset[tuple[str, str]]
) -> TopicSettings:
    texts = {**dict(defaults), **dict(overrides)}
    values: dict[str, Any] = {}
    for field, name in _FIELDS.items():
        declared = SETTINGS[name]
        values[field] = declared.parse(texts.get(name, declared.default))
    values["cleanup_policy"] = frozenset(values["cleanup_policy"])
    values["retention_bytes"] = max(-1, values["retention_bytes"])  # any negative is no limit
    settings = TopicSettings(**values)
    if settings.min_compaction_lag_ms > settings.max_compaction_lag_ms:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms "
            f"({settings.min_compaction_lag_ms}) > max.compaction.lag.ms "
            f"({settings.max_compaction_lag_ms})"
        )
    return settings
