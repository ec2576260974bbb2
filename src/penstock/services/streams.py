"""Streams: queues that are read and never emptied (`x-queue-type=stream`).

Every consumer reads the log from where it asks: `x-stream-offset` is `first`, `last` (the last
batch), `next` (only what comes), an offset, or a time. Acknowledgements only make room in the
prefetch; nothing is taken out, and nothing is remembered of a consumer. The messages are those of
the topic, so Kafka's consumers read the same.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from penstock.errors import PreconditionFailed, SubscriptionEnded
from penstock.model.field_table import Timestamp
from penstock.model.queue_arguments import age_ms
from penstock.model.queue_settings import DEFAULT_SETTINGS
from penstock.services.queue_log import QueueLog
from penstock.services.queue_reader import with_header
from penstock.services.subscription import Delivery

if TYPE_CHECKING:
    from penstock.services.queue import Queue

_AHEAD = 512  # messages read ahead
_AGE = re.compile(r"\d+[smhDMY]")


class StreamSubscription:
    """One reader of a stream."""

    __slots__ = (
        "_bell",
        "_ended",
        "_log",
        "_next",
        "_queue",
        "_ready",
        "_unsettled",
        "no_ack",
        "prefetch",
        "queue_name",
        "reply_to",
        "tag",
    )

    def __init__(
        self, queue: Queue, log: QueueLog, tag: str, start: int, *, no_ack: bool, prefetch: int
    ) -> None:
        self._queue = queue
        self._log = log
        self._next = start  # offset
        self._ready: deque[Delivery] = deque()
        self._unsettled = 0
        self._bell = asyncio.Event()
        self._ended = False
        self.tag = tag
        self.queue_name = queue.name
        self.no_ack = no_ack
        self.prefetch = prefetch
        self.reply_to = ""
        log.replica.watch(self._bell)

    def __repr__(self) -> str:
        return f"<StreamSubscription {self.tag!r} of {self.queue_name!r} at {self._next}>"

    @property
    def _room(self) -> int:
        return self.prefetch - self._unsettled if self.prefetch and not self.no_ack else _AHEAD

    async def ready(self) -> None:
        """Return when there is something to take."""
        while not (self._ready and self._room > 0):
            if self._ended or self._queue.is_deleted:
                raise SubscriptionEnded(f"queue '{self.queue_name}' has no such consumer")
            self._bell.clear()
            if not self._ready and await self._read():
                continue
            await self._bell.wait()

    async def _read(self) -> bool:
        """Read on; False when there is nothing more."""
        replica = self._log.replica
        self._next = max(self._next, replica.log.start_offset)
        end = replica.last_stable_offset
        if self._next >= end:
            return False
        async for arrival in self._log.scan(self._next, end, DEFAULT_SETTINGS):
            skipped = {at for low, high in arrival.skipped for at in range(low, high)}
            for offset in range(arrival.low, arrival.high):
                entry = None if offset in skipped else await self._log.entry_or_wait(offset)
                if entry is not None:
                    properties = with_header(entry.properties, "x-stream-offset", offset)
                    self._ready.append(
                        Delivery(
                            offset, 0, entry.exchange, entry.routing_key, properties, entry.body
                        )
                    )
            self._next = arrival.high
            if len(self._ready) >= _AHEAD:
                break
        return True

    def try_take(self, limit: int, max_bytes: int) -> list[Delivery]:
        """Up to `limit` messages, about `max_bytes` of them."""
        taken: list[Delivery] = []
        limit = min(limit, self._room)
        while self._ready and len(taken) < limit and (max_bytes > 0 or not taken):
            delivery = self._ready.popleft()
            max_bytes -= len(delivery.body)
            taken.append(delivery)
        if not self.no_ack:
            self._unsettled += len(taken)
        return taken

    def cancel(self) -> None:
        if not self._ended:
            self._ended = True
            self._log.replica.unwatch(self._bell)
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
    if not no_ack and not prefetch:
        raise PreconditionFailed(f"consumer prefetch count is not set for stream {queue.where}")
    replica = await queue.host.partitions.replica(queue.topic, 0)
    log = QueueLog(replica, queue.name)
    start = await _start(log, arguments.get("x-stream-offset", "next"), queue)
    return StreamSubscription(queue, log, tag, start, no_ack=no_ack, prefetch=prefetch)


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
        f"invalid arg 'x-stream-offset' for a consumer of {queue.where}: {wanted!r}"
    )


async def _at_time(log: QueueLog, time_ms: int, end: int) -> int:
    found = await log.replica.log.find_timestamp(time_ms, upper_offset=end)
    return end if found is None else found.offset
