"""A progress bar on standard error, for people who wait; silent in a pipe, and for short work."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

SHOW_AFTER_S = 0.5
REFRESH_S = 0.1


class Progress:
    """Counts bytes or steps; `total=None` when the end is not known.

    `typed` is what somebody types meanwhile: a bar would run through their words.
    """

    def __init__(
        self, what: str, total: int | None = None, *, unit: str = "bytes", typed: bool = False
    ) -> None:
        self._what = what
        self._total = total
        self._unit = unit
        self._done = 0
        self._bar: Any = None
        is_shown = sys.stderr.isatty() and not typed
        self._next = time.monotonic() + SHOW_AFTER_S if is_shown else float("inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.update(0, completed=self._done)
            self._bar.stop()

    def advance(self, amount: int = 1) -> None:
        self._done += amount
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + REFRESH_S
        if self._bar is None:
            self._bar = self._begin()
        self._bar.update(0, completed=self._done)

    def _begin(self) -> Any:
        from rich import progress
        from rich.console import Console

        counts: list[Any] = [progress.MofNCompleteColumn()]
        if self._unit == "bytes":
            counts = [progress.DownloadColumn(), progress.TransferSpeedColumn()]
        bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            *counts,
            progress.TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.add_task(self._what, total=self._total)
        bar.start()
        return bar
