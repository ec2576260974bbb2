"""The background work on logs, told what only the services know, and when to run.

Retention, compaction and the removal of deleted files; see `log/upkeep.py` for what they do. Each
runs on its own series of the supervisor, so that a long compaction does not hold up retention.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from penstock.config import BrokerConfig
from penstock.errors import BrokerError, UnknownTopicOrPartition
from penstock.log.settings import LogSettings
from penstock.log.store import LogStore
from penstock.log.upkeep import Kept, Upkeep
from penstock.model.ids import TopicPartition
from penstock.runtime.supervisor import Supervisor
from penstock.services.partitions import Partitions, log_settings
from penstock.services.topics import Topics

log = logging.getLogger("penstock")

_SWEEP_SECONDS = 1.0
_BEARABLE = (BrokerError, OSError)


def keep_logs(
    supervisor: Supervisor,
    config: BrokerConfig,
    store: LogStore,
    topics: Topics,
    partitions: Partitions,
    needed_from: Callable[[str], Awaitable[int | None]],
) -> None:
    """Start the series. `needed_from` is the first offset a queue still needs of its topic."""

    def settings_of(name: str) -> LogSettings | None:
        return log_settings(topics.settings(name)) if topics.find(name) is not None else None

    async def keep(place: TopicPartition) -> Kept | None:
        try:
            replica = await partitions.replica(place.topic, place.partition)
        except UnknownTopicOrPartition:  # deleted a moment ago
            return None
        settings = topics.settings(place.topic)
        high_watermark = replica.high_watermark
        if settings.retention_ms >= 0 or settings.retention_bytes >= 0:
            needed = await needed_from(place.topic)
            if needed is not None:
                high_watermark = min(high_watermark, needed)
        return Kept(
            replica.log,
            high_watermark,
            replica.last_stable_offset,
            replica.producers.snapshot,
        )

    upkeep = Upkeep(store, settings_of=settings_of, keep=keep)

    async def compact() -> None:
        # One log after the other while there is one that is dirty enough.
        while await upkeep.compact() is not None:
            await asyncio.sleep(0)
        for place, reason in upkeep.failures.items():
            log.warning("could not compact %s: %s", place, reason)

    delay = config.log_initial_task_delay_ms / 1000
    retention_seconds = config.log_retention_check_interval_ms / 1000
    supervisor.every(retention_seconds, "retention", upkeep.retain, _BEARABLE, first_after=delay)
    supervisor.every(_SWEEP_SECONDS, "file removal", upkeep.sweep, _BEARABLE, first_after=delay)
    if config.log_cleaner_enable:
        backoff = config.log_cleaner_backoff_ms / 1000
        supervisor.every(backoff, "compaction", compact, _BEARABLE, first_after=delay)
