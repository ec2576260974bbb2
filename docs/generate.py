"""Writes the reference pages from the tables in the code: `make docs`.

The pages are committed, so that they can be read where the code is read; a test fails when one of
them is not what this would write.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

import penstock
import penstock.aio
import penstock.testing
from penstock.cli.main import app
from penstock.config import OPTIONS
from penstock.kafka.dispatch import APIS
from penstock.model.topic_settings import SETTINGS

HERE = Path(__file__).resolve().parent / "reference"
MODULES = ("aio", "embedded", "sql", "testing")
MADE = "<!-- Made by `make docs` from the code; change it there. -->\n"


def pages() -> dict[str, str]:
    """File name and content of every page."""
    return {
        "configuration.md": _configuration(),
        "topic-settings.md": _topic_settings(),
        "commands.md": _commands(),
        "kafka-apis.md": _kafka_apis(),
        "library.md": _library(),
    }


def _table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    names = list(head)
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    for row in rows:
        cells = [str(cell).replace("|", "\\|") for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _configuration() -> str:
    parts = [
        f"# Options of the broker\n\n{MADE}",
        "Every option can be given in four ways; a later one wins over an earlier one:\n\n"
        "1. the default below;\n"
        '2. a TOML file, `penstock serve --config FILE`, with a line like `"num.partitions" = 8`;\n'
        "3. the environment, like `PENSTOCK_NUM_PARTITIONS=8`;\n"
        "4. a flag, like `penstock serve --num-partitions 8`.\n\n"
        "Sizes may be written `64MiB`, durations `90s`, `15min`, `12h` or `7d`. Where Kafka has\n"
        "the same option, it has Kafka's name. *Live* options can be changed while the broker\n"
        "runs, with any tool that speaks Kafka's IncrementalAlterConfigs. *Topic setting* names\n"
        "the setting by which a topic can differ from the broker's default.\n",
    ]
    for group in dict.fromkeys(option.group for option in OPTIONS.values()):
        rows = [
            (
                f"`{option.name}`",
                f"`{option.default_text}`" + (f" {option.unit}" if option.unit else ""),
                option.valid_text,
                "yes" if option.dynamic else "",
                f"`{option.topic}`" if option.topic else "",
                option.doc,
            )
            for option in OPTIONS.values()
            if option.group == group
        ]
        head = ("option", "default", "valid", "live", "topic setting", "meaning")
        parts.append(f"## {group}\n\n{_table(head, rows)}")
    return "\n".join(parts)


def _topic_settings() -> str:
    rows = [
        (f"`{setting.name}`", setting.type.name.lower(), f"`{setting.default}`", setting.doc)
        for setting in SETTINGS.values()
    ]
    return (
        f"# Settings of a topic\n\n{MADE}\n"
        "Set them when a topic is created,\n"
        "`penstock topic create orders --config retention.ms=3600000`, or later,\n"
        "`penstock topic alter orders --config retention.ms=3600000`. Names, types and meanings\n"
        "are Kafka's, but for those that begin with `penstock.`. A default shown here can be\n"
        "changed for all topics by the broker's option of the same meaning\n"
        "([configuration](configuration.md)).\n\n"
        + _table(("setting", "type", "default", "meaning"), rows)
    )


def _commands() -> str:
    parts = [f"# Commands\n\n{MADE}\nWhat `--help` says, in one page."]
    root: Any = typer.main.get_command(app)
    for name, command, context in _walk("penstock", root, None):
        parts.append(f"## {name}\n\n```\n{command.get_help(context).rstrip()}\n```\n")
    return "\n\n".join(parts)


def _walk(name: str, command: Any, parent: Any) -> Iterator[tuple[str, Any, Any]]:
    context = command.context_class(
        command, info_name=name.split()[-1], parent=parent, **command.context_settings
    )
    context.terminal_width = context.max_content_width = 96
    yield name, command, context
    if hasattr(command, "list_commands"):
        for child in command.list_commands(context):
            yield from _walk(f"{name} {child}", command.get_command(context, child), context)


def _kafka_apis() -> str:
    rows = []
    for key, api in sorted(APIS.items()):
        served = api.min_version if api.min_served is None else api.min_served
        note = "" if served == api.min_version else f"served from {served}"
        rows.append((key, api.name, f"{api.min_version}-{api.max_version}", note))
    return (
        f"# Kafka APIs\n\n{MADE}\n"
        "What the broker tells clients that it serves, and serves. Clients choose the newest\n"
        "version that both know.\n\n" + _table(("key", "API", "versions", ""), rows)
    )


def _library() -> str:
    from penstock.client.admin import Admin
    from penstock.client.aio_admin import AsyncAdmin

    parts = [
        f"# The Python library\n\n{MADE}",
        "Every public name, with the first sentence of what it says about itself; the rest is in\n"
        "`help(penstock.Client.publish)` and so on, with an example that a test runs.\n",
    ]
    for title, module, more in (
        ("penstock", penstock, {"Admin": Admin}),
        ("penstock.aio", penstock.aio, {"AsyncAdmin": AsyncAdmin}),
        ("penstock.testing", penstock.testing, {}),
        ("penstock.sql", penstock.sql, {}),
        ("penstock.embedded", penstock.embedded, {}),
    ):
        names = [name for name in module.__all__ if name not in MODULES]
        found = {name: getattr(module, name) for name in names} | more
        plain = {name: thing for name, thing in found.items() if not _has_calls(thing)}
        rows = [(f"`{name}{_parameters(thing)}`", _first(thing)) for name, thing in plain.items()]
        parts.append(f"\n## {title}\n\n" + _table(("name", ""), rows))
        for name, thing in found.items():
            if name not in plain:
                parts.append(f"\n### `{name}`\n\n{_first(thing)}\n\n" + _calls(thing))
    parts.append(
        "\n## What a client tells of itself\n\n"
        "`open` and `connect` take `metrics=True` (or a registry) for Prometheus:\n\n"
        + _table(("metric", "labels", ""), _client_metrics())
        + "\nand `tracing=True` (or a provider; by itself where OpenTelemetry's SDK is loaded)\n"
        "for spans `publish <destination>` and `process <source>`. Logs are those of the logger\n"
        "`penstock`.\n"
    )
    return "".join(parts)


def _client_metrics() -> Iterator[tuple[str, str, str]]:
    from prometheus_client import CollectorRegistry, Counter

    from penstock.client.metrics import Meter

    registry = CollectorRegistry()
    Meter(registry)
    for metric in registry._collector_to_names:
        ending = "_total" if isinstance(metric, Counter) else ""
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)
        yield f"`{metric._name}{ending}`", labels, metric._documentation


def _has_calls(thing: Any) -> bool:
    return inspect.isclass(thing) and not issubclass(thing, Exception)


def _first(thing: Any) -> str:
    """The first sentence of its words."""
    text = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return text.split(". ")[0].removesuffix(".") + "." if text else ""


def _parameters(thing: Any) -> str:
    if not inspect.isroutine(thing) or isinstance(thing, property):
        return ""
    shown = []
    for one in inspect.signature(thing).parameters.values():
        if one.name in ("self", "cls"):
            continue
        if (
            one.kind is one.KEYWORD_ONLY
            and "*" not in shown
            and not any(text.startswith("*") for text in shown)
        ):
            shown.append("*")
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        default = "" if one.default is one.empty else f"={one.default!r}"
        shown.append(f"{stars}{one.name}{default}")
    return f"({', '.join(shown)})"


def _calls(kind: Any) -> str:
    rows = []
    for name in sorted(dir(kind)):
        thing = inspect.getattr_static(kind, name)
        if name.startswith("_") or not (inspect.isfunction(thing) or isinstance(thing, property)):
            continue
        rows.append((f"`{name}{_parameters(thing)}`", _first(thing)))
    return _table(("", ""), rows) if rows else ""


def main() -> None:
    """Write every page and say so."""
    HERE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")
        sys.stderr.write(f"wrote docs/reference/{name}\n")


if __name__ == "__main__":
    main()
