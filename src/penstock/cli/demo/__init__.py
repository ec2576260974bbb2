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


@app.command()
def demo(
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
    """
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
