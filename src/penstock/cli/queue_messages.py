"""`penstock queue peek|get|publish`: the messages of a queue, looked at, taken out and put in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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
    pairs,
    payload_fields,
    payload_of,
    texts,
)
from penstock.cli.output import Columns, Failure, emit_json, emit_rows, say

DEFAULT = "amq.default"  # what the API calls the exchange without a name

NUMBERS = ("priority", "delivery_mode", "timestamp")  # the other properties are texts

Name = Annotated[str, typer.Argument(metavar="QUEUE", autocompletion=queue_names)]


@managed
def peek(
    name: Name,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, metavar="N")] = 10,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, metavar="N", help="Begin there in its log.")
    ] = None,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
    json: Json = False,
) -> None:
    """Show messages of a queue and leave them there, uncounted and in their place.

    \b
    Examples:
      penstock queue peek jobs
      penstock queue peek jobs -n 100 --json | jq -r '.[].payload'
    """
    messages = broker.get("queues", vhost, name, "messages", count=count, offset=offset)
    columns: Columns = {
        "offset": itemgetter("offset"),
        "state": itemgetter("state"),
        "routing key": itemgetter("routing_key"),
        "bytes": itemgetter("payload_bytes"),
        "body": glimpse,
    }
    emit_rows(messages, columns, as_json=json, nothing=f"nothing waits in {name}")


@managed
def get(
    name: Name,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000, metavar="N")] = 1,
    requeue: Annotated[
        bool, typer.Option("--requeue", help="Put them back, counted as returned.")
    ] = False,
    reject: Annotated[
        bool, typer.Option("--reject", help="Reject them: to the dead letters, if there are any.")
    ] = False,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
    json: Json = False,
) -> None:
    """Take messages out of a queue and print their bodies, one a line.

    \b
    Examples:
      penstock queue get jobs
      penstock queue get jobs -n 10 --json
      penstock queue get jobs --reject
    """
    if requeue and reject:
        raise typer.BadParameter("either --requeue or --reject")
    mode = "ack_requeue_true" if requeue else "ack_requeue_false"
    body = {"count": count, "ackmode": "reject_requeue_false" if reject else mode}
    messages = broker.post("queues", vhost, name, "get", body=body)
    if json:
        emit_json(messages)
        return
    for message in messages:
        sys.stdout.buffer.write(payload_of(message) + b"\n")
    sys.stdout.buffer.flush()
    if not messages:
        say(f"nothing waits in {name}")


@managed
def publish(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", autocompletion=queue_names)
    ] = None,
    message: Annotated[
        list[str] | None,
        typer.Option("--message", "-m", metavar="TEXT", help="A message; repeat for several."),
    ] = None,
    exchange: Annotated[
        str | None,
        typer.Option(
            "--exchange", "-e", metavar="EXCHANGE", help="To this exchange, not to a queue."
        ),
    ] = None,
    routing_key: Annotated[
        str, typer.Option("--routing-key", "-k", metavar="KEY", help="With this routing key.")
    ] = "",
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header; repeat for several."),
    ] = None,
    prop: Annotated[
        list[str] | None,
        typer.Option(
            "--property", "-p", metavar="NAME=VALUE", help="content_type, priority, expiration ..."
        ),
    ] = None,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
) -> None:
    """Publish messages, and wait until each is safe: from -m, or a line each from standard input.

    \b
    Examples:
      penstock queue publish jobs -m 'resize 4711'
      penstock queue publish jobs -m urgent --property priority=9 --header attempt=1
      penstock queue publish --exchange logs --routing-key app.error -m 'disk full'
      cat jobs.txt | penstock queue publish jobs
    """
    if (queue is None) == (exchange is None):
        raise typer.BadParameter("say one of them: a queue, or --exchange")
    target, key = (exchange or DEFAULT, routing_key) if queue is None else (DEFAULT, queue)
    properties = _properties(prop, header)
    if queue is not None:
        broker.get("queues", vhost, queue)
    sent = unrouted = refused = 0
    for body in _bodies(message):
        fields = {"routing_key": key, "properties": properties, **payload_fields(body)}
        answer = broker.post("exchanges", vhost, target, "publish", body=fields)
        sent += 1
        unrouted += not answer["routed"]
        refused += answer["refused"]
    if unrouted:
        raise Failure(
            f"no queue took {counted(unrouted, 'message')} of {sent}; see `penstock binding list`"
        )
    if refused:
        raise Failure(f"{counted(refused, 'message')} of {sent} refused: the queue is full")
    say(f"published {counted(sent, 'message')}")


def _bodies(messages: list[str] | None) -> Iterator[bytes]:
    if messages is not None:
        for text in messages:
            yield text.encode("utf-8", "surrogateescape")
        return
    if sys.stdin.isatty():
        say("type messages, one a line; Ctrl-D ends")
    for line in sys.stdin.buffer:
        yield line.removesuffix(b"\n")


def _properties(given: list[str] | None, headers: list[str] | None) -> dict[str, Any]:
    properties: dict[str, Any] = texts(given, "--property")
    numbers = [item for item in given or () if item.partition("=")[0].strip() in NUMBERS]
    properties.update(pairs(numbers, "--property"))
    if headers:
        properties["headers"] = pairs(headers, "--header")
    return properties
