"""How late the event loop is: the best single sign that something blocks it."""

from __future__ import annotations

import asyncio

from penstock.model.histogram import Histogram

_PERIOD_SECONDS = 0.1


class LoopDelay:
    """Sleeps again and again, and counts by how much each sleep was too long."""

    def __init__(self) -> None:
        self.histogram = Histogram()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _PERIOD_SECONDS
            await asyncio.sleep(_PERIOD_SECONDS)
            self.histogram.observe(max(0.0, loop.time() - due))
