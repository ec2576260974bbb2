"""Opening a log for a test, and filling it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.log.partition_log import PartitionLog
from penstock.log.settings import LogSettings
from penstock.log.store import LogStore
from penstock.model.batch import read_header, stamp, whole_batches
from penstock.model.records import build_batch
from penstock.runtime.clock import ManualClock
from penstock.runtime.disk import Disk

T = TypeVar("T")
TOPIC = "orders"
TOPIC_ID = uuid.UUID("0196f3a0-0000-7000-8000-000000000001")
NOW_MS = 1_700_000_000_000


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end."""
    return asyncio.run(asyncio.wait_for(work, 60))


async def open_store(disk: Disk, **options: Any) -> LogStore:
    """A store that knows the topic `orders`."""
    store = LogStore(disk, ManualClock(NOW_MS), **options)
    await store.open({TOPIC: TOPIC_ID})
    return store


def open_log(store: LogStore, partition: int = 0, **settings: Any) -> PartitionLog:
    return store.get(TOPIC, TOPIC_ID, partition, LogSettings(**settings))


def make_batch(
    values: list[bytes],
    *,
    timestamp_ms: int = NOW_MS,
    keys: list[bytes] | None = None,
    **options: Any,
) -> bytearray:
    """An unstamped batch of these values."""
    named = keys or [None] * len(values)
    records = [(key, value, ()) for key, value in zip(named, values, strict=True)]
    return build_batch(records, timestamp_ms=timestamp_ms, **options)


def append(log: PartitionLog, *batches: bytearray, epoch: int = 0, now_ms: int = NOW_MS) -> bool:
    """Stamp the batches and append them in one go."""
    offset = log.end_offset
    for batch in batches:
        stamp(batch, 0, offset, epoch)
        offset = read_header(batch).next_offset
    return log.append(batches, [read_header(batch) for batch in batches], now_ms)


def fill(log: PartitionLog, count: int, *, size: int = 100, timestamp_ms: int = NOW_MS) -> None:
    """Append `count` batches of one record, one millisecond apart."""
    for at in range(count):
        value = b"%d:" % log.end_offset
        append(log, make_batch([value.ljust(size, b".")], timestamp_ms=timestamp_ms + at))


async def read_all(log: PartitionLog) -> list[bytes]:
    """Every batch of the log, through `read`."""
    found: list[bytes] = []
    offset = log.start_offset
    while offset < log.end_offset:
        chunk = await log.read(offset, 5000, upper_offset=log.end_offset)
        if not chunk.data:
            break
        at = 0
        for header in whole_batches(chunk.data):
            found.append(bytes(chunk.data[at : at + header.size]))
            at += header.size
        offset = chunk.next_offset
    return found
