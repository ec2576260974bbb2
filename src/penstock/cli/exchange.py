"""`penstock exchange`: declare, list and delete exchanges."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated, Any

import typer

from penstock.cli.connection import Json
from penstock.cli.management import (
    DEFAULT_VHOST,
    Argument,
    Management,
    Vhost,
    managed,
    pairs,
)
from penstock.cli.output import Columns, confirm, emit_rows, family, in_words, say

app = family("Declare, list and delete exchanges.")

Name = Annotated[str, typer.Argument(metavar="EXCHANGE")]


@app.command()
@managed
def declare(
    name: Name,
    kind: Annotated[
        str,
        typer.Option(
            "--type",
            "-t",
            metavar="TYPE",
            help="direct, fanout, topic, headers, x-consistent-hash, x-delayed-message, "
            "x-message-deduplication.",
        ),
    ] = "direct",
    argument: Argument = None,
    transient: Annotated[
        bool, typer.Option("--transient", help="Gone when the broker restarts.")
    ] = False,
    auto_delete: Annotated[
        bool, typer.Option("--auto-delete", help="Gone with its last binding.")
    ] = False,
    internal: Annotated[
        bool, typer.Option("--internal", help="Only other exchanges publish to it.")
    ] = False,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
) -> None:
    """Declare an exchange. One that is there already must be as declared.

    \b
    Examples:
      penstock exchange declare logs --type topic
      penstock exchange declare later --type x-delayed-message -a x-delayed-type=direct
      penstock exchange declare mail -a alternate-exchange=unroutable
    """
    body = {
        "type": kind,
        "durable": not transient,
        "auto_delete": auto_delete,
        "internal": internal,
        "arguments": pairs(argument),
    }
    broker.put("exchanges", vhost, name, body=body)
    say(f"declared {name}")


@app.command("list")
@managed
def list_exchanges(
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
    json: Json = False,
) -> None:
    """List exchanges.

    \b
    Example:
      penstock exchange list
    """
    rows = broker.get("exchanges", vhost)
    columns: Columns = {
        "exchange": lambda row: row["name"] or "(default)",
        "type": itemgetter("type"),
        "features": _features,
    }
    emit_rows(rows, columns, as_json=json, nothing="there are no exchanges")


def _features(row: dict[str, Any]) -> str:
    words = [
        *(["internal"] if row["internal"] else []),
        *([] if row["durable"] else ["transient"]),
        *(["auto-delete"] if row["auto_delete"] else []),
        in_words(row["arguments"]),
    ]
    return " ".join(filter(None, words))


@app.command()
@managed
def delete(
    name: Name,
    if_unused: Annotated[bool, typer.Option("--if-unused", help="Only without bindings.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
) -> None:
    """Delete an exchange and its bindings.

    \b
    Example:
      penstock exchange delete logs --yes
    """
    confirm(f"Delete {name} with its bindings?", yes)
    query = {"if-unused": "true"} if if_unused else None
    broker.call("DELETE", ("exchanges", vhost, name), query=query)
    say(f"deleted {name}")
