"""`penstock user`: who may log in, and what they may do where."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from penstock.cli.connection import Json
from penstock.cli.management import (
    DEFAULT_VHOST,
    Management,
    Vhost,
    managed,
)
from penstock.cli.output import Failure, confirm, emit_json, emit_table, family, say

app = family("Add, list, permit and delete users.")

Name = Annotated[str, typer.Argument(metavar="NAME")]
NewPassword = Annotated[
    str | None,
    typer.Option(
        "--new-password", metavar="TEXT", help="Else you are asked, or it is read from a pipe."
    ),
]


@app.command()
@managed
def add(
    name: Name,
    new_password: NewPassword = None,
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="administrator, monitoring, policymaker."),
    ] = None,
    *,
    broker: Management,
) -> None:
    """Add a user, who may do nothing yet: see `penstock user permit`.

    \b
    Examples:
      penstock user add billing
      penstock user add anna --tag administrator < password.txt
    """
    if any(row["name"] == name for row in broker.get("users")):
        raise Failure(f"there is a user {name} already; see `penstock user password`")
    body = {"password": _chosen(new_password, name), "tags": tag or []}
    broker.put("users", name, body=body)
    say(f"added {name}")


@app.command("list")
@managed
def list_users(
    *,
    broker: Management,
    json: Json = False,
) -> None:
    """List users with what they may do.

    \b
    Example:
      penstock user list
    """
    users, permissions = broker.get("users"), broker.get("permissions")
    for row in users:
        row["permissions"] = [
            {key: one[key] for key in ("vhost", "configure", "write", "read")}
            for one in permissions
            if one["user"] == row["name"]
        ]
    if json:
        emit_json(users)
        return
    patterns = ("vhost", "configure", "write", "read")
    table = [
        [row["name"], " ".join(row["tags"]), *(one[key] for key in patterns)]
        for row in users
        for one in row["permissions"] or [dict.fromkeys(patterns)]
    ]
    emit_table(("user", "tags", *patterns), table)


@app.command("password")
@managed
def change_password(
    name: Name,
    new_password: NewPassword = None,
    *,
    broker: Management,
) -> None:
    """Give a user another password. Connections that are open stay so.

    \b
    Example:
      penstock user password guest
    """
    tags = broker.get("users", name)["tags"]
    broker.put("users", name, body={"password": _chosen(new_password, name), "tags": tags})
    say(f"changed the password of {name}")


@app.command()
@managed
def permit(
    name: Name,
    configure: Annotated[
        str, typer.Option("--configure", metavar="PATTERN", help="What they may declare, delete.")
    ] = ".*",
    write: Annotated[
        str, typer.Option("--write", metavar="PATTERN", help="What they may publish to, bind.")
    ] = ".*",
    read: Annotated[
        str, typer.Option("--read", metavar="PATTERN", help="What they may consume, purge.")
    ] = ".*",
    nothing: Annotated[
        bool, typer.Option("--nothing", help="Shut them out of the virtual host.")
    ] = False,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
) -> None:
    """Say what a user may do in a virtual host, by patterns of names.

    \b
    Examples:
      penstock user permit anna
      penstock user permit billing --configure '^$' --write '^invoices$' --read '^orders$'
      penstock user permit billing --vhost staging --nothing
    """
    if nothing:
        broker.delete("permissions", vhost, name)
        say(f"{name} may not use {vhost}")
        return
    body = {"configure": configure, "write": write, "read": read}
    broker.put("permissions", vhost, name, body=body)
    say(f"permitted {name} in {vhost}")


@app.command()
@managed
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    *,
    broker: Management,
) -> None:
    """Delete a user with all permissions.

    \b
    Example:
      penstock user delete billing --yes
    """
    confirm(f"Delete the user {name}?", yes)
    broker.delete("users", name)
    say(f"deleted {name}")


def _chosen(given: str | None, name: str) -> str:
    """The new password: not on the command line if it can be helped."""
    if given is None and sys.stdin.isatty():
        prompt = f"New password of {name}"
        given = str(typer.prompt(prompt, hide_input=True, confirmation_prompt=True, err=True))
    elif given is None:
        given = sys.stdin.readline().rstrip("\n")
    if not given:
        raise typer.BadParameter("a password is not empty", param_hint="--new-password")
    return given
