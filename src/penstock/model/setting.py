"""One configuration setting: its name, type, bounds, default and words, and how its text is read.

Kafka carries every configuration value as text, and its tools show the type, the default and where
a value came from. So a setting is declared once, as a `Setting`, in a table (`topic_config`,
`group_config`), and parsing, refusals, DescribeConfigs and the reference pages follow from it.
Nothing here knows which resource a setting belongs to or where values are kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType

from penstock.errors import InvalidConfig

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

Value = bool | int | float | str | tuple[str, ...]


class SettingType(IntEnum):
    """Kafka's type of a setting, with the number DescribeConfigs v3+ gives it (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS = {SettingType.SHORT: 16, SettingType.INT: 32, SettingType.LONG: 64}
_INTEGER = re.compile(r"[+-]?[0-9]+")  # int() alone would take underscores and other scripts


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting and its rules. `default` is text, as it would arrive on the wire."""

    name: str
    type: SettingType
    default: str
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    check: Callable[[Value], str | None] | None = None

    def parse(self, text: str | None) -> Value:
        """The value in `text`, or InvalidConfig with a sentence that names setting and rule."""
        if text is None:
            raise InvalidConfig(f"{self.name} needs a value: null is not one")
        value = _READERS[self.type](self, text)
        self._check_bounds(text, value)
        self._check_choices(text, value)
        if self.check is not None and (wrong := self.check(value)) is not None:
            raise self._refusal(text, wrong)
        return value

    def canonical(self, text: str) -> str:
        """`text`, which this setting takes, as tools are shown it: however it was written."""
        value = self.parse(text)
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def _check_bounds(self, text: str, value: Value) -> None:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return
        if self.minimum is not None and value < self.minimum:
            raise self._refusal(text, f"it must be at least {self.minimum:.15g}")
        if self.maximum is not None and value > self.maximum:
            raise self._refusal(text, f"it must be at most {self.maximum:.15g}")

    def _check_choices(self, text: str, value: Value) -> None:
        if not self.choices:
            return
        for word in value if isinstance(value, tuple) else (value,):
            if word not in self.choices:
                raise self._refusal(text, f"it must be one of {', '.join(self.choices)}")

    def _refusal(self, text: str, why: str) -> InvalidConfig:
        shown = text if len(text) <= 100 else text[:97] + "..."
        return InvalidConfig(f"Invalid value {shown!r} for configuration {self.name}: {why}")


def _read_boolean(setting: Setting, text: str) -> Value:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise setting._refusal(text, "it must be true or false")
    return word == "true"


def _read_integer(setting: Setting, text: str) -> Value:
    word = text.strip()
    bits = _BITS[setting.type]
    # 20 characters hold any 64-bit number; longer digits would only cost time to read.
    if len(word) > 20 or not _INTEGER.fullmatch(word):
        raise setting._refusal(text, f"it must be a whole number of {bits} bits")
    value = int(word)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise setting._refusal(text, f"it must be a whole number of {bits} bits")
    return value


def _read_double(setting: Setting, text: str) -> Value:
    try:
        value = float(text)
    except ValueError:
        raise setting._refusal(text, "it must be a number") from None
    if value != value or "_" in text:
        raise setting._refusal(text, "it must be a number")
    return value


def _read_string(setting: Setting, text: str) -> Value:
    return text.strip()


def _read_list(setting: Setting, text: str) -> Value:
    return tuple(dict.fromkeys(split_list(text)))  # an entry given twice counts once, as in Kafka


_READERS: Mapping[SettingType, Callable[[Setting, str], Value]] = {
    SettingType.BOOLEAN: _read_boolean,
    SettingType.STRING: _read_string,
    SettingType.INT: _read_integer,
    SettingType.SHORT: _read_integer,
    SettingType.LONG: _read_integer,
    SettingType.DOUBLE: _read_double,
    SettingType.LIST: _read_list,
    SettingType.CLASS: _read_string,
    SettingType.PASSWORD: _read_string,
}


def split_list(text: str) -> list[str]:
    """The entries of a LIST setting: separated by commas, blanks around them ignored."""
    return [word for part in text.split(",") if (word := part.strip())]


def table_of(settings: Iterable[Setting]) -> Mapping[str, Setting]:
    """Settings by name, in the order given; a name declared twice is a mistake of ours."""
    table: dict[str, Setting] = {}
    for setting in settings:
        assert setting.name not in table, setting.name
        table[setting.name] = setting
    return MappingProxyType(table)
