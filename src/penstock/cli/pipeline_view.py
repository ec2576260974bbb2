"""A running pipeline on the terminal: rows, pace, lag, batch time, watermark, bad rows.

In a terminal one picture that changes; in a pipe one line for each batch.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter, deque
from types import TracebackType
from typing import Any, Self, TextIO

from penstock.cli.output import emit_json, say
from penstock.spark.pipeline.figures import Figures

BARS = " ▁▂▃▄▅▆▇█"
BATCHES = 40


class PipelineView:
    """Shows figures as they come."""

    def __init__(self, name: str, kind: str, as_json: bool) -> None:
        self._title = f"{name} ({kind})"
        self._as_json = as_json
        self._live: Any = None
        self._terminal: TextIO
        self._begun = time.monotonic()
        self._rows = 0
        self._bad: Counter[str] = Counter()
        self._paces: deque[float] = deque(maxlen=BATCHES)

    def __enter__(self) -> Self:
        if not self._as_json and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            # A way to the terminal of its own: while Spark starts, standard error is its log.
            self._terminal = open(os.dup(sys.stderr.fileno()), "w", encoding="utf-8")
            words = f"{self._title}: starting Spark; Ctrl-C stops after the batch"
            self._live = Live(words, console=Console(file=self._terminal), refresh_per_second=4)
            self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._terminal.close()

    def show(self, figures: Figures) -> None:
        self._rows += figures.rows
        self._bad.update(figures.reasons)
        self._paces.append(figures.rows_per_s)
        if self._as_json:
            emit_json(figures.as_dict())
        elif self._live is None:
            say(line(figures))
        else:
            self._live.update(self.picture(figures))

    def picture(self, figures: Figures) -> Any:
        """The figures as a table."""
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE, title=self._title, title_justify="left", show_header=False)
        table.add_column(style="dim")
        table.add_column()
        seconds = time.monotonic() - self._begun
        table.add_row("rows", f"{self._rows:,} in {seconds:,.0f} s")
        table.add_row("rows/s", f"{figures.rows_per_s:,.0f}  {spark_line(self._paces)}")
        table.add_row("lag", f"{figures.lag:,} records")
        table.add_row("batch", f"{figures.batch}: {figures.rows:,} rows, {figures.seconds:.2f} s")
        if figures.watermark:
            table.add_row("watermark", figures.watermark)
        for reason, count in self._bad.most_common():
            table.add_row("bad", f"{count:,} {reason}", style="yellow")
        return table


def line(figures: Figures) -> str:
    """One batch in a line."""
    words = (
        f"batch {figures.batch}: {figures.rows:,} rows, {figures.rows_per_s:,.0f} rows/s, "
        f"{figures.seconds:.2f} s, lag {figures.lag:,}, bad {figures.bad:,}"
    )
    return f"{words}, watermark {figures.watermark}" if figures.watermark else words


def spark_line(values: Any) -> str:
    """`▁▃█`: the last values beside each other."""
    most = max(values, default=0) or 1
    return "".join(BARS[round(value / most * (len(BARS) - 1))] for value in values)
