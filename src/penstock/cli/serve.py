"""`penstock serve`: every option of the broker as a flag, made from the table in `options/`."""

from __future__ import annotations

import errno
import inspect
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.output import Failure
from penstock.config import OPTIONS, BrokerConfig
from penstock.options.option import Option

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def _flag(option: Option) -> inspect.Parameter:
    """One option of the broker as a parameter of the command."""
    switch = option.kind == "boolean" and option.headline
    details = "" if switch or option.default is None else f"[{option.default_text}]"
    declared = typer.Option(
        option.flag,
        help=f"{option.doc} {details}".strip(),
        metavar=None if switch else _metavar(option),
        hidden=not option.headline,
        show_default=False,
    )
    kind: Any = bool | None if switch else str | None
    return inspect.Parameter(
        option.attribute,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, declared],
    )


def _metavar(option: Option) -> str:
    if option.choices:
        return "|".join(option.choices)
    if isinstance(option.default, Path):
        return "DIR"
    return "N" if option.kind in ("int", "long", "double") else "HOST:PORT"


def _show_all(wanted: bool) -> None:
    if not wanted:
        return
    group = ""
    for option in OPTIONS.values():
        if option.group != group:
            group = option.group
            sys.stdout.write(f"\n{group}\n")
        unit = f" {option.unit}" if option.unit else ""
        sys.stdout.write(f"  {option.flag} [{option.default_text}{unit}]\n      {option.doc}\n")
    raise typer.Exit(0)


def serve(
    *,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Options from a TOML file.")
    ] = None,
    help_all: Annotated[
        bool,
        typer.Option(
            "--help-all", callback=_show_all, is_eager=True, help="List every option of the broker."
        ),
    ] = False,
    **given: Any,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM.

    When every door is open it prints one line: penstock ready kafka=127.0.0.1:9092 ...

    \b
    Examples:
      penstock serve                                    data in ./penstock-data
      penstock serve --memory                           nothing is kept
      penstock serve --data /var/lib/penstock --kafka 0.0.0.0:9092 --advertised-kafka mq.local:9092
      penstock serve --num-partitions 8 --log-retention-ms 2d
      PENSTOCK_DURABILITY=os penstock serve --config penstock.toml

    Every option can also stand in the file by its dotted name ("num.partitions" = 8), or in the
    environment (PENSTOCK_NUM_PARTITIONS=8); flags win over the environment, which wins over the
    file. --help-all lists them all.
    """
    flags = {option.name: given.get(option.attribute) for option in OPTIONS.values()}
    settings = BrokerConfig.load(flags=flags, file=config)

    from penstock.process import serve as run_broker  # after the options: a mistake answers at once

    try:
        code = run_broker(settings)
    except OSError as failure:
        hint = ""
        if isinstance(failure, socket.gaierror):
            doors = (settings.kafka, settings.amqp, settings.http)
            hint = f"; is one of {', '.join(str(door) for door in doors if door)} not here?"
        elif failure.errno == errno.EADDRINUSE:
            hint = "; is a broker running already? --kafka, --amqp and --http choose other ports"
        where = f"{failure.filename}: " if failure.filename else ""
        why = f"{where}{failure.strerror or failure}{hint}"
        raise Failure(f"the broker cannot start: {why}") from None
    raise typer.Exit(code)


def _derive_flags() -> None:
    """Give `serve` a parameter for each option, where typer looks for parameters."""
    written = inspect.signature(serve, eval_str=True)
    fixed = [p for p in written.parameters.values() if p.kind is not p.VAR_KEYWORD]
    flags = [_flag(option) for option in OPTIONS.values()]
    parameters = [*flags, *fixed]
    serve.__signature__ = written.replace(parameters=parameters)  # type: ignore[attr-defined]
    serve.__annotations__ = {p.name: p.annotation for p in parameters}


_derive_flags()
app.command()(serve)
