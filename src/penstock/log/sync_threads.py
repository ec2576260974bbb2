"""A few threads to sync in, started when first needed.

Lighter than `ThreadPoolExecutor`, which makes a future with a lock of its own for each call: under
load one round follows another a thousand times a second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

Work = Callable[[], None]


class SyncThreads:
    """Runs callables that raise nothing. Belongs to one event loop."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def __repr__(self) -> str:
        return f"SyncThreads({len(self._threads)} of {self.most})"

    def run(self, work: Work, times: int) -> None:
        """Call `work` in so many threads at once; at most `most`."""
        while len(self._threads) < times:
            name = f"sync_{len(self._threads)}"
            thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        for _ in range(times):
            self._work.put(work)

    def close(self) -> None:
        """Finish what was handed over, and end the threads."""
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _run(self) -> None:
        take = self._work.get
        while (work := take()) is not None:
            work()
