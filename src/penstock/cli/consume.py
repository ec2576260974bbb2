"""`penstock consume`: messages to standard output, to the end of the log or for ever.

Without a group it reads the partitions itself and commits nothing. With `--group` it is a member
of that group: it gets its share of the partitions, goes on where the group stopped, and commits
what it has written out, never more.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.completion import group_names, topic_names
from penstock.cli.connection import (
    DEFAULT_BOOTSTRAP,
    TIMEOUT_S,
    Bootstrap,
    broker_errors,
    check_reachable,
    consumer_client,
    meaning_of,
)
from penstock.cli.jsonlines import message_to_json
from penstock.cli.output import Failure, is_given
from penstock.cli.when import to_timestamp_ms

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

app = typer.Typer(add_completion=False, rich_markup_mode=None)

AT_ONCE = 1000  # messages written with one write
QUIET_S = 10.0  # of silence before we look whether the broker is still there

Topics = Annotated[
    list[str], typer.Argument(metavar="TOPIC...", autocompletion=topic_names, callback=is_given)
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for more; start at the end.")]
FromBeginning = Annotated[
    bool, typer.Option("--from-beginning", help="Start at the first record, even to follow.")
]
Offset = Annotated[
    int | None,
    typer.Option("--offset", "-o", metavar="N", help="Start there; -N is N before the end."),
]
Timestamp = Annotated[
    str | None,
    typer.Option("--timestamp", metavar="TIME", help="Start at 2026-05-01T12:00, or 15m ago."),
]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, metavar="N", help="Only there; repeat for more."),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="NAME",
        help="Read as a member of it.",
        autocompletion=group_names,
        callback=is_given,
    ),
]
Count = Annotated[
    int | None, typer.Option("-n", "--count", min=1, metavar="N", help="Stop after N.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
KeySeparator = Annotated[
    str | None,
    typer.Option(
        "--key-separator", "-K", metavar="SEP", help="Print KEY SEP VALUE.", callback=is_given
    ),
]
Uncommitted = Annotated[
    bool, typer.Option("--uncommitted", help="Show open and aborted transactions too.")
]


@app.command()
def consume(
    topics: Topics,
    follow: Follow = False,
    from_beginning: FromBeginning = False,
    offset: Offset = None,
    timestamp: Timestamp = None,
    partition: Partitions = None,
    group: Group = None,
    count: Count = None,
    json: AsJson = False,
    key_separator: KeySeparator = None,
    uncommitted: Uncommitted = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print messages, to the end of the log or with --follow for ever.

    \b
    Examples:
      penstock consume orders                          everything that is there
      penstock consume orders --follow                 what comes from now on
      penstock consume orders --offset -10             the last ten of each partition
      penstock consume orders --timestamp 15m --json   the last 15 minutes, with keys and headers
      penstock consume orders --group billing -n 100   a hundred, and remember where we were
    """
    if sum([offset is not None, timestamp is not None, from_beginning]) > 1:
        raise typer.BadParameter("--offset, --timestamp and --from-beginning exclude each other")
    if group is not None and (partition or offset is not None or timestamp is not None):
        raise typer.BadParameter(
            "a group goes on where it stopped; move it with `penstock group reset` instead of "
            "--offset, --timestamp or --partition"
        )
    start_at_end = follow and not from_beginning
    consumer = consumer_client(bootstrap, **_settings(group, follow, start_at_end, uncommitted))
    reading = _Reading(bootstrap, consumer, follow, count, json, key_separator)
    try:
        with broker_errors(bootstrap):
            if group is not None:
                _check_topics(consumer, topics)
                consumer.subscribe(topics, on_assign=reading.on_assign, on_revoke=reading.on_revoke)
            else:
                where = timestamp if timestamp is not None else offset
                places = _places(consumer, topics, partition, where, start_at_end)
                consumer.assign(places)
                reading.on_assign(consumer, places)
            reading.run(commit=group is not None)
    except KeyboardInterrupt:
        pass  # how a person ends it
    finally:
        consumer.close()


def _settings(
    group: str | None, follow: bool, start_at_end: bool, uncommitted: bool
) -> dict[str, Any]:
    return {
        "group.id": group if group is not None else "penstock-consume",
        "auto.offset.reset": "latest" if start_at_end else "earliest",
        "enable.auto.commit": group is not None,
        "enable.auto.offset.store": False,
        "enable.partition.eof": not follow,
        "isolation.level": "read_uncommitted" if uncommitted else "read_committed",
        "fetch.wait.max.ms": 100,
    }


class _Reading:
    """One run of the loop: from the consumer to standard output."""

    def __init__(
        self,
        bootstrap: str,
        consumer: Consumer,
        follow: bool,
        count: int | None,
        json: bool,
        key_separator: str | None,
    ) -> None:
        self._bootstrap = bootstrap
        self._consumer = consumer
        self._follow = follow
        self._left = count
        self._json = json
        self._separator = key_separator.encode() if key_separator is not None else None
        self._unfinished: set[tuple[str, int]] = set()
        self._assigned = False
        self._heard = time.monotonic()

    def on_assign(self, consumer: Any, places: list[TopicPartition]) -> None:
        self._assigned = True
        self._unfinished |= {(place.topic, place.partition) for place in places}

    def on_revoke(self, consumer: Any, places: list[TopicPartition]) -> None:
        self._unfinished -= {(place.topic, place.partition) for place in places}

    def run(self, *, commit: bool) -> None:
        while not self._done():
            messages = [message for message in self._next() if not self._is_event(message)]
            if not messages:
                self._check_broker()
                continue
            self._heard = time.monotonic()
            self._write(messages)
            if self._left is not None:
                self._left -= len(messages)
            if commit:
                last = {(m.topic(), m.partition()): m for m in messages}
                for message in last.values():
                    self._consumer.store_offsets(message=message)

    def _next(self) -> list[Message]:
        """Wait for one, then take what else is there already: no message waits for a full list."""
        first = self._consumer.poll(0.1)
        if first is None:
            return []
        room = AT_ONCE if self._left is None else min(AT_ONCE, self._left)
        return [first, *(self._consumer.consume(room - 1, timeout=0) if room > 1 else ())]

    def _check_broker(self) -> None:
        """Who follows waits for a broker to come back; who reads to the end must not hang."""
        now = time.monotonic()
        if not self._follow and now - self._heard > QUIET_S:
            check_reachable(self._bootstrap)
            self._heard = now

    def _done(self) -> bool:
        if self._left is not None and self._left <= 0:
            return True
        return not self._follow and self._assigned and not self._unfinished

    def _is_event(self, message: Message) -> bool:
        """Whether it is news about a partition rather than a message of it."""
        error: Any = message.error()
        if error is None:
            return False
        if error.name() == "_PARTITION_EOF":
            self._unfinished.discard((str(message.topic()), int(message.partition() or 0)))
        elif not error.retriable() and error.name() not in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
            raise Failure(f"cannot read {message.topic() or 'the log'}: {meaning_of(error)}")
        return True

    def _write(self, messages: list[Message]) -> None:
        """All of them with one write, flushed: whoever reads the pipe sees them now."""
        if self._json:
            text = "".join([message_to_json(message) + "\n" for message in messages])
            sys.stdout.buffer.write(text.encode())
        else:
            parts = []
            for message in messages:
                if self._separator is not None:
                    parts += [_bytes(message.key()), self._separator]
                parts += [_bytes(message.value()), b"\n"]
            sys.stdout.buffer.write(b"".join(parts))
        sys.stdout.buffer.flush()


def _bytes(value: bytes | str | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""


def _check_topics(consumer: Consumer, topics: list[str]) -> dict[str, list[int]]:
    """The partitions of each topic; asking for one that is not there must not create it."""
    known = consumer.list_topics(timeout=TIMEOUT_S).topics
    for topic in topics:
        if topic not in known:
            raise Failure(f"there is no topic {topic}; `penstock topic list` shows what there is")
    return {topic: sorted(known[topic].partitions) for topic in topics}


def _places(
    consumer: Consumer,
    topics: list[str],
    only: list[int] | None,
    where: str | int | None,
    start_at_end: bool,
) -> list[TopicPartition]:
    """Where to start in each partition: `where` is an offset, a time, or None for either end."""
    from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, TopicPartition

    places = []
    for topic, partitions in _check_topics(consumer, topics).items():
        for number in only if only else partitions:
            if number not in partitions:
                raise Failure(f"topic {topic} has no partition {number}")
            at = OFFSET_END if start_at_end else OFFSET_BEGINNING
            if isinstance(where, int):
                low, high = consumer.get_watermark_offsets(
                    TopicPartition(topic, number), timeout=TIMEOUT_S
                )
                at = min(max(where if where >= 0 else high + where, low), high)
            elif where is not None:
                at = to_timestamp_ms(where)
            places.append(TopicPartition(topic, number, at))
    if isinstance(where, str):
        places = consumer.offsets_for_times(places, timeout=TIMEOUT_S)
    return places
