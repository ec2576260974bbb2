"""Log levels, seen and changed while the broker runs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from penstock.errors import InvalidConfig, InvalidRequest
from penstock.model.config_change import ConfigChange, Operation
from penstock.services import loggers

NAME = "penstock.of.this.test"


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    root, own = logging.getLogger("penstock"), logging.getLogger(NAME)
    before = root.level
    root.setLevel(logging.WARNING)
    yield
    root.setLevel(before)
    own.setLevel(logging.NOTSET)


def level(name: str) -> str | None:
    return next(each.value for each in loggers.describe() if each.name == name)


def alter(name: str, value: str | None, operation: int = Operation.SET) -> None:
    loggers.alter([ConfigChange(name, operation, value)])


def test_a_logger_follows_its_parent_until_it_has_a_level() -> None:
    assert level(NAME) == "WARN"
    alter(NAME, "debug")
    assert level(NAME) == "DEBUG"
    assert logging.getLogger(NAME).isEnabledFor(logging.DEBUG)
    alter(NAME, None, Operation.DELETE)
    assert level(NAME) == "WARN"
    alter("root", "FATAL")
    assert level(NAME) == "FATAL"


def test_what_cannot_be_set_is_refused_and_nothing_changes() -> None:
    with pytest.raises(InvalidConfig, match=r"Logger no\.such does not exist!"):
        alter("no.such", "INFO")
    with pytest.raises(InvalidConfig, match="LOUD"):
        alter(NAME, "LOUD")
    with pytest.raises(InvalidRequest, match="root logger"):
        alter("root", None, Operation.DELETE)
    with pytest.raises(InvalidRequest, match="APPEND"):
        alter(NAME, "INFO", Operation.APPEND)
    loggers.alter([ConfigChange(NAME, Operation.SET, "INFO")], validate_only=True)
    assert level(NAME) == "WARN"
