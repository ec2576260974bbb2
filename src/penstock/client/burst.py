"""Things that come from any thread, handled on a loop, with one wake-up for all that came."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

_MOST_AT_ONCE = 5_000


class Burst(Generic[T]):
    """Calls `handle` on the loop with what was put in meanwhile."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, handle: Callable[[Sequence[T]], None]
    ) -> None:
        self._loop = loop
        self._handle = handle
        self._waiting: deque[T] = deque()
        self._is_awake = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, item: T) -> None:
        """From any thread. `_is_awake` is set back before the deque is looked into: no lock."""
        self._waiting.append(item)
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._is_awake = False
        waiting = self._waiting
        items = [waiting.popleft() for _ in range(min(len(waiting), _MOST_AT_ONCE))]
        if waiting and not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._drain)
        if items:
            self._handle(items)
