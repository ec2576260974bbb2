"""How commands speak: data to standard output, words for people to standard error.

A table is drawn with lines and colours in a terminal and as plain columns in a pipe; `--json`
prints what a program reads. rich is imported only where something is drawn.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import typer

Columns = Mapping[str, Callable[[Any], Any]]  # of a table: what each shows of a row

_MARKS = str.maketrans("", "", ",.")  # what a number may contain besides digits


class Failure(Exception):
    """A command could not do what was asked. The text is a sentence; the exit code is 1."""


def family(words: str) -> typer.Typer:
    """A command that has commands below it, `words` being its help."""
    return typer.Typer(
        add_completion=False, rich_markup_mode=None, no_args_is_help=True, help=words
    )


def is_given(value: Any) -> Any:
    """Refuse an empty text, or one among several, where a name is wanted."""
    if value == "" or (isinstance(value, list) and "" in value):
        raise typer.BadParameter("it cannot be empty")
    return value


def say(words: str) -> None:
    """Words for a person."""
    sys.stderr.write(words + "\n")
    sys.stderr.flush()


def emit_json(value: Any) -> None:
    """One JSON document, indented in a terminal, on one line in a pipe."""
    indent = 2 if sys.stdout.isatty() else None
    sys.stdout.write(json.dumps(value, indent=indent, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "") -> None:
    """A table; columns whose cells are all numbers (or empty) are aligned to the right.

    Thousands are set apart for eyes only: in a pipe somebody may count on the digits.
    """
    group = "," if sys.stdout.isatty() else ""
    cells = [[_cell(value, group) for value in row] for row in rows]
    numeric = [
        bool(cells) and all(_is_number(row[at]) for row in cells) for at in range(len(columns))
    ]
    if sys.stdout.isatty():
        _draw(columns, cells, numeric, title)
    else:
        _columns(columns, cells, numeric, title)
    sys.stdout.flush()


def emit_rows(rows: Sequence[Any], columns: Columns, *, as_json: bool, nothing: str) -> None:
    """What a command found: in JSON as it is, or as a table; in place of an empty one `nothing`
    is said, in words."""
    if as_json:
        emit_json(rows)
    elif rows:
        emit_table(list(columns), [[shown(row) for shown in columns.values()] for row in rows])
    else:
        say(nothing)


def in_words(settings: Mapping[str, Any]) -> str:
    """`name=value` for each, on one line."""
    return " ".join(f"{name}={value}" for name, value in settings.items())


def _is_number(cell: str) -> bool:
    return not cell or cell.strip("-").translate(_MARKS).isdecimal()


def _cell(value: Any, group: str) -> str:
    if value is None:
        return ""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return format(value, group) if is_number else str(value)


def _columns(
    columns: Sequence[str], rows: list[list[str]], numeric: list[bool], title: str
) -> None:
    table = [[name.upper() for name in columns], *rows]
    widths = [max(len(row[at]) for row in table) for at in range(len(columns))]
    if title:
        sys.stdout.write(title + "\n")
    for row in table:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        sys.stdout.write("  ".join(padded).rstrip() + "\n")


def _draw(columns: Sequence[str], rows: list[list[str]], numeric: list[bool], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold"
    )
    for name, right in zip(columns, numeric, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*[Text(cell) for cell in row])
    Console().print(table)


def confirm(question: str, yes: bool) -> None:
    """Ask before something is lost. Where nobody can answer, `--yes` must be there."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody is here to confirm; add --yes")
    if not typer.confirm(question, err=True):
        raise Failure("nothing was changed")


def human_bytes(count: float) -> str:
    """`1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
