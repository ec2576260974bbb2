"""How long a coroutine really ran, without what it waited: the measure of `request_percentage`."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Generator
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Busy:
    """Adds up the time between the moments at which a coroutine waits."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 0.0

    @coroutine
    def measure(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Await `work` and count its own time."""
        step, given = work.send, None
        while True:
            began = time.perf_counter()
            try:
                waiting_for = step(given)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            finally:
                self.seconds += time.perf_counter() - began
            try:
                given, step = (yield waiting_for), work.send
            except BaseException as thrown:  # cancellation belongs to the work as well
                given, step = thrown, work.throw
