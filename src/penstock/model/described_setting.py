"""A setting as it is shown to people: its value, where that came from, and what lies beneath it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock.model.setting import Setting, SettingType


class ConfigSource(IntEnum):
    """Where a value came from, strongest first within a resource; Kafka's numbers (KIP-226)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    GROUP = 8


class Synonym(NamedTuple):
    """One place a value could come from. The first in a setting's list is the one in force."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedSetting(NamedTuple):
    """One line of DescribeConfigs."""

    name: str
    value: str | None
    source: ConfigSource
    type: SettingType | None  # None for a logger's level, which has no declared type
    doc: str
    read_only: bool = False
    synonyms: Sequence[Synonym] = ()

    @property
    def sensitive(self) -> bool:
        return self.type is SettingType.PASSWORD

    @classmethod
    def of(cls, setting: Setting, synonyms: Sequence[Synonym]) -> DescribedSetting:
        """A setting in force by its first synonym, or by its own default when it has none."""
        if synonyms:
            _, value, source = synonyms[0]
        else:
            value, source = setting.default, ConfigSource.DEFAULT
        return cls(setting.name, value, source, setting.type, setting.doc, synonyms=synonyms)
