"""Background work that must not die unnoticed.

A task that fails is a broken broker: the failure is logged and the owner is told to stop. Work that
is repeated gets a period; one slow or failing round (a full disk, say) does not end the series when
its error is one that the caller named as bearable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger("penstock")


class Supervisor:
    """Owns the background tasks of a broker."""

    def __init__(self, on_fatal: Callable[[BaseException], None]) -> None:
        self._on_fatal = on_fatal
        self._tasks: set[asyncio.Task[Any]] = set()

    def __repr__(self) -> str:
        return f"<Supervisor {sorted(task.get_name() for task in self._tasks)}>"

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> None:
        """Run `work` in the background; its failure is fatal."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def every(
        self,
        seconds: float,
        name: str,
        work: Callable[[], Awaitable[Any]],
        bearable: tuple[type[Exception], ...] = (),
        *,
        first_after: float | None = None,
    ) -> None:
        """Run `work` again and again with `seconds` of rest in between."""

        async def series() -> None:
            rest = seconds if first_after is None else first_after
            while True:
                await asyncio.sleep(rest)
                rest = seconds
                try:
                    await work()
                except bearable as failure:
                    log.warning("%s: %s", name, failure)

        self.start(name, series())

    async def close(self) -> None:
        """End every task and wait for it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is not None:
            log.critical("background task %s failed", task.get_name(), exc_info=failure)
            self._on_fatal(failure)
