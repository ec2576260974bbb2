"""`penstock pipeline`: run, list, stop and watch pipelines on Spark."""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime
from importlib.util import find_spec
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.connection import Json
from penstock.cli.output import Columns, Failure, emit_json, emit_rows, emit_table, say
from penstock.spark import pipeline as pipelines
from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline import kinds
from penstock.spark.pipeline.document import PipelineInvalid
from penstock.spark.pipeline.state import RunState, all_states

app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Run pipelines on Spark: topics to tables."
)
FileArgument = Annotated[
    Path,
    typer.Argument(metavar="FILE|NAME", help="A .toml or .yaml file, or its name in pipelines/."),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.")]


def _load(file: Path) -> Any:
    try:
        return kinds.load(_find(file))
    except PipelineInvalid as failure:
        say(f"penstock: {failure}")
        raise typer.Exit(2) from None


def _find(file: Path) -> Path:
    """The file itself, or the one of this name here or in ./pipelines."""
    if file.exists() or file.suffix:
        return file
    places = [Path(), Path("pipelines")]
    found = [p / f"{file}{end}" for p in places for end in (".toml", ".yaml", ".yml")]
    return next((path for path in found if path.exists()), file)


def _need_spark() -> None:
    if find_spec("pyspark") is None:
        raise Failure("pipelines run on Spark: pip install 'penstock[spark]'")


@app.command()
def run(
    file: FileArgument,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Spark's master; this machine if not given."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done; write nothing.")
    ] = False,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, then end.")] = False,
    metrics: Annotated[
        str | None,
        typer.Option("--metrics", metavar="HOST:PORT", help="Serve Prometheus' metrics there."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run a pipeline until it is done or Ctrl-C; a restart goes on exactly where it was.

    \b
    Examples:
      penstock pipeline run orders.toml
      penstock pipeline run orders.toml --dry-run
      penstock pipeline run orders --metrics 127.0.0.1:9400
      penstock pipeline run orders.toml --once --json
    """
    pipeline = _load(file)
    _need_spark()
    try:
        if dry_run:
            _show_dry_run(pipeline, master, as_json)
        else:
            _run(pipeline, master, once, metrics, as_json)
    except SparkConnectorError as failure:
        raise Failure(f"pipeline {pipeline.name}: {failure}") from None


def _run(
    pipeline: Any, master: str | None, once: bool, metrics_at: str | None, as_json: bool
) -> None:
    from contextlib import ExitStack

    from penstock.cli.pipeline_view import PipelineView
    from penstock.spark.pipeline.figures import Metrics
    from penstock.spark.pipeline.work import stop_on_signals

    kind = kinds.kind_of(pipeline)
    if once:
        pipeline = kinds.only_once(pipeline)
    stop = threading.Event()
    stop_on_signals(stop)
    with ExitStack() as ends:
        metrics = Metrics(pipeline.name)
        if metrics_at is not None:
            address, end = metrics.serve(metrics_at)
            ends.callback(end)
            say(f"metrics at http://{address}/metrics")
        if as_json or not sys.stderr.isatty():
            say(f"pipeline {pipeline.name}: starting; Ctrl-C stops after the batch")
        view = ends.enter_context(PipelineView(pipeline.name, kind, as_json))
        result = pipelines.run(pipeline, master=master, show=view.show, stop=stop, metrics=metrics)
    _show_result(pipeline.name, result, stopped=stop.is_set(), as_json=as_json)


def _show_result(name: str, result: Any, *, stopped: bool, as_json: bool) -> None:
    ending = "stopped" if stopped else "done"
    if isinstance(result, int):
        say(f"pipeline {name}: {ending}, {result:,} rows read")
        return
    facts = plain(result)
    if as_json:
        emit_json(facts)
    else:
        emit_table(["what", "value"], [[what, _words(value)] for what, value in facts.items()])
    say(f"pipeline {name}: {ending}")


def plain(value: Any) -> Any:
    """Named tuples as dictionaries, all the way down."""
    if hasattr(value, "_asdict"):
        return {name: plain(part) for name, part in value._asdict().items()}
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value if isinstance(value, int | float | str | None) else str(value)


def _words(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(part)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(str(_words(part)) for part in value)
    return value


def _show_dry_run(pipeline: Any, master: str | None, as_json: bool) -> None:
    found = pipelines.dry_run(pipeline, kinds.spark_of(pipeline, master))
    if as_json:
        emit_json(plain(found))
        return
    for title, part in found.items():
        if isinstance(part, list) and part and isinstance(part[0], dict):
            names = list(dict.fromkeys(name for row in part for name in row))
            rows = [[_words(row.get(name)) for name in names] for row in part]
            emit_table(names, rows, title)
        elif isinstance(part, list):
            emit_table([title], [[_words(item)] for item in part])
        elif isinstance(part, dict):
            emit_table([title, "rows"], [[name, _words(value)] for name, value in part.items()])
        elif title == "plan":
            say(part)
        else:
            emit_table([title], [[part]])


@app.command("list")
def list_(as_json: Json = False) -> None:
    """The pipelines that have run on this machine.

    \b
    Examples:
      penstock pipeline list
      penstock pipeline list --json
    """
    columns: Columns = {
        "name": itemgetter("name"),
        "state": itemgetter("state"),
        "rows": lambda state: state.get("rows", 0),
        "pid": lambda row: str(row["pid"] or ""),
    }
    emit_rows(all_states(), columns, as_json=as_json, nothing="no pipeline has run here yet")


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
    emit_table(["what", "value"], _facts(values))


def _facts(values: dict[str, Any]) -> list[list[Any]]:
    """A state as people read it: times as times, and what is of the last batch under its name."""
    figures: dict[str, Any] = values.get("figures") or {}
    facts = [[what, values[what]] for what in ("name", "state", "error") if values.get(what)]
    facts.append(["process", str(values["pid"])])
    facts += [
        [what, f"{datetime.fromtimestamp(values[what], UTC):%Y-%m-%d %H:%M:%S} UTC"]
        for what in ("since", "ended")
        if what in values
    ]
    facts.append(["rows", values.get("rows", 0)])
    words = {"rows_per_s": "rows/s", "bad": "bad rows", "reasons": "bad because"}
    for what, value in figures.items():
        told = round(value, 2) if isinstance(value, float) else _words(value)
        if told not in ("", None):
            facts.append([f"last batch: {words.get(what, what.replace('batch', 'number'))}", told])
    return facts


@app.command()
def stop(name: NameArgument) -> None:
    """Ask a running pipeline to stop after its batch.

    \b
    Examples:
      penstock pipeline stop orders
    """
    try:
        RunState(name).stop()
    except SparkConnectorError as failure:
        raise Failure(str(failure)) from None
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
    kind: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="delta or iceberg.")
    ] = "delta",
    table: Annotated[
        str, typer.Option("--table", metavar="NAME", help="The Iceberg table's name.")
    ] = "",
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
