"""How late the event loop is: the best single sign that something blocks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_PERIOD_SECONDS = 0.1


async def watch_loop_delay(observe: Callable[[float], None]) -> None:
    """Sleep again and again, and report by how many seconds each sleep was too long."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _PERIOD_SECONDS
        await asyncio.sleep(_PERIOD_SECONDS)
        observe(max(0.0, loop.time() - due))
