"""State files: one process for a name, and words instead of tracebacks for `list` and `stop`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline.state import Running, RunState, started_at


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_PIPELINES", str(tmp_path))
    return tmp_path


def test_a_name_is_run_by_one_process_at_a_time(states: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        RunState("orders").write(state="running", pid=other.pid, started=started_at(other.pid))
        before = RunState("orders").read()
        with (
            pytest.raises(SparkConnectorError, match=f"running in process {other.pid}; stop it"),
            Running("orders"),
        ):
            pass
        assert RunState("orders").read() == before  # the other's state is left alone
    finally:
        other.communicate(b"\n")
    with Running("orders") as running:  # it has died, so the name is free
        running.begun()
        assert RunState("orders").read()["pid"] == os.getpid()
    assert RunState("orders").read()["state"] == "finished"


def test_a_pipeline_that_has_ended_cannot_be_stopped_and_the_answer_says_so(states: Path) -> None:
    with Running("orders"):
        pass
    done = CliRunner().invoke(app, ["pipeline", "stop", "orders"])
    assert done.exit_code == 1
    assert "pipeline orders is not running: finished" in done.output


def test_files_that_are_no_states_are_passed_over(states: Path) -> None:
    with Running("orders"):
        pass
    (states / "broken.json").write_text("{")
    (states / "other.json").write_text("{}")
    done = CliRunner().invoke(app, ["pipeline", "list"])
    assert done.exit_code == 0
    assert [row.split()[0] for row in done.output.splitlines()[1:]] == ["orders"]
    refused = CliRunner().invoke(app, ["pipeline", "status", "other"])
    assert "pipeline other has never run here" in refused.output


def test_a_status_is_for_people(states: Path) -> None:
    from penstock.spark.pipeline.figures import Figures

    with Running("orders") as running:
        running.add(Figures(4, 1200, 33.333, 2.5, 7, 2, {"amount is positive": 2}))
    shown = CliRunner().invoke(app, ["pipeline", "status", "orders"]).output
    facts = {line[:24].strip(): line[24:].strip() for line in shown.splitlines()}
    assert facts["process"] == str(os.getpid())
    assert facts["rows"] == "1200"
    assert facts["since"].endswith(" UTC")
    assert facts["last batch: number"] == "4"
    assert facts["last batch: rows/s"] == "33.33"
    assert facts["last batch: bad because"] == "amount is positive 2"


def test_an_interrupted_run_was_stopped_and_did_not_fail(states: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Running("orders"):
        raise KeyboardInterrupt
    assert RunState("orders").read()["state"] == "stopped"


def test_ctrl_c_while_spark_starts_asks_for_a_stop_and_breaks_nothing(
    states: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    from penstock.spark import launch
    from penstock.spark.pipeline.work import spark_for, stop_on_signals

    def session(*said: object) -> str:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # as Spark does
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        return "a session"

    monkeypatch.setattr(launch, "session", session)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    stop = threading.Event()
    stop_on_signals(stop)
    try:
        assert spark_for(SimpleNamespace(name="orders", settings={})) == "a session"
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)
    assert stop.is_set()
