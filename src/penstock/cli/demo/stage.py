"""How the demonstration looks: headings, facts, tables and a live picture of a group."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from penstock.cli.connection import DEFAULT_BOOTSTRAP
from penstock.cli.management import DEFAULT_HTTP

if TYPE_CHECKING:
    from penstock.cli.demo.broker import BrokerProcess

COLOURS = ("cyan", "magenta", "yellow", "green", "blue")


class Stage:
    """Draws on standard output; in a pipe the same words come out plain."""

    def __init__(self) -> None:
        self.console = Console(highlight=False)
        self._scene = 0

    def curtain(self, words: str) -> None:
        self.console.print(
            Panel(
                Text(words),
                box=box.ROUNDED,
                expand=False,
                border_style="cyan",
            )
        )

    def scene(self, title: str, words: str) -> None:
        self._scene += 1
        self.console.print()
        self.console.print(Text.assemble((f"{self._scene}. ", "bold cyan"), (title, "bold")))
        self.console.print(Text(f"   {words}", style="dim"))

    def fact(self, words: str) -> None:
        self._line("✓", "green", words)

    def note(self, words: str) -> None:
        self._line("·", "yellow", words)

    def _line(self, mark: str, style: str, words: str) -> None:
        line = Table.grid(padding=(0, 1, 0, 0))
        line.add_row("  ", Text(mark, style=style), Text(words))
        self.console.print(line)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        table = Table(box=box.SIMPLE, pad_edge=True)
        for at, name in enumerate(columns):
            table.add_column(name, justify="left" if at == 0 else "right")
        for row in rows:
            cells = [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row]
            table.add_row(*cells)
        self.console.print(table)

    def live(self) -> Live:
        return Live(console=self.console, refresh_per_second=12, transient=False)

    def members(
        self, holds: dict[str, list[int]], seen: dict[int, int], partitions: int, note: str
    ) -> Table:
        """Which member of the group holds which partition, and what came out of it."""
        owner = {number: name for name, mine in holds.items() for number in mine}
        colour = {name: COLOURS[at % len(COLOURS)] for at, name in enumerate(holds)}
        table = Table(box=box.SIMPLE, title=f"   {note}", title_justify="left", title_style="")
        table.add_column("partition")
        table.add_column("held by", min_width=8)
        table.add_column("processed", justify="right", min_width=9)
        table.add_column("", min_width=30)
        most = max([*seen.values(), 1])
        for number in range(partitions):
            name = owner.get(number, "")
            style = colour.get(name, "dim")
            bar = "█" * round(30 * seen.get(number, 0) / most)
            table.add_row(
                f"orders-{number}",
                Text(name or "nobody", style=style),
                f"{seen.get(number, 0):,}",
                Text(bar, style=style),
            )
        return table

    def farewell(self, broker: BrokerProcess) -> None:
        command = "penstock" if shutil.which("penstock") else os.path.relpath(sys.argv[0])
        if broker.kafka != DEFAULT_BOOTSTRAP:
            command = f"PENSTOCK_BOOTSTRAP={broker.kafka} {command}"
        if broker.http != DEFAULT_HTTP:
            command = f"PENSTOCK_HTTP={broker.http} {command}"
        words = Text.assemble(
            ("Still serving. ", "bold"),
            "Try in another terminal:\n\n",
            f"  {command} topic list\n",
            f"  {command} consume orders -n 5 --json\n",
            f"  echo hello | {command} produce orders\n",
            f"  {command} queue list\n",
            f"  {command} bench\n\n",
            f"Health and metrics: http://{broker.http}/health  http://{broker.http}/metrics\n",
            ("Ctrl-C ends it.", "bold"),
        )
        self.console.print(Panel(words, box=box.ROUNDED, expand=False, border_style="cyan"))
