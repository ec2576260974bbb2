"""`penstock queue`: declare, list, look into, fill and empty queues."""

from __future__ import annotations

from operator import itemgetter
from typing import Annotated, Any

import typer

from penstock.cli.completion import queue_names
from penstock.cli.connection import Json
from penstock.cli.management import (
    DEFAULT_VHOST,
    Argument,
    Management,
    Vhost,
    counted,
    managed,
    pairs,
)
from penstock.cli.output import (
    Columns,
    Failure,
    confirm,
    emit_json,
    emit_rows,
    emit_table,
    family,
    human_bytes,
    in_words,
    is_given,
    say,
)
from penstock.cli.queue_messages import Name, get, peek, publish

app = family("Declare, list, look into, fill and empty queues.")

Names = Annotated[
    list[str], typer.Argument(metavar="QUEUE...", autocompletion=queue_names, callback=is_given)
]
DeadLetterTo = Annotated[
    str | None,
    typer.Option(
        "--dead-letter-to", metavar="QUEUE", help="Where dead letters go.", callback=is_given
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@app.command()
@managed
def declare(
    names: Names,
    dead_letter_to: DeadLetterTo = None,
    ttl_ms: Annotated[
        int | None,
        typer.Option("--ttl-ms", min=0, metavar="N", help="How long a message may wait."),
    ] = None,
    max_length: Annotated[
        int | None, typer.Option("--max-length", min=0, metavar="N", help="Messages at most.")
    ] = None,
    max_priority: Annotated[
        int | None,
        typer.Option("--max-priority", min=0, max=255, metavar="N", help="Levels of priority."),
    ] = None,
    delivery_limit: Annotated[
        int | None,
        typer.Option("--delivery-limit", min=0, metavar="N", help="Returns before it dies."),
    ] = None,
    argument: Argument = None,
    transient: Annotated[
        bool, typer.Option("--transient", help="Gone when the broker restarts.")
    ] = False,
    auto_delete: Annotated[
        bool, typer.Option("--auto-delete", help="Gone with the last consumer.")
    ] = False,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
) -> None:
    """Declare queues. One that is there already must be as declared.

    \b
    Examples:
      penstock queue declare jobs
      penstock queue declare failed
      penstock queue declare orders --dead-letter-to failed --delivery-limit 5
      penstock queue declare alerts --max-priority 10 --ttl-ms 60000
      penstock queue declare events -a x-queue-type=stream -a x-max-age=7D
    """
    arguments = pairs(argument)
    for name, value in (
        ("x-dead-letter-exchange", None if dead_letter_to is None else ""),
        ("x-dead-letter-routing-key", dead_letter_to),
        ("x-message-ttl", ttl_ms),
        ("x-max-length", max_length),
        ("x-max-priority", max_priority),
        ("x-delivery-limit", delivery_limit),
    ):
        if value is not None:
            arguments[name] = value
    body = {"durable": not transient, "auto_delete": auto_delete, "arguments": arguments}
    for name in names:
        broker.put("queues", vhost, name, body=body)
        say(f"declared {name}")
    if dead_letter_to is not None and not _is_there(broker, vhost, dead_letter_to):
        say(f"there is no queue {dead_letter_to} yet: until it is declared, what dies is gone")


@app.command("list")
@managed
def list_queues(
    all_vhosts: Annotated[
        bool, typer.Option("--all-vhosts", help="Of every virtual host you may see.")
    ] = False,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
    json: Json = False,
) -> None:
    """List queues with what waits in them and who consumes.

    \b
    Examples:
      penstock queue list
      penstock queue list --json | jq -r '.[] | select(.messages_ready > 1000).name'
    """
    where = ("queues",) if all_vhosts else ("queues", vhost)
    rows = broker.get(*where)
    columns: Columns = {
        **({"vhost": itemgetter("vhost")} if all_vhosts else {}),
        "queue": itemgetter("name"),
        "ready": itemgetter("messages_ready"),
        "unacked": itemgetter("messages_unacknowledged"),
        "consumers": itemgetter("consumers"),
        "log": _log_size,
        "arguments": lambda row: in_words(row["arguments"]),
    }
    nothing = "there are no queues; declare one with `penstock queue declare NAME`"
    emit_rows(rows, columns, as_json=json, nothing=nothing)


def _log_size(row: dict[str, Any]) -> str:
    return "" if row["message_bytes"] is None else human_bytes(row["message_bytes"])


@app.command()
@managed
def describe(
    name: Name,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
    json: Json = False,
) -> None:
    """Show everything about a queue, with its bindings.

    \b
    Examples:
      penstock queue describe jobs
      penstock queue describe jobs --json | jq .messages_unacknowledged
    """
    queue = broker.get("queues", vhost, name)
    bindings = broker.get("queues", vhost, name, "bindings")
    if json:
        emit_json({**queue, "bindings": bindings})
        return
    stats = queue["message_stats"]
    lines = {
        "type": queue["type"] + ("" if queue["durable"] else ", transient"),
        "topic": queue["topic"],
        "ready": queue["messages_ready"],
        "unacknowledged": queue["messages_unacknowledged"],
        "scheduled": queue["messages_scheduled"],
        "consumers": queue["consumers"],
        "log": human_bytes(queue["message_bytes"] or 0),
        "published": stats["publish"],
        "delivered": stats["deliver"],
        "acknowledged": stats["ack"],
        "policy": queue["policy"] or "none",
        **queue["arguments"],
    }
    emit_table(("what", "is"), [[key, str(value)] for key, value in lines.items()], title=name)
    if bindings:
        rows = [[one["source"], one["routing_key"], in_words(one["arguments"])] for one in bindings]
        emit_table(("exchange", "routing key", "arguments"), rows)


@app.command()
@managed
def delete(
    names: Names,
    if_empty: Annotated[bool, typer.Option("--if-empty", help="Only if nothing waits.")] = False,
    if_unused: Annotated[bool, typer.Option("--if-unused", help="Only without consumers.")] = False,
    yes: Yes = False,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
) -> None:
    """Delete queues and the messages in them.

    \b
    Examples:
      penstock queue delete jobs
      penstock queue delete jobs --if-empty --yes
    """
    confirm(f"Delete {', '.join(names)} with all messages?", yes)
    conditions = {"if-empty": _true(if_empty), "if-unused": _true(if_unused)}
    for name in names:
        gone = broker.call("DELETE", ("queues", vhost, name), query=conditions)
        say(f"deleted {name} with {counted(gone['messages'], 'message')}")


@app.command()
@managed
def purge(
    name: Name,
    yes: Yes = False,
    vhost: Vhost = DEFAULT_VHOST,
    *,
    broker: Management,
) -> None:
    """Throw away every message that is ready.

    \b
    Example:
      penstock queue purge jobs --yes
    """
    confirm(f"Throw away all messages that wait in {name}?", yes)
    gone = broker.delete("queues", vhost, name, "contents")
    say(f"purged {name} of {counted(gone['messages'], 'message')}")


app.command()(peek)
app.command()(get)
app.command()(publish)


def _is_there(broker: Management, vhost: str, name: str) -> bool:
    try:
        return bool(broker.get("queues", vhost, name))
    except Failure:
        return False


def _true(flag: bool) -> str | None:
    return "true" if flag else None
