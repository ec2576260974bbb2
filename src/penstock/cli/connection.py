"""From a command to a broker: the addresses, the clients, and what their errors mean in words.

Everything of confluent-kafka is imported when it is needed; it is half of a command's start.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import Failure

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_S = 10.0

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="PENSTOCK_BOOTSTRAP",
        metavar="HOST:PORT",
        help="The broker, or several separated by commas.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


def check_reachable(bootstrap: str, timeout_s: float = 3.0) -> None:
    """Fail at once, in words, when nothing listens; librdkafka would try for many seconds."""
    for place in bootstrap.split(","):
        host, _, port = place.strip().rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise typer.BadParameter(
                f"{place!r} is not an address like {DEFAULT_BOOTSTRAP}", param_hint="--bootstrap"
            )
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s):
                return
        except OSError:
            continue
    raise Failure(f"no broker answers at {bootstrap}; start one with `penstock serve`")


def _settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    import logging  # the client has imported it already

    silent = logging.getLogger("penstock.cli.client")
    silent.addHandler(logging.NullHandler())
    silent.propagate = False
    return {
        "bootstrap.servers": bootstrap,
        "client.id": "penstock",
        # What goes wrong comes back with each call; librdkafka need not write it to our stderr.
        "logger": silent,
        **more,
    }


def admin_client(bootstrap: str) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    check_reachable(bootstrap)
    return AdminClient(_settings(bootstrap))


def producer_client(bootstrap: str, **more: Any) -> Producer:
    from confluent_kafka import Producer

    check_reachable(bootstrap)
    return Producer(_settings(bootstrap, **more))


def consumer_client(bootstrap: str, **more: Any) -> Consumer:
    from confluent_kafka import Consumer

    check_reachable(bootstrap)
    return Consumer(_settings(bootstrap, **more))


@contextmanager
def broker_errors(bootstrap: str, what: str = "") -> Iterator[None]:
    """Turn the client's exceptions into `Failure`; `what` begins the sentence, if anything."""
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as failure:
        raise Failure(_sentence(failure.args[0], bootstrap, what)) from None
    except SystemError as failure:
        # A fatal error of a producer surfaces in the middle of whichever callback runs just then.
        if not isinstance(failure.__cause__, KafkaException):
            raise
        raise Failure(_sentence(failure.__cause__.args[0], bootstrap, what)) from None


def result_of(future: Any, bootstrap: str, what: str) -> Any:
    """Wait for one answer of the admin client."""
    with broker_errors(bootstrap, what):
        return future.result(timeout=TIMEOUT_S)


_MEANINGS = {
    "UNKNOWN_TOPIC_OR_PART": "there is no such topic",
    "_UNKNOWN_TOPIC": "there is no such topic",
    "_UNKNOWN_PARTITION": "there is no such partition",
    "_MSG_TIMED_OUT": "no broker took them in time",
    "TOPIC_ALREADY_EXISTS": "it exists already",
    "GROUP_ID_NOT_FOUND": "there is no such group",
    "NON_EMPTY_GROUP": "it still has members; stop them first",
    "UNKNOWN_MEMBER_ID": "it still has members; stop them first",
}


def meaning_of(error: Any) -> str:
    """A KafkaError in words, to stand after a colon."""
    text = error.str().removeprefix("Broker: ").removeprefix("Local: ").rstrip(".")
    return _MEANINGS.get(error.name(), str(text))


def _sentence(error: Any, bootstrap: str, what: str) -> str:
    text = meaning_of(error)
    if error.name() in ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE"):
        text = f"the broker at {bootstrap} does not answer ({text})"
    return f"{what}: {text}" if what else text
