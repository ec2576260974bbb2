"""`penstock vhost`: virtual hosts, each a world of its own."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated

import typer

from penstock.cli.connection import Json
from penstock.cli.management import (
    Management,
    managed,
)
from penstock.cli.output import Columns, confirm, emit_rows, family, say

app = family("Add, list and delete virtual hosts.")

Name = Annotated[str, typer.Argument(metavar="VHOST")]


@app.command()
@managed
def add(
    name: Name,
    *,
    broker: Management,
) -> None:
    """Add a virtual host, which you may then use.

    \b
    Example:
      penstock vhost add staging
    """
    broker.put("vhosts", name)
    say(f"added {name}")


@app.command("list")
@managed
def list_vhosts(
    *,
    broker: Management,
    json: Json = False,
) -> None:
    """List the virtual hosts you may see.

    \b
    Example:
      penstock vhost list
    """
    rows = broker.get("vhosts")
    columns: Columns = {
        "vhost": itemgetter("name"),
        "queues": itemgetter("queues"),
        "exchanges": itemgetter("exchanges"),
    }
    emit_rows(rows, columns, as_json=json, nothing="there is no virtual host you may see")


@app.command()
@managed
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    *,
    broker: Management,
) -> None:
    """Delete a virtual host with its exchanges, queues and messages.

    \b
    Example:
      penstock vhost delete staging --yes
    """
    confirm(f"Delete {name} with everything in it?", yes)
    broker.delete("vhosts", name)
    say(f"deleted {name}")
