"""The broker's loggers as a configuration resource: what they write, changed while it runs.

Kafka's tools call it BROKER_LOGGER (KIP-412). Only loggers of this package are shown; `root`, as
Kafka names it, is `penstock`, which the others follow. Levels have Kafka's names. Nothing is kept:
a restart begins with the options.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.errors import InvalidConfig, InvalidRequest
from penstock.model.config_change import ConfigChange, Operation, check_changes
from penstock.model.described_setting import ConfigSource, DescribedSetting

ROOT = "root"
_PACKAGE = "penstock"
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}
_NAMES = {level: name for name, level in _LEVELS.items() if name != "TRACE"}


def _names() -> list[str]:
    known = logging.root.manager.loggerDict
    return [ROOT, *sorted(name for name in known if name.startswith(_PACKAGE + "."))]


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(_PACKAGE if name == ROOT else name)


def describe() -> list[DescribedSetting]:
    """Every logger and the level in force."""
    return [
        DescribedSetting(name, _level(name), ConfigSource.BROKER_LOGGER, None, "")
        for name in _names()
    ]


def _level(name: str) -> str:
    level = _logger(name).getEffectiveLevel()
    return _NAMES.get(level, logging.getLevelName(level))


def alter(changes: Sequence[ConfigChange], *, validate_only: bool = False) -> None:
    """Set levels, or with DELETE let a logger follow the one above it again."""
    check_changes(changes)
    for change in changes:
        _check(change)
    if validate_only:
        return
    for name, operation, value in changes:
        level = _LEVELS[(value or "").upper()] if operation == Operation.SET else logging.NOTSET
        _logger(name).setLevel(level)


def _check(change: ConfigChange) -> None:
    name, operation, value = change
    if operation in (Operation.APPEND, Operation.SUBTRACT):
        verb = Operation(operation).name
        raise InvalidRequest(f"{verb} operation is not allowed for the BROKER_LOGGER resource")
    if name not in _names():
        raise InvalidConfig(f"Logger {name[:200]} does not exist!")
    if operation == Operation.DELETE and name == ROOT:
        raise InvalidRequest("Removing the log level of the root logger is not allowed")
    if operation == Operation.SET and (value or "").upper() not in _LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {name} to {(value or '')[:100]!r}: it must be one of "
            f"{', '.join(_LEVELS)}"
        )
