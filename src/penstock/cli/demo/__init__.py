"""`penstock demo`: a broker shown at work in one terminal, with real clients and real figures."""

from __future__ import annotations

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.connection import broker_errors
from penstock.cli.output import Failure, say

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def demo(
    context: typer.Context,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Keep the data there; else it is temporary."),
    ] = None,
    stop: Annotated[
        bool, typer.Option("--stop", help="End after the demonstration, in a terminal too.")
    ] = False,
) -> None:
    """Start a broker and show what it does: clients, groups, transactions, queues, recovery.

    Every figure is measured while you look. In a terminal the broker goes on serving until
    Ctrl-C; otherwise the command ends after the demonstration, with 1 if anything went wrong.

    \b
    Examples:
      penstock demo
      penstock demo --data ./penstock-data --stop
      penstock demo replication
    """
    if context.invoked_subcommand is not None:
        return
    from penstock.cli.demo.broker import BrokerProcess
    from penstock.cli.demo.scenes import play
    from penstock.cli.demo.stage import Stage

    with ExitStack() as ends:
        if data is None:
            scratch = ends.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-"))
            data = Path(scratch) / "data"
        broker = BrokerProcess(data)
        ends.callback(broker.stop)
        stage = Stage()
        try:
            with broker_errors(broker.kafka):
                play(stage, broker)
            if sys.stdout.isatty() and not stop:
                stage.farewell(broker)
                broker.wait()
        except Failure:
            say(broker.complaints())
            raise
        except KeyboardInterrupt:
            say("\nstopping the broker")


@app.command()
def replication() -> None:
    """Three brokers, one of them primary: copies, a death, and who takes over.

    A model made of the library's calls, with brokers in this process, writers and readers in
    threads. Ends with 1 if an acknowledged order is lost.
    """
    from penstock.cli.demo.replication import play
    from penstock.cli.demo.stage import Stage

    play(Stage())


@app.command()
def sharding() -> None:
    """Three independent brokers, each with a share of the keys: one goes away and comes back.

    A model made of the library's calls, with brokers in this process, writers and readers in
    threads. Ends with 1 if an order is lost.
    """
    from penstock.cli.demo.sharding import play
    from penstock.cli.demo.stage import Stage

    play(Stage())
