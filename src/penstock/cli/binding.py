"""`penstock binding`: which exchange hands messages to which queue or exchange."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated

import typer

from penstock.cli.completion import queue_names
from penstock.cli.connection import Json
from penstock.cli.management import (
    DEFAULT_VHOST,
    Argument,
    Management,
    Vhost,
    managed,
    pairs,
)
from penstock.cli.output import Columns, Failure, emit_rows, family, in_words, say

app = family("Bind queues to exchanges, and see what is bound.")

Source = Annotated[str, typer.Argument(metavar="EXCHANGE")]
Target = Annotated[str, typer.Argument(metavar="QUEUE", autocompletion=queue_names)]
RoutingKey = Annotated[
    str, typer.Option("--routing-key", "-k", metavar="KEY", help="Of the messages it is for.")
]
ToExchange = Annotated[
    bool, typer.Option("--to-exchange", help="QUEUE is the name of an exchange.")
]


@app.command()
@managed
def add(
    source: Source,
    target: Target,
    routing_key: RoutingKey = "",
    argument: Argument = None,
    to_exchange: ToExchange = False,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
) -> None:
    """Bind a queue, or another exchange, to an exchange.

    \b
    Examples:
      penstock binding add logs errors --routing-key '*.error'
      penstock binding add mail invoices -a x-match=all -a kind=invoice
      penstock binding add logs archive --to-exchange -k '#'
    """
    kind = "e" if to_exchange else "q"
    body = {"routing_key": routing_key, "arguments": pairs(argument)}
    broker.post("bindings", vhost, "e", source, kind, target, body=body)
    say(f"bound {target} to {source}")


@app.command("list")
@managed
def list_bindings(
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue", metavar="QUEUE", autocompletion=queue_names, help="Only to this queue."
        ),
    ] = None,
    exchange: Annotated[
        str | None,
        typer.Option("--exchange", metavar="EXCHANGE", help="Only from this exchange."),
    ] = None,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
    json: Json = False,
) -> None:
    """List bindings.

    \b
    Examples:
      penstock binding list
      penstock binding list --queue errors
    """
    if exchange is not None:
        rows = broker.get("exchanges", vhost, exchange, "bindings", "source")
    elif queue is not None:
        rows = broker.get("queues", vhost, queue, "bindings")
    else:
        rows = broker.get("bindings", vhost)
    if queue is not None:
        wanted = (queue, "queue")
        rows = [row for row in rows if (row["destination"], row["destination_type"]) == wanted]
    columns: Columns = {
        "exchange": itemgetter("source"),
        "routing key": itemgetter("routing_key"),
        "to": itemgetter("destination_type"),
        "name": itemgetter("destination"),
        "arguments": lambda row: in_words(row["arguments"]),
    }
    nothing = "there are no bindings; every queue can be reached by its name all the same"
    emit_rows(rows, columns, as_json=json, nothing=nothing)


@app.command()
@managed
def remove(
    source: Source,
    target: Target,
    routing_key: RoutingKey = "",
    argument: Argument = None,
    to_exchange: ToExchange = False,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
) -> None:
    """Remove a binding: routing key and arguments as it was added.

    \b
    Example:
      penstock binding remove logs errors --routing-key '*.error'
    """
    path = ("bindings", vhost, "e", source, "e" if to_exchange else "q", target)
    arguments = pairs(argument)
    for row in broker.get(*path):
        if row["routing_key"] == routing_key and row["arguments"] == arguments:
            broker.delete(*path, row["properties_key"])
            say(f"unbound {target} from {source}")
            return
    raise Failure(f"{target} is not bound to {source} in this way; see `penstock binding list`")
