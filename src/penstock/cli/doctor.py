"""`penstock doctor`: is this machine, and this data directory, fit for a broker?

It looks and measures; it changes nothing but one scratch file, which it removes again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.connection import Json
from penstock.cli.output import Failure, emit_json
from penstock.config import BrokerConfig

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def doctor(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="The broker's data directory.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="The broker's TOML file.")
    ] = None,
    json: Json = False,
) -> None:
    """Check Python, packages, disk, limits, ports and the data directory.

    Exit code 1 means that a broker would not start, or would not be safe.

    \b
    Examples:
      penstock doctor
      penstock doctor --data /var/lib/penstock --json
    """
    flags = {"data": str(data)} if data is not None else {}
    settings = BrokerConfig.load(flags=flags, file=config)

    from penstock.cli.checkup import examine

    findings = examine(settings)
    if json:
        emit_json([finding._asdict() for finding in findings])
    else:
        _draw(findings)
    bad = sum(finding.verdict == "bad" for finding in findings)
    if bad:
        raise Failure(f"{bad} of {len(findings)} checks found something that stops a broker")


def _draw(findings: list[Any]) -> None:
    from rich.console import Console
    from rich.text import Text

    marks = {"good": ("✓", "green"), "note": ("!", "yellow"), "bad": ("✗", "bold red")}
    console = Console(highlight=False)
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        mark, colour = marks[finding.verdict]
        line = Text.assemble((mark, colour), " ", finding.check.ljust(width), "  ", finding.found)
        console.print(line, soft_wrap=True)
        if finding.advice:
            console.print(Text(" " * (width + 4) + finding.advice, style="dim"), soft_wrap=True)
