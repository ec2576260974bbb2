"""`penstock policy`: settings for every queue and exchange whose name fits a pattern."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated

import typer

from penstock.cli.connection import Json
from penstock.cli.management import (
    DEFAULT_VHOST,
    Management,
    Vhost,
    managed,
    pairs,
)
from penstock.cli.output import Columns, confirm, emit_rows, family, in_words, say

app = family("Set, list and delete policies.")

Name = Annotated[str, typer.Argument(metavar="POLICY")]


@app.command("set")
@managed
def put(
    name: Name,
    pattern: Annotated[str, typer.Argument(metavar="PATTERN", help="Of names it holds for.")],
    settings: Annotated[list[str], typer.Argument(metavar="NAME=VALUE...", help="What holds.")],
    priority: Annotated[
        int, typer.Option("--priority", metavar="N", help="The highest that fits holds, alone.")
    ] = 0,
    apply_to: Annotated[
        str, typer.Option("--apply-to", metavar="WHAT", help="all, queues or exchanges.")
    ] = "all",
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
) -> None:
    """Set a policy. It holds at once, for what is there and what will be.

    \b
    Examples:
      penstock policy set short '^tmp[.]' message-ttl=60000 max-length=1000
      penstock policy set rescue '^orders' dead-letter-exchange=graveyard delivery-limit=5
      penstock policy set spare '^mail$' alternate-exchange=unroutable --apply-to exchanges
    """
    body = {
        "pattern": pattern,
        "definition": pairs(settings, "NAME=VALUE"),
        "priority": priority,
        "apply-to": apply_to,
    }
    broker.put("policies", vhost, name, body=body)
    say(f"set {name}")


@app.command("list")
@managed
def list_policies(
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
    json: Json = False,
) -> None:
    """List policies, the strongest first.

    \b
    Example:
      penstock policy list
    """
    rows = broker.get("policies", vhost)
    columns: Columns = {
        "policy": itemgetter("name"),
        "pattern": itemgetter("pattern"),
        "applies to": itemgetter("apply-to"),
        "priority": itemgetter("priority"),
        "settings": lambda row: in_words(row["definition"]),
    }
    emit_rows(rows, columns, as_json=json, nothing="there are no policies")


@app.command()
@managed
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
) -> None:
    """Delete a policy; what it held for is at once as declared.

    \b
    Example:
      penstock policy delete short --yes
    """
    confirm(f"Delete the policy {name}?", yes)
    broker.delete("policies", vhost, name)
    say(f"deleted {name}")
