"""The Kafka clients that people use, each behind the same few verbs, so that one test runs on all.

An adapter hides how a client is called and nothing else: every option that a test names goes to
the client, and what comes back is what the client handed to its user.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    partition: int = 0
    offset: int = -1


class Refused(Exception):
    """The client reported that the broker did not take a record; `args[0]` is the error's name."""


class Client(Protocol):
    name: str

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[int]:
        """Produce to each record's partition; the offsets (none with acks=0)."""

    def read(
        self,
        topic: str,
        count: int,
        *,
        start: int = 0,
        partition: int = 0,
        committed_only: bool = False,
    ) -> list[Record]:
        """`count` records of one partition from offset `start`; fewer after 10 s is an error."""

    def offset_at(self, topic: str, timestamp: int, *, partition: int = 0) -> int | None:
        """The first offset whose record is at or after `timestamp`; None after the last."""

    def watermarks(self, topic: str, *, partition: int = 0) -> tuple[int, int]:
        """(first offset kept, next offset to be written)."""

    def read_group(self, topic: str, group: str, count: int) -> list[Record]:
        """Join `group`, read `count` records from where it committed (or the start), commit."""
