"""Exchanges that pass each message on once: the ids they have seen lately.

The id is the header `x-deduplication-header`; how many are remembered and for how long are
arguments of the exchange (`x-cache-size`, `x-cache-ttl`), a message can say `x-cache-ttl` itself.
Nothing is kept for this on disk: after a restart the ids are read from the logs of the queues that
the exchange leads to, as far back as they count.
"""

from __future__ import annotations

from penstock.machines.exchange import Exchange
from penstock.machines.seen_ids import SeenIds
from penstock.model.binding import Destination
from penstock.model.queue_record import StoredMessage, Telling, telling
from penstock.runtime.clock import Clock
from penstock.services.partitions import Partitions
from penstock.services.queue_log import QueueLog
from penstock.services.vhost import VirtualHost


class Deduplication:
    """Knows which ids each exchange has seen."""

    def __init__(self, clock: Clock, partitions: Partitions) -> None:
        self._clock = clock
        self._partitions = partitions

    def is_duplicate(self, vhost: VirtualHost, name: str, told: Telling) -> bool:
        """Whether the exchange has passed on a message with this id; from now on it has."""
        exchange = vhost.exchanges.get(name)
        if told.deduplication_id is None or exchange is None:
            return False
        seen = self._seen(vhost, exchange)
        message_id = told.deduplication_id.encode("utf-8", "surrogateescape")
        return not seen.is_new(message_id, self._clock.now_ms(), told.deduplication_ms)

    def forget(self, vhost: VirtualHost, name: str, told: Telling) -> None:
        """The message was not taken after all: it may come again."""
        exchange = vhost.exchanges.get(name)
        if told.deduplication_id is not None and exchange is not None:
            message_id = told.deduplication_id.encode("utf-8", "surrogateescape")
            self._seen(vhost, exchange).forget(message_id)

    async def recall(self, vhost: VirtualHost) -> None:
        """Read from the logs what the exchanges of a virtual host saw before a restart."""
        for exchange in list(vhost.exchanges):
            if exchange.deduplicates:
                seen = self._seen(vhost, exchange)
                for queue in _queues_behind(vhost, exchange):
                    await self._recall_from(queue, exchange.name, seen, vhost)

    async def _recall_from(
        self, queue: str, exchange: str, seen: SeenIds, vhost: VirtualHost
    ) -> None:
        replica = await self._partitions.replica(vhost.queues[queue].topic, 0)
        log = QueueLog(replica, queue)
        low, high = replica.log.start_offset, replica.last_stable_offset
        if seen.window_ms is not None:
            since = self._clock.now_ms() - seen.window_ms
            found = await replica.log.find_timestamp(since, upper_offset=high)
            low = high if found is None else found.offset
        for offset in range(low, high):
            entry = await log.entry_or_wait(offset)
            if isinstance(entry, StoredMessage) and entry.exchange == exchange:
                told = telling(entry.properties)
                if told.deduplication_id is not None:
                    message_id = told.deduplication_id.encode("utf-8", "surrogateescape")
                    seen.is_new(message_id, entry.timestamp_ms, told.deduplication_ms)

    def _seen(self, vhost: VirtualHost, exchange: Exchange) -> SeenIds:
        seen = vhost.seen.get(exchange.name)
        if seen is None:
            size = exchange.arguments.get("x-cache-size")
            window = exchange.arguments.get("x-cache-ttl")
            seen = vhost.seen[exchange.name] = SeenIds(
                capacity=size if isinstance(size, int) else None,
                window_ms=window if isinstance(window, int) else None,
            )
        return seen


def _queues_behind(vhost: VirtualHost, exchange: Exchange) -> list[str]:
    """Every queue that bindings lead to from here, through other exchanges, too."""
    queues: dict[str, None] = {}
    visited = {exchange.name: None}
    waiting = [exchange]
    while waiting:
        for binding in waiting.pop().bindings:
            target: Destination = binding.destination
            if not target.is_exchange:
                queues[target.name] = None
            elif target.name not in visited:
                visited[target.name] = None
                beyond = vhost.exchanges.get(target.name)
                if beyond is not None:
                    waiting.append(beyond)
    return [name for name in queues if name in vhost.queues]
