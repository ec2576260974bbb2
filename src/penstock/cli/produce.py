"""`penstock produce`: lines in, messages out."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from penstock.cli.completion import topic_names
from penstock.cli.connection import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    broker_errors,
    meaning_of,
    producer_client,
)
from penstock.cli.jsonlines import message_from_json, receipt_to_json
from penstock.cli.output import Failure, is_given, say
from penstock.cli.progress import Progress

if TYPE_CHECKING:
    from confluent_kafka import Producer

GIVE_UP_MS = 30_000  # a message that no broker takes for so long has failed
LARGEST_BYTES = 1_000_000_000  # of a message, for librdkafka: the topic decides what is too large
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

app = typer.Typer(add_completion=False, rich_markup_mode=None)


Topic = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=topic_names, callback=is_given)
]
File = Annotated[
    Path | None, typer.Argument(metavar="[FILE]", help="Lines to send; - or none is stdin.")
]
Messages = Annotated[
    list[str] | None,
    typer.Option("--message", "-m", metavar="TEXT", help="Send this; repeat for several."),
]
Key = Annotated[
    str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of every message.")
]
KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator", "-K", metavar="SEP", help="A line is KEY SEP VALUE.", callback=is_given
    ),
]
Header = Annotated[
    list[str] | None,
    typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of every message."),
]
Partition = Annotated[
    int | None,
    typer.Option("--partition", "-p", min=0, max=2**31 - 1, metavar="N", help="Send there."),
]
FromJson = Annotated[
    bool, typer.Option("--json", help="Lines are JSON objects as `consume --json` prints them.")
]
Receipts = Annotated[
    bool, typer.Option("--receipts", help="Print topic, partition and offset of each, as JSON.")
]
Acks = Annotated[
    str, typer.Option("--acks", metavar="all|1|0", help="When a message counts as sent.")
]
Compression = Annotated[
    str,
    typer.Option("--compression", metavar="CODEC", help="none, gzip, snappy, lz4 or zstd."),
]


@app.command()
def produce(
    topic: Topic,
    file: File = None,
    message: Messages = None,
    key: Key = None,
    key_separator: KeySeparator = None,
    header: Header = None,
    partition: Partition = None,
    json: FromJson = False,
    receipts: Receipts = False,
    acks: Acks = "all",
    compression: Compression = "none",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Send each line of standard input, or of a file, as a message.

    \b
    Examples:
      echo hello | penstock produce orders
      penstock produce orders -m hello -m world --key user-1
      penstock produce orders events.log --compression zstd
      echo 'user-1:bought' | penstock produce orders --key-separator :
      penstock consume orders --json | penstock produce copy --json
    """
    lines: Iterable[bytes] = (os.fsencode(text) for text in message or ())
    source: BinaryIO | None = None
    if not message:
        source = _open(file)
        lines = (line.rstrip(b"\n").removesuffix(b"\r") for line in source)
    messages = _messages(lines, json, key, key_separator, _headers(header))
    producer = producer_client(
        bootstrap,
        **{"acks": _acks(acks), "compression.type": _codec(compression), "linger.ms": 5},
        **{"message.timeout.ms": GIVE_UP_MS, "message.max.bytes": LARGEST_BYTES},
        **({} if acks != "all" else {"enable.idempotence": True}),
    )
    size = file.stat().st_size if file is not None and file.is_file() else None
    sending = _Sending(producer, topic, partition, receipts)
    try:
        typed = source is sys.stdin.buffer and sys.stdin.isatty()
        with broker_errors(bootstrap), Progress("sending", size, typed=typed) as progress:
            try:
                for fields, length in messages:
                    sending.send(fields)
                    progress.advance(length)
            finally:  # a bad line stops the rest, but not what was sent before it
                sending.finish()
    finally:
        if source is not None and source is not sys.stdin.buffer:
            source.close()
    sending.report()


class _Sending:
    """Hands messages to the producer and counts what became of them."""

    def __init__(
        self, producer: Producer, topic: str, partition: int | None, receipts: bool
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._receipts = receipts
        self._sent = self._failed = 0
        self._first_error = ""

    def send(self, fields: dict[str, Any]) -> None:
        if self._partition is not None:
            fields["partition"] = self._partition
        while True:
            try:
                self._producer.produce(self._topic, on_delivery=self._delivered, **fields)
                break
            except BufferError:  # the queue is full: let answers make room
                self._producer.poll(0.1)
        self._producer.poll(0)

    def finish(self) -> None:
        while self._producer.flush(1.0):
            pass

    def report(self) -> None:
        if self._failed:
            all_of_them = f"{self._failed} of {self._sent + self._failed}"
            raise Failure(f"{all_of_them} messages were not accepted: {self._first_error}")
        if sys.stderr.isatty():
            say(f"sent {self._sent} message{'' if self._sent == 1 else 's'} to {self._topic}")

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed += 1
            self._first_error = self._first_error or meaning_of(error)
            return
        self._sent += 1
        if self._receipts:
            sys.stdout.write(receipt_to_json(message) + "\n")


def _open(file: Path | None) -> BinaryIO:
    if file is None or str(file) == "-":
        if sys.stdin.isatty():
            say("type messages, one a line; Ctrl-D ends")
        return sys.stdin.buffer
    try:
        return file.open("rb")
    except OSError as failure:
        raise Failure(f"cannot read {file}: {failure.strerror}") from None


def _headers(header: list[str] | None) -> list[tuple[str, bytes]]:
    found = []
    for item in header or ():
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{item!r} is not NAME=VALUE", param_hint="--header")
        found.append((name, os.fsencode(value)))
    return found


def _acks(acks: str) -> str:
    if acks not in ("all", "1", "0"):
        raise typer.BadParameter(f"{acks!r} is not all, 1 or 0", param_hint="--acks")
    return acks


def _codec(compression: str) -> str:
    if compression not in CODECS:
        words = f"{compression!r} is not {', '.join(CODECS[:-1])} or {CODECS[-1]}"
        raise typer.BadParameter(words, param_hint="--compression")
    return compression


def _messages(
    lines: Iterable[bytes],
    json: bool,
    key: str | None,
    key_separator: str | None,
    headers: list[tuple[str, bytes]],
) -> Iterator[tuple[dict[str, Any], int]]:
    """What to give the producer for each line, with the length of the line."""
    separator = os.fsencode(key_separator) if key_separator else None
    fixed: dict[str, Any] = {"key": os.fsencode(key)} if key is not None else {}
    for number, line in enumerate(lines, 1):
        if json:
            fields = {**fixed, **message_from_json(line, number)}
        elif separator is None:
            fields = {**fixed, "value": line}
        else:
            name, found, value = line.partition(separator)
            if not found:
                raise Failure(f"line {number} has no {key_separator!r} between key and value")
            fields = {**fixed, "key": name, "value": value}
        if headers:
            fields["headers"] = [*headers, *fields.get("headers", ())]
        yield fields, len(line) + 1
