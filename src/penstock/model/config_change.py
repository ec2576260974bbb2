"""Changes to a resource's configuration, and what they make of it (KIP-339).

A change sets a setting, deletes its override, or adds entries to or takes them from a list. Setting
twice in one request, or setting to null, is refused as Kafka refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from penstock.errors import InvalidConfig, InvalidRequest
from penstock.model.setting import SettingType, split_list


class Operation(IntEnum):
    """What a change does, by Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One change. `operation` is a number of `Operation`, which `check_changes` makes sure of."""

    name: str
    operation: int
    value: str | None


# Type and value in force of a setting without its override; None for an unknown one.
Known = Callable[[str], tuple[SettingType, str] | None]


def check_changes(changes: Sequence[ConfigChange]) -> None:
    """Raise InvalidRequest for a list of changes that contradicts itself."""
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise InvalidRequest("Error due to duplicate config keys")
    for change in changes:
        if not Operation.SET <= change.operation <= Operation.SUBTRACT:
            raise InvalidRequest(f"Unknown operation {change.operation} for {change.name}")
    nulls = [c.name for c in changes if c.value is None and c.operation != Operation.DELETE]
    if nulls:
        raise InvalidRequest(f"Null value not supported for : {', '.join(nulls)}")


def apply_changes(
    config: Mapping[str, str], changes: Sequence[ConfigChange], known: Known
) -> dict[str, str]:
    """The overrides after the changes. Deleting what is not set, known or not, changes nothing."""
    after = dict(config)
    for name, operation, value in changes:
        if operation == Operation.DELETE:
            after.pop(name, None)
            continue
        assert value is not None
        if operation == Operation.SET:
            after[name] = value
            continue
        found = known(name)
        kind, in_force = found if found is not None else (None, "")
        if kind is not SettingType.LIST:
            raise InvalidConfig(
                f"Can't {Operation(operation).name} to key {name} because its type is not LIST."
            )
        entries = split_list(after.get(name, in_force))
        wanted = split_list(value)
        if operation == Operation.APPEND:
            entries += [entry for entry in wanted if entry not in entries]
        else:
            entries = [entry for entry in entries if entry not in wanted]
        after[name] = ",".join(entries)
    return after
