"""From a range of offsets to raw record batches: Fetch, asked one step ahead of the decoder.

The next request leaves as soon as the last answer is in, before its records are decoded, so the
broker reads while Python works. A fetch begins with the batch that holds the offset, so the first
batch may reach below the range and the last above it: who decodes cuts both ends.

Promises every batch of the range that the isolation level shows, in order, once; `DataLoss` when
offsets of the range have gone and `fail_on_data_loss` is set, else the reader goes on at the first
offset that is left.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.spark import protocol
from penstock.spark.cluster import EARLIEST, FETCHES, LATEST, Cluster, TopicPartition
from penstock.spark.connection import Connection
from penstock.spark.errors import (
    OFFSET_OUT_OF_RANGE,
    RETRIABLE,
    BrokerRefused,
    BrokerUnreachable,
    DataLoss,
)

log = logging.getLogger(__name__)
FETCH_BYTES = 8 << 20
LEAST_FETCH_BYTES = 64 * 1024
GUESSED_BYTES_PER_OFFSET = 128  # until the first answer shows it
SAMPLE_BYTES = 64 * 1024
MAX_WAIT_MS = 500
LENGTH_AT, LAST_DELTA_AT = 8, 23
LENGTH_PREFIX_BYTES = 12


class Range(NamedTuple):
    """Offsets [start, end) of one partition."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


class FetchSettings(NamedTuple):
    """How to fetch: Kafka's own consumer settings under their own names, and what loss means."""

    isolation: int
    fail_on_data_loss: bool
    poll_timeout_s: float = 120.0  # how long nothing may come
    fetch_bytes: int = FETCH_BYTES
    min_bytes: int = 1
    max_wait_ms: int = MAX_WAIT_MS
    rack: str = ""


class Fetched(NamedTuple):
    """Whole batches, one after the other, and which transactions in them were aborted."""

    records: memoryview
    aborted: list[tuple[int, int]]  # (producer id, first offset)
    floor: int  # offsets below were not asked for, or are deleted: the first batch may hold some


def fetch_range(cluster: Cluster, wanted: Range, said: FetchSettings) -> Iterator[Fetched]:
    """Everything in the range."""
    position, bytes_per_offset = wanted.start, float(GUESSED_BYTES_PER_OFFSET)
    deadline = time.monotonic() + said.poll_timeout_s
    pause = 0.02
    flight: Connection | None = None
    try:
        while position < wanted.end:
            try:
                if flight is None:
                    flight = cluster.leader(wanted.partition, FETCHES)
                    rest = _rest(said, wanted.end - position, bytes_per_offset)
                    flight.send(protocol.FETCH, _request(wanted, position, rest))
                part = _only_partition(flight.receive())
                code = part["error"]
                if code == OFFSET_OUT_OF_RANGE:
                    flight = None
                    position = _after_loss(cluster, wanted, position, said.fail_on_data_loss)
                    continue
                if code:
                    raise BrokerRefused(f"reading {wanted.partition}", code)
            except (BrokerUnreachable, BrokerRefused) as failure:
                flight = None
                if isinstance(failure, BrokerRefused) and failure.code not in RETRIABLE:
                    raise
                if time.monotonic() > deadline:
                    raise
                cluster.forget()
                time.sleep(pause)
                pause = min(1.0, pause * 2)
                continue
            floor = position
            records, position = _whole(part["records"] or memoryview(b""), position)
            if not records:
                flight = None
                if time.monotonic() > deadline:
                    position = _ended_early(wanted, position, said.fail_on_data_loss)
                continue
            deadline, pause = time.monotonic() + said.poll_timeout_s, 0.02
            bytes_per_offset = len(records) / max(position - floor, 1)
            if position < wanted.end:
                rest = _rest(said, wanted.end - position, bytes_per_offset)
                flight.send(protocol.FETCH, _request(wanted, position, rest))
            else:
                flight = None
            aborted = [(a["producer_id"], a["first_offset"]) for a in part["aborted"]]
            yield Fetched(records, aborted, floor)
    finally:
        # Whoever stops reading early (LIMIT) leaves an answer in the socket that is nobody's.
        if flight is not None:
            cluster.forget()


def _rest(said: FetchSettings, offsets: int, bytes_per_offset: float) -> FetchSettings:
    """Ask for about as much as is left of the range: what lies behind it is nobody's here."""
    wanted = int(offsets * bytes_per_offset * 1.05) + LEAST_FETCH_BYTES
    return said._replace(fetch_bytes=min(said.fetch_bytes, wanted))


def sample(cluster: Cluster, wanted: Range, said: FetchSettings) -> tuple[int, int]:
    """(offsets, bytes) of the first few batches of a range: what a record costs here, roughly."""
    request = _request(wanted, wanted.start, said._replace(fetch_bytes=SAMPLE_BYTES))

    def attempt() -> tuple[int, int]:
        part = _only_partition(cluster.leader(wanted.partition).call(protocol.FETCH, request))
        if part["error"]:
            raise BrokerRefused(f"reading {wanted.partition}", part["error"])
        records, position = _whole(part["records"] or memoryview(b""), wanted.start)
        return position - wanted.start, len(records)

    try:
        return cluster.patiently("sampling", attempt)
    except BrokerRefused:
        return 0, 0


def _request(wanted: Range, position: int, said: FetchSettings) -> dict[str, Any]:
    part = {
        "index": wanted.partition.partition,
        "leader_epoch": -1,
        "offset": position,
        "log_start": -1,
        "partition_max_bytes": said.fetch_bytes,
    }
    return {
        "replica": -1,
        "max_wait_ms": said.max_wait_ms,
        "min_bytes": said.min_bytes,
        "max_bytes": said.fetch_bytes,
        "isolation": said.isolation,
        "session": 0,
        "session_epoch": -1,
        "topics": [{"name": wanted.partition.topic, "partitions": [part]}],
        "forgotten": (),
        "rack": said.rack,
    }


def _only_partition(answer: dict[str, Any]) -> dict[str, Any]:
    if answer["error"]:
        raise BrokerRefused("fetch", answer["error"])
    part: dict[str, Any] = answer["topics"][0]["partitions"][0]
    return part


def _whole(records: memoryview, position: int) -> tuple[memoryview, int]:
    """The whole batches at the front and the offset behind them; the last may be cut off."""
    at = 0
    while len(records) - at >= 61:
        size = int.from_bytes(records[at + LENGTH_AT : at + 12], "big") + LENGTH_PREFIX_BYTES
        if at + size > len(records):
            break
        base = int.from_bytes(records[at : at + 8], "big")
        delta = int.from_bytes(records[at + LAST_DELTA_AT : at + LAST_DELTA_AT + 4], "big")
        position = max(position, base + delta + 1)
        at += size
    return records[:at], position


def _after_loss(cluster: Cluster, wanted: Range, position: int, fail: bool) -> int:
    """Where to go on when the broker no longer has `position`."""
    places = {
        time_: cluster.offsets_at({wanted.partition: time_})[wanted.partition].offset
        for time_ in (EARLIEST, LATEST)
    }
    first, end = places[EARLIEST], places[LATEST]
    lost = (
        f"{wanted.partition}: offsets {position} to {wanted.end - 1} were to be read, the log has "
        f"{first} to {end - 1}"
    )
    if fail:
        raise DataLoss(f"{lost}. {ADVICE}")
    log.warning("%s; going on without what is lost", lost)
    return max(first, position) if first < wanted.end and position < first else wanted.end


def _ended_early(wanted: Range, position: int, fail: bool) -> int:
    lost = f"{wanted.partition} gave nothing at offset {position} of {wanted.end}"
    if fail:
        raise DataLoss(f"{lost}. {ADVICE}")
    log.warning("%s; going on without it", lost)
    return wanted.end


ADVICE = (
    "Records may have been deleted by retention, or the topic was deleted and created again. "
    'To go on without them set the option "failOnDataLoss" to "false".'
)
