"""The background work on queues: space given back, and publishers held when the disk is full."""

from __future__ import annotations

from collections.abc import Callable

from penstock.errors import BrokerError
from penstock.runtime.supervisor import Supervisor
from penstock.services.messaging import Messaging

_SPACE_SECONDS = 5.0
_DISK_SECONDS = 1.0


def keep_queues(
    supervisor: Supervisor,
    messaging: Messaging,
    free_limit: Callable[[], int],
    free_bytes: Callable[[], int] | None,
) -> None:
    """Start the series. Without `free_bytes` there is no disk that could be full."""

    async def reclaim() -> None:
        await messaging.queues.reclaim()

    supervisor.every(_SPACE_SECONDS, "queue space", reclaim, (BrokerError,))
    if free_bytes is None:
        return

    async def watch_disk() -> None:
        is_low = free_bytes() < free_limit()
        messaging.alarm.set("low on disk" if is_low else None)

    supervisor.every(_DISK_SECONDS, "disk alarm", watch_disk, (OSError,))
