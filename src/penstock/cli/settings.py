"""Settings of topics and groups, as options of commands and as requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connection import broker_errors, result_of

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

Config = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="NAME=VALUE", help="A setting; repeat for several."),
]
Unset = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="NAME", help="Put a setting back to its default."),
]


def settings_of(config: Iterable[str] | None) -> dict[str, str]:
    """`NAME=VALUE`, each, as a table."""
    pairs = {}
    for item in config or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{item!r} is not NAME=VALUE", param_hint="--config")
        pairs[name.strip()] = value.strip()
    return pairs


def change_settings(
    admin: AdminClient,
    bootstrap: str,
    kind: str,
    name: str,
    changes: Mapping[str, str],
    unset: Iterable[str],
) -> None:
    """Change the settings of a `TOPIC` or a `GROUP`."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in changes.items()
    ]
    entries += [
        ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in unset
    ]
    resource = ConfigResource(ResourceType[kind], name, incremental_configs=entries)
    what = f"cannot change {name}"
    with broker_errors(bootstrap, what):
        [future] = admin.incremental_alter_configs([resource]).values()
    result_of(future, bootstrap, what)
