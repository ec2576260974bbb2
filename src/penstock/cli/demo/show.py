"""A live picture, and waiting for something to become true in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import RenderableType
from rich.live import Live

from penstock.cli.demo.crowd import Crowd
from penstock.cli.demo.stage import Stage
from penstock.cli.output import Failure

WITHIN_S = 60.0


class Show:
    """Draws again and again in a terminal; elsewhere it tells what happens and draws once."""

    def __init__(self, stage: Stage, picture: Callable[[str], RenderableType]) -> None:
        self._stage = stage
        self._picture = picture
        self._note = ""
        self._live: Live | None = None
        self.watch: list[Crowd] = []

    def __enter__(self) -> Self:
        if self._stage.console.is_terminal:
            self._live = self._stage.live()
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self.draw()
            self._live.stop()
        elif failure is None:
            self._stage.console.print(self._picture(self._note))

    def tell(self, note: str) -> None:
        """What happens now."""
        self._note = note
        if self._live is None:
            self._stage.note(note)
        self.draw()

    def draw(self) -> None:
        for crowd in self.watch:
            crowd.check()
        if self._live is not None:
            self._live.update(self._picture(self._note))

    def until(self, what: str, come_true: Callable[[], bool]) -> None:
        begin = time.perf_counter()
        while not come_true():
            self.draw()
            if time.perf_counter() - begin > WITHIN_S:
                raise Failure(f"{what} did not happen within {WITHIN_S:.0f} s")
            time.sleep(0.05)
        self.draw()

    def linger(self, seconds: float) -> None:
        """Give people time to look, where somebody looks."""
        end = time.perf_counter() + (seconds if self._live is not None else seconds / 5)
        while time.perf_counter() < end:
            self.draw()
            time.sleep(0.08)
