"""`penstock vhost`: virtual hosts, each a world of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.connection import Json
from penstock.cli.management import DEFAULT_HTTP, GUEST, Http, Management, Password, User
from penstock.cli.output import confirm, emit_json, emit_table, say

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Add, list and delete virtual hosts.",
)

Name = Annotated[str, typer.Argument(metavar="VHOST")]


@app.command()
def add(
    name: Name, http: Http = DEFAULT_HTTP, user: User = GUEST, password: Password = GUEST
) -> None:
    """Add a virtual host, which you may then use.

    \b
    Example:
      penstock vhost add staging
    """
    Management(http, user, password).put("vhosts", name)
    say(f"added {name}")


@app.command("list")
def list_vhosts(
    http: Http = DEFAULT_HTTP,
    user: User = GUEST,
    password: Password = GUEST,
    json: Json = False,
) -> None:
    """List the virtual hosts you may see.

    \b
    Example:
      penstock vhost list
    """
    rows = Management(http, user, password).get("vhosts")
    if json:
        emit_json(rows)
    else:
        table = [[row["name"], row["queues"], row["exchanges"]] for row in rows]
        emit_table(("vhost", "queues", "exchanges"), table)


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    http: Http = DEFAULT_HTTP,
    user: User = GUEST,
    password: Password = GUEST,
) -> None:
    """Delete a virtual host with its exchanges, queues and messages.

    \b
    Example:
      penstock vhost delete staging --yes
    """
    confirm(f"Delete {name} with everything in it?", yes)
    Management(http, user, password).delete("vhosts", name)
    say(f"deleted {name}")
