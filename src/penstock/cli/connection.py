"""From a command to a broker: the addresses, the clients, and what their errors mean in words.

Everything of confluent-kafka is imported when it is needed; it is half of a command's start.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import Failure, say

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
TIMEOUT_S = 10.0
STARTING_S = 3.0  # a broker that was started a moment ago, `penstock serve &`, may take that long

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


def check_reachable(bootstrap: str, timeout_s: float = 3.0, patience_s: float = STARTING_S) -> None:
    """Fail soon, in words, when nothing listens; librdkafka would try for many seconds."""
    places = [_place(text) for text in bootstrap.split(",")]
    give_up = time.monotonic() + patience_s
    while not any(_answers(place, timeout_s) for place in places):
        if not any(_is_known(host) for host, _ in places):
            raise Failure(f"nobody knows where {bootstrap} is; see --bootstrap")
        if time.monotonic() > give_up:
            raise Failure(f"no broker answers at {bootstrap}; start one with `penstock serve`")
        time.sleep(0.1)


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise typer.BadParameter(
            f"{text!r} is not an address like {DEFAULT_BOOTSTRAP}", param_hint="--bootstrap"
        )
    return host.strip("[]"), int(port)


def _answers(place: tuple[str, int], timeout_s: float) -> bool:
    try:
        with socket.create_connection(place, timeout=timeout_s):
            return True
    except (OSError, UnicodeError):  # the latter for names that cannot be a host's
        return False


def _is_known(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):
        return False


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
    except UnicodeEncodeError:
        raise  # an argument that is not UTF-8: told once, for all commands
    except TimeoutError:
        raise Failure(f"{what or bootstrap}: the broker does not answer in time") from None
    except (OverflowError, ValueError) as failure:
        # What no broker would be asked: a million partitions, an empty name.
        raise Failure(f"{what}: {failure}" if what else str(failure)) from None


def result_of(future: Any, bootstrap: str, what: str) -> Any:
    """Wait for one answer of the admin client."""
    with broker_errors(bootstrap, what):
        return future.result(timeout=TIMEOUT_S)


def each_result(
    futures: dict[str, Any], names: Iterable[str], bootstrap: str, what: str
) -> Iterator[str]:
    """The names for which it could be done; then a Failure for those for which it could not."""
    failures = []
    for name in names:
        try:
            result_of(futures[name], bootstrap, f"{what} {name}")
        except Failure as failure:
            failures.append(str(failure))
        else:
            yield name
    for text in failures[:-1]:
        say(f"penstock: {text}")
    if failures:
        raise Failure(failures[-1])


_MEANINGS = {
    "UNKNOWN_TOPIC_OR_PART": "there is no such topic",
    "_UNKNOWN_TOPIC": "there is no such topic",
    "_UNKNOWN_PARTITION": "there is no such partition",
    "_MSG_TIMED_OUT": "no broker took them in time",
    "MSG_SIZE_TOO_LARGE": "larger than the topic's max.message.bytes",
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
        text = f"{bootstrap} does not answer, or is no Kafka broker ({text})"
    return f"{what}: {text}" if what else text
