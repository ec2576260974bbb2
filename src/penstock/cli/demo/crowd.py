"""Threads of a demonstration that work until told to stop, and what went wrong in them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.cli.output import Failure


class Crowd:
    """Calls functions again and again, each in a thread, until `stop`."""

    def __init__(self) -> None:
        self._enough = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failures: list[BaseException] = []

    def start(self, step: Callable[[], bool], pause: float) -> None:
        """Call `step`; when it says that there was nothing to do, wait a little."""
        thread = threading.Thread(target=self._run, args=(step, pause), daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self, step: Callable[[], bool], pause: float) -> None:
        try:
            while not self._enough.is_set():
                if not step():
                    self._enough.wait(pause)
        except BaseException as failure:
            self._failures.append(failure)

    def check(self) -> None:
        if self._failures:
            raise Failure(f"a thread of the demonstration failed: {self._failures[0]!r}")

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join()
