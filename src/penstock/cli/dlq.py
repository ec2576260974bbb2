"""`penstock dlq`: dead letters: where they lie, why they died, and sending them back."""

from __future__ import annotations

from datetime import datetime
from operator import itemgetter
from typing import Annotated, Any

import typer

from penstock.cli.completion import queue_names
from penstock.cli.connection import Json
from penstock.cli.management import (
    DEFAULT_VHOST,
    Management,
    Vhost,
    counted,
    glimpse,
    managed,
)
from penstock.cli.output import Columns, Failure, emit_json, emit_rows, family, say

app = family("See dead letters and send them back.")

Name = Annotated[str, typer.Argument(metavar="QUEUE", autocompletion=queue_names)]
FromQueue = Annotated[
    str | None, typer.Option("--from", metavar="QUEUE", help="Only those that died there.")
]
Reason = Annotated[
    str | None,
    typer.Option(
        "--reason", metavar="WHY", help="Only rejected, expired, maxlen or delivery_limit."
    ),
]
RoutingKey = Annotated[
    str | None,
    typer.Option("--routing-key", "-k", metavar="KEY", help="Only those published with this key."),
]
Contains = Annotated[
    str | None, typer.Option("--contains", metavar="TEXT", help="Only those with this in the body.")
]


@app.command("list")
@managed
def list_places(
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
    json: Json = False,
) -> None:
    """List the queues that dead letters go to, and from where.

    \b
    Examples:
      penstock dlq list
      penstock dlq list --json | jq '[.[].messages] | add'
    """
    rows = broker.get("dead-letters", vhost)
    columns: Columns = {
        "queue": itemgetter("name"),
        "ready": itemgetter("messages_ready"),
        "dead letters of": lambda row: " ".join(row["sources"]),
    }
    nothing = "no queue has a place for dead letters; see `penstock queue declare --help`"
    emit_rows(rows, columns, as_json=json, nothing=nothing)


@app.command()
@managed
def peek(
    name: Name,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, metavar="N")] = 10,
    source: FromQueue = None,
    reason: Reason = None,
    routing_key: RoutingKey = None,
    contains: Contains = None,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
    json: Json = False,
) -> None:
    """Show dead letters, where and why they died, and leave them there.

    \b
    Examples:
      penstock dlq peek failed
      penstock dlq peek failed --reason expired --from orders -n 100
    """
    wanted = _filter(source, reason, routing_key, contains)
    letters = broker.get("dead-letters", vhost, name, count=count, **wanted)
    columns: Columns = {
        "offset": itemgetter("offset"),
        "died in": lambda one: one["death"]["queue"],
        "reason": lambda one: one["death"]["reason"],
        "times": lambda one: one["death"]["count"],
        "when": lambda one: datetime.fromtimestamp(one["death"]["time_s"]).isoformat(" "),
        "body": lambda one: glimpse(one, 40),
    }
    emit_rows(letters, columns, as_json=json, nothing=f"no such dead letters in {name}")


@app.command()
@managed
def redrive(
    name: Name,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, metavar="N", help="So many at most.")
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="QUEUE", help="To this queue, not where each died."),
    ] = None,
    source: FromQueue = None,
    reason: Reason = None,
    routing_key: RoutingKey = None,
    contains: Contains = None,
    offset: Annotated[
        list[int] | None,
        typer.Option("--offset", metavar="N", help="Only this one, as peek shows it; repeatable."),
    ] = None,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
    json: Json = False,
) -> None:
    """Send dead letters back to the queue each died in: all that are ready, or some.

    They go back as they were before they died, and are safe there before they leave here.

    \b
    Examples:
      penstock dlq redrive failed
      penstock dlq redrive failed --reason rejected --contains '"customer": 4711'
      penstock dlq redrive failed --limit 10 --to orders-retry
    """
    body: dict[str, Any] = dict(_filter(source, reason, routing_key, contains))
    body |= {"limit": limit, "to": to, "offsets": offset}
    done = broker.post("dead-letters", vhost, name, "redrive", body=body)
    if json:
        emit_json(done)
    say(f"sent {counted(done['moved'], 'message')} back")
    if done["homeless"]:
        raise Failure(
            f"{counted(done['homeless'], 'message')} stayed: the queue they died in is gone; "
            "--to sends them elsewhere"
        )
    if done["refused"]:
        raise Failure(f"{counted(done['refused'], 'message')} stayed: the queue is full")


def _filter(
    source: str | None, reason: str | None, routing_key: str | None, contains: str | None
) -> dict[str, str | None]:
    return {"queue": source, "reason": reason, "routing_key": routing_key, "contains": contains}
