"""The root of the command line: names of commands, and how every failure becomes a sentence."""

from __future__ import annotations

import io
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.cli.output import Failure, say
from penstock.errors import ConfigurationError, DataDirectoryDamaged, DataDirectoryInUse

# Each module has an `app`; it is imported when its command is called, or help needs its words.
COMMANDS = {
    "serve": "penstock.cli.serve",
    "demo": "penstock.cli.demo",
    "topic": "penstock.cli.topic",
    "produce": "penstock.cli.produce",
    "consume": "penstock.cli.consume",
    "group": "penstock.cli.group",
    "queue": "penstock.cli.queue",
    "dlq": "penstock.cli.dlq",
    "exchange": "penstock.cli.exchange",
    "binding": "penstock.cli.binding",
    "policy": "penstock.cli.policy",
    "vhost": "penstock.cli.vhost",
    "user": "penstock.cli.user",
    "bench": "penstock.cli.bench",
    "pipeline": "penstock.cli.pipeline",
    "doctor": "penstock.cli.doctor",
}


class Commands(TyperGroup):
    """The commands by name, loaded late; and the one place where failures are shown."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(import_module(COMMANDS[cmd_name]).app)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever read our output has seen enough: `penstock consume orders | head`.
            _forget_output()
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            say("stopped")
            raise typer.Exit(1) from None
        except ConfigurationError as failure:
            say(f"penstock: {failure}")
            raise typer.Exit(2) from None
        except (Failure, DataDirectoryInUse, DataDirectoryDamaged) as failure:
            say(f"penstock: {failure}")
            raise typer.Exit(1) from None


def _show_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"penstock {__version__}\n")
        raise typer.Exit(0)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def penstock(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """A durable log that speaks Kafka's protocol and AMQP.

    \b
    Start here:
      penstock serve                            a broker on 127.0.0.1:9092, data in ./penstock-data
      penstock topic create orders              a topic with 4 partitions
      echo hello | penstock produce orders      a message
      penstock consume orders                   and back again
      penstock queue declare jobs               a queue, for AMQP clients

    Commands for topics and groups talk to the broker at --bootstrap, or $PENSTOCK_BOOTSTRAP, or
    127.0.0.1:9092; it may be any broker that speaks Kafka's protocol. Commands for queues and what
    belongs to them talk to its HTTP door at --http, or $PENSTOCK_HTTP, or 127.0.0.1:8080.
    """


def run() -> None:
    """Do what the command line says and end the process."""
    _open_standard_streams()
    try:
        app(prog_name="penstock")
    except UnicodeEncodeError:
        say("penstock: an argument is not UTF-8")
        sys.exit(2)
    except OSError as failure:
        # Of standard output, as a rule: the disk to which it goes is full.
        _forget_output()
        what = failure.filename or "cannot write the output"
        say(f"penstock: {what}: {failure.strerror or failure}")
        sys.exit(1)


def _open_standard_streams() -> None:
    """Make the best of those that the caller has closed (`<&-`), or that cannot say every word."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _forget_output() -> None:
    """What is left to be written goes nowhere, instead of failing once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
