"""Incremental changes to a configuration (KIP-339)."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidConfig, InvalidRequest
from penstock.model.config_change import ConfigChange, Operation, apply_changes, check_changes
from penstock.model.setting import SettingType

SET, DELETE, APPEND, SUBTRACT = Operation


def known(name: str) -> tuple[SettingType, str] | None:
    table = {"list": (SettingType.LIST, "delete"), "number": (SettingType.INT, "1")}
    return table.get(name)


def after(config: dict[str, str], *changes: tuple[str, int, str | None]) -> dict[str, str]:
    return apply_changes(config, [ConfigChange(*change) for change in changes], known)


def test_setting_and_deleting() -> None:
    assert after({"a": "1", "b": "2"}, ("a", SET, "9"), ("b", DELETE, None)) == {"a": "9"}


def test_deleting_what_is_not_there_changes_nothing() -> None:
    assert after({"a": "1"}, ("unknown", DELETE, None)) == {"a": "1"}


def test_a_list_without_an_override_starts_from_the_value_in_force() -> None:
    assert after({}, ("list", APPEND, "compact")) == {"list": "delete,compact"}
    assert after({}, ("list", SUBTRACT, "delete")) == {"list": ""}


def test_appending_twice_and_subtracting_what_is_not_there_change_nothing() -> None:
    config = {"list": "compact"}
    assert after(config, ("list", APPEND, "compact")) == config
    assert after(config, ("list", SUBTRACT, "delete")) == config
    assert after(config, ("list", APPEND, "x, y")) == {"list": "compact,x,y"}


@pytest.mark.parametrize("name", ["number", "unknown"])
def test_only_lists_are_appended_to(name: str) -> None:
    with pytest.raises(InvalidConfig, match="not LIST"):
        after({}, (name, APPEND, "1"))


def test_a_request_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="duplicate"):
        check_changes([ConfigChange("a", SET, "1"), ConfigChange("a", DELETE, None)])
    with pytest.raises(InvalidRequest, match="Null value not supported for : a"):
        check_changes([ConfigChange("a", SET, None)])
    with pytest.raises(InvalidRequest, match="Unknown operation 9"):
        check_changes([ConfigChange("a", 9, "1")])
