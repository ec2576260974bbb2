"""State files: one process for a name, and words instead of tracebacks for `list` and `stop`."""

from __future__ import annotations

import os
import subprocess
import sys
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
