"""Streams: queues that are read and never emptied (`x-queue-type=stream`).

Every consumer reads the log from where it asks: `x-stream-offset` is `first`, `last` (the last
batch), `next` (only what comes), an offset, or a time. Acknowledgements only make room in the
prefetch; nothing is taken out, and nothing is remembered of a consumer. The messages are those of
the topic, so Kafka's consumers read the same. A topic of several partitions can be read as a stream
too: what is asked for holds in each of them, and the order is that of each.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.errors import NotForStreams, PreconditionFailed, SubscriptionEnded
from penstock.model.field_table import Timestamp
from penstock.model.offset_ranges import without
from penstock.model.queue_arguments import age_ms
from penstock.model.queue_settings import DEFAULT_SETTINGS
from penstock.services.queue_log import QueueLog
from penstock.services.queue_pages import Entry
from penstock.services.queue_reader import with_header
from penstock.services.subscription import Delivery

if TYPE_CHECKING:
    from penstock.services.queue import Queue

_AHEAD = 512  # messages read ahead
_AGE = re.compile(r"\d+[smhDMY]")


class _Reader:
    """Where a consumer is in one partition."""

    __slots__ = ("log", "next_offset")

    def __init__(self, log: QueueLog, start: int) -> None:
        self.log = log
        self.next_offset = start


class StreamSubscription:
    """One reader of a stream."""

    __slots__ = (
        "_bell",
        "_ended",
        "_queue",
        "_readers",
        "_ready",
        "_unsettled",
        "no_ack",
        "prefetch",
        "queue_name",
        "reply_to",
        "tag",
    )

    def __init__(self, queue: Queue, readers: list[_Reader], tag: str, *, prefetch: int) -> None:
        self._queue = queue
        self._readers = readers
        self._ready: deque[Delivery] = deque()
        self._unsettled = 0
        self._bell = asyncio.Event()
        self._ended = False
        self.tag = tag
        self.queue_name = queue.name
        self.no_ack = False
        self.prefetch = prefetch
        self.reply_to = ""
        queue.readers += 1
        for reader in readers:
            reader.log.replica.watch(self._bell)

    def __repr__(self) -> str:
        return f"<StreamSubscription {self.tag!r} of {self.queue_name!r}>"

    @property
    def _room(self) -> int:
        return self.prefetch - self._unsettled if self.prefetch else _AHEAD

    async def ready(self, most: int = _AHEAD) -> None:
        """Return when there is something to take."""
        while not (self._ready and self._room > 0):
            if self._ended or self._queue.is_deleted:
                raise SubscriptionEnded(f"queue '{self.queue_name}' has no such consumer")
            self._bell.clear()
            if not self._ready:
                for reader in self._readers:
                    await self._read(reader)
                if self._ready:
                    continue
            await self._bell.wait()

    async def _read(self, reader: _Reader) -> None:
        """Read on in one partition."""
        log = reader.log
        low = reader.next_offset = max(reader.next_offset, log.replica.log.start_offset)
        end = log.replica.last_stable_offset
        if low >= end:
            return
        enough = len(self._ready) + _AHEAD
        async for arrival in log.scan(low, end, DEFAULT_SETTINGS):
            for first, last in without(arrival.low, arrival.high, arrival.skipped):
                for offset in range(first, last):
                    entry = await log.entry_or_wait(offset)
                    if entry is not None:
                        self._ready.append(_delivery(offset, entry))
            reader.next_offset = arrival.high
            if len(self._ready) >= enough:
                return

    def ask_for(self, most: int) -> None:
        """It takes only what it has room for, and nobody else waits for it."""

    def try_take(self, limit: int, max_bytes: int) -> list[Delivery]:
        """Up to `limit` messages, about `max_bytes` of them."""
        taken: list[Delivery] = []
        limit = min(limit, self._room)
        while self._ready and len(taken) < limit and (max_bytes > 0 or not taken):
            delivery = self._ready.popleft()
            max_bytes -= len(delivery.body)
            taken.append(delivery)
        self._unsettled += len(taken)
        return taken

    def cancel(self) -> None:
        if not self._ended:
            self._ended = True
            self._queue.readers -= 1
            for reader in self._readers:
                reader.log.replica.unwatch(self._bell)
            self._bell.set()

    def ack(self, offsets: Sequence[int]) -> None:
        """The reader has room again."""
        self._unsettled -= len(offsets)
        self._bell.set()

    requeue = reject = ack

    def renew(self, offsets: Sequence[int]) -> None:
        """Nothing comes back to a stream, however long it takes."""


async def subscribe_to_stream(
    queue: Queue, tag: str, *, no_ack: bool, prefetch: int, arguments: Mapping[str, object]
) -> StreamSubscription:
    """A reader that begins where the arguments say."""
    if no_ack:
        raise NotForStreams(
            f"automatic acknowledgement not supported by stream queues {queue.where}"
        )
    if not prefetch:
        raise PreconditionFailed(f"consumer prefetch count is not set for '{queue.where}'")
    wanted = arguments.get("x-stream-offset", "next")
    readers = []
    for log in await _logs(queue):
        readers.append(_Reader(log, await _start(log, wanted, queue)))
    return StreamSubscription(queue, readers, tag, prefetch=prefetch)


async def stream_length(queue: Queue) -> int:
    """How many messages a stream holds."""
    replicas = [log.replica for log in await _logs(queue)]
    return sum(one.last_stable_offset - one.log.start_offset for one in replicas)


async def _logs(queue: Queue) -> list[QueueLog]:
    topic = queue.host.topics.get(queue.topic)
    partitions = queue.host.partitions
    return [
        QueueLog(await partitions.replica(topic.name, number), queue.name)
        for number in range(topic.partition_count)
    ]


def _delivery(offset: int, entry: Entry) -> Delivery:
    properties = with_header(entry.properties, "x-stream-offset", offset)
    return Delivery(offset, 0, entry.exchange, entry.routing_key, properties, entry.body)


async def _start(log: QueueLog, wanted: object, queue: Queue) -> int:
    replica = log.replica
    end = replica.last_stable_offset
    match wanted:
        case "first":
            return replica.log.start_offset
        case "next":
            return end
        case "last":
            return max(replica.log.start_offset, end - 1)
        case Timestamp():
            return await _at_time(log, wanted * 1000, end)
        case bool():
            pass
        case int() if wanted >= 0:
            return min(wanted, end)
        case str() if _AGE.fullmatch(wanted):
            age = age_ms(wanted)
            assert age is not None
            return await _at_time(log, queue.host.clock.now_ms() - age, end)
    raise PreconditionFailed(
        f"invalid arg 'x-stream-offset' for {queue.where}: {{invalid_stream_offset_arg,{wanted!r}}}"
    )


async def _at_time(log: QueueLog, time_ms: int, end: int) -> int:
    found = await log.replica.log.find_timestamp(time_ms, upper_offset=end)
    return end if found is None else found.offset
