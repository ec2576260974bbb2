"""What runs where: one small file per pipeline, for `pipeline list`, `status` and `stop`."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline.figures import Figures, Metrics


def state_directory() -> Path:
    """$PENSTOCK_PIPELINES, else the user's state directory."""
    home = os.environ.get("XDG_STATE_HOME", "~/.local/state")
    return Path(os.environ.get("PENSTOCK_PIPELINES", f"{home}/penstock/pipelines")).expanduser()


ALIVE = ("starting", "running", "stopping")


class RunState:
    """The state file of one pipeline; written whole, so a reader never sees half of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = state_directory() / f"{name}.json"

    def write(self, **values: Any) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps({"name": self.name, **values}), encoding="utf-8")
        fresh.replace(self.path)

    def read(self) -> dict[str, Any]:
        try:
            values: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            values = {}
        if not {"state", "pid"} <= set(values):
            raise SparkConnectorError(f"pipeline {self.name} has never run here")
        if values["state"] in ALIVE and not _alive(values):
            values["state"] = "died"
        return values

    def owner(self) -> int | None:
        """The process that runs it now."""
        try:
            values = self.read()
        except SparkConnectorError:
            return None
        return int(values["pid"]) if values["state"] in ALIVE else None

    def stop(self) -> None:
        """Ask the process to stop after its batch."""
        values = self.read()
        if values["state"] not in ALIVE:
            raise SparkConnectorError(f"pipeline {self.name} is not running: {values['state']}")
        os.kill(values["pid"], signal.SIGINT)


def all_states() -> list[dict[str, Any]]:
    """Every pipeline that has run here, by name."""
    found = []
    for path in sorted(state_directory().glob("*.json")):
        with suppress(SparkConnectorError):  # a file that is no state, or not one any more
            found.append(RunState(path.stem).read())
    return found


def started_at(pid: int) -> str:
    """When a process began, so that a later one with the same number is not taken for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def _alive(values: dict[str, Any]) -> bool:
    try:
        os.kill(values["pid"], 0)
    except OSError:
        return False
    return bool(started_at(values["pid"]) == values.get("started", ""))


class Running:
    """One run of a pipeline of any kind: what it did so far, in its state file and its metrics.

    with Running("orders") as running:      # starting, then finished, stopped or failed
        running.add(figures)
    """

    def __init__(
        self,
        name: str,
        show: Callable[[Figures], None] = lambda figures: None,
        stop: threading.Event | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self.stop = stop or threading.Event()
        self.rows = 0
        self._state = RunState(name)
        self._show = show
        self._metrics = metrics
        self._figures: dict[str, Any] = {}
        self._own = {"pid": os.getpid(), "started": started_at(os.getpid()), "since": time.time()}

    def __enter__(self) -> Self:
        """Refused while another process runs a pipeline of this name: two writers of a checkpoint
        would spoil each other's work, and `stop` and `status` could mean either."""
        other = self._state.owner()
        if other is not None and other != os.getpid():
            raise SparkConnectorError(
                f"a pipeline of this name is running in process {other}; stop it (penstock "
                f"pipeline stop {self._state.name}), or give this one another `name`"
            )
        self._state.write(state="starting", **self._own)
        return self

    def begun(self) -> None:
        """Everything is started, although there may be nothing to do yet."""
        self._write("running")

    def add(self, figures: Figures) -> None:
        self.rows += figures.rows
        self._figures = figures.as_dict()
        self._show(figures)
        if self._metrics is not None:
            self._metrics.add(figures)
        self._write("stopping" if self.stop.is_set() else "running")

    def stopping(self) -> None:
        self._write("stopping")

    def _write(self, state: str, **more: Any) -> None:
        self._state.write(state=state, rows=self.rows, figures=self._figures, **more, **self._own)

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: object
    ) -> None:
        ended = time.time()
        if failure is not None and kind is not KeyboardInterrupt:
            self._write("failed", ended=ended, error=str(failure)[:2000])
        else:
            stopped = self.stop.is_set() or kind is KeyboardInterrupt
            self._write("stopped" if stopped else "finished", ended=ended)
