"""`penstock pipeline`: run, list, stop and watch pipelines on Spark."""

from __future__ import annotations

import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.connection import Json
from penstock.cli.output import Failure, emit_json, emit_table, say
from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline.definition import Pipeline, load
from penstock.spark.pipeline.document import PipelineInvalid
from penstock.spark.pipeline.state import RunState, all_states

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Run pipelines on Spark: topics to tables."
)
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A .toml or .yaml file.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.")]


def _load(file: Path) -> Pipeline:
    try:
        return load(file)
    except PipelineInvalid as failure:
        say(f"penstock: {failure}")
        raise typer.Exit(2) from None


def _need_spark() -> None:
    if find_spec("pyspark") is None:
        raise Failure("pipelines run on Spark: pip install 'penstock[spark]'")


@app.command()
def run(
    file: FileArgument,
    master: Annotated[
        str | None, typer.Option("--master", help="Spark's master; this machine if not given.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show schema, plan and ten rows; write nothing.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, then end.")] = False,
    as_json: Json = False,
) -> None:
    """Run a pipeline until it is done or Ctrl-C; a restart goes on exactly where it was.

    \b
    Examples:
      penstock pipeline run orders.toml
      penstock pipeline run orders.toml --dry-run
      penstock pipeline run orders.toml --once --json
    """
    pipeline = _load(file)
    _need_spark()
    try:
        if dry_run:
            _show_dry_run(pipeline, master, as_json)
        else:
            _run(pipeline, master, once, as_json)
    except SparkConnectorError as failure:
        raise Failure(f"pipeline {pipeline.name}: {failure}") from None


def _run(pipeline: Pipeline, master: str | None, once: bool, as_json: bool) -> None:
    from dataclasses import replace

    from penstock.spark.pipeline.definition import Trigger
    from penstock.spark.pipeline.run import Figures, stop_on_signals
    from penstock.spark.pipeline.run import run as run_pipeline

    if once:
        pipeline = replace(pipeline, trigger=Trigger(available_now=True))
    stop = threading.Event()
    stop_on_signals(stop)

    def show(figures: Figures) -> None:
        if as_json:
            emit_json(figures._asdict())
        else:
            say(
                f"batch {figures.batch}: {figures.rows:,} rows, {figures.rows_per_s:,.0f} rows/s, "
                f"{figures.seconds:.2f} s, lag {figures.lag:,}, bad {figures.bad:,}"
            )

    say(f"pipeline {pipeline.name}: starting Spark; Ctrl-C stops after the batch")
    rows = run_pipeline(pipeline, master=master, show=show, stop=stop)
    say(f"pipeline {pipeline.name}: {'stopped' if stop.is_set() else 'done'}, {rows:,} rows read")


def _show_dry_run(pipeline: Pipeline, master: str | None, as_json: bool) -> None:
    from penstock.spark.pipeline.run import dry_run, spark_for

    found = dry_run(pipeline, spark_for(pipeline, master))
    if as_json:
        emit_json(found)
        return
    emit_table(["column"], [[column] for column in found["schema"]], "schema")
    names = list(dict.fromkeys(name for row in found["sample"] for name in row))
    emit_table(names, [[row.get(name) for name in names] for row in found["sample"]], "sample")
    emit_table(["verdict", "rows"], [["good", found["good"]], *found["bad"].items()], "quality")
    say(found["plan"])


@app.command("list")
def list_(as_json: Json = False) -> None:
    """The pipelines that have run on this machine.

    \b
    Examples:
      penstock pipeline list
      penstock pipeline list --json
    """
    states = all_states()
    if as_json:
        emit_json(states)
        return
    emit_table(
        ["name", "state", "rows", "pid"],
        [[s["name"], s["state"], s.get("rows", 0), s["pid"]] for s in states],
    )


@app.command()
def status(name: NameArgument, as_json: Json = False) -> None:
    """What a pipeline is doing: its state and the figures of its last batch.

    \b
    Examples:
      penstock pipeline status orders
      penstock pipeline status orders --json
    """
    values = _of(name).read()
    if as_json:
        emit_json(values)
        return
    figures: dict[str, Any] = values.pop("figures", {}) or {}
    emit_table(["what", "value"], [*values.items(), *figures.items()])


@app.command()
def stop(name: NameArgument) -> None:
    """Ask a running pipeline to stop after its batch.

    \b
    Examples:
      penstock pipeline stop orders
    """
    _of(name).stop()
    say(f"pipeline {name}: asked to stop after its batch")


def _of(name: str) -> RunState:
    state = RunState(name)
    try:
        state.read()
    except SparkConnectorError as failure:
        raise Failure(str(failure)) from None
    return state


@app.command()
def upkeep(
    path: Annotated[str, typer.Argument(metavar="PATH", help="The table, or the warehouse.")],
    kind: Annotated[str, typer.Option("--format", help="delta or iceberg.")] = "delta",
    table: Annotated[str, typer.Option("--table", help="The Iceberg table's name.")] = "",
    keep_hours: Annotated[
        int, typer.Option("--keep-hours", help="How long old versions and stray files stay.")
    ] = 168,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be removed; change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Keep a lake table in shape: compact small files, expire old versions, sweep orphans.

    \b
    Examples:
      penstock pipeline upkeep lake/orders
      penstock pipeline upkeep lake/warehouse --format iceberg --table shop.latest --dry-run
    """
    if find_spec("deltalake") is None:
        raise Failure("lake tables need more packages: pip install 'penstock[spark]'")
    from penstock.spark.lake import upkeep as lake

    try:
        done = lake.upkeep(kind, path, table=table, keep_hours=keep_hours, dry_run=dry_run)
    except SparkConnectorError as failure:
        raise Failure(str(failure)) from None
    if as_json:
        emit_json(done._asdict())
        return
    verb = "would remove" if dry_run else "removed"
    say(
        f"{path}: {done.files_before} files, now {done.files_after}; "
        f"{done.expired} versions expired, {verb} {len(done.removed)} files"
    )
