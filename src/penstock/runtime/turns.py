"""Taking turns: one piece of work at a time under a name, and each one finished.

A handler's task is cancelled when its connection closes. Work that commits to disk and then changes
memory must not stop between the two, so `Turns.take` gives it a task of its own: the caller may go
away, the work goes on. Works under different names do not wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Turns:
    """Locks by name, which exist only while somebody holds or awaits them."""

    def __init__(self) -> None:
        self._locks: dict[str, asyncio.Lock] = {}
        self._users: dict[str, int] = {}
        self._tasks: set[asyncio.Task[Any]] = set()  # the loop itself holds tasks only weakly

    def __repr__(self) -> str:
        return f"Turns({len(self._tasks)} under way)"

    async def take(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` when it is its turn under `name`; it ends even if the caller is cancelled."""
        task = asyncio.create_task(self._run(name, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return await asyncio.shield(task)

    async def _run(self, name: str, work: Coroutine[Any, Any, T]) -> T:
        lock = self._locks.setdefault(name, asyncio.Lock())
        self._users[name] = self._users.get(name, 0) + 1
        try:
            async with lock:
                return await work
        finally:
            self._users[name] -= 1
            if self._users[name] == 0:
                del self._users[name], self._locks[name]
