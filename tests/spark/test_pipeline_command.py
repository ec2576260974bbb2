"""`penstock pipeline` as a process: metrics while it runs, Ctrl-C after the batch, exactly on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.pipeline_view import PipelineView, line, spark_line
from penstock.spark.pipeline.figures import Figures
from support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
TEXT = """
checkpoint = "checkpoint"
[source]
bootstrap = "BOOTSTRAP"
topic = "SOURCE"
[decode]
schema = "id BIGINT"
[quarantine]
topic = "TARGET.bad"
[sink]
kind = "topic"
topic = "TARGET"
[trigger]
every = "200 ms"
"""


class Command:
    """A command in a directory, with what it says in files."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "PENSTOCK_PIPELINES": str(home / "state"),
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.home / "out").open("wb") as out, (self.home / "err").open("wb") as err:
            return subprocess.Popen(
                [sys.executable, "-m", "penstock", "pipeline", *words],
                cwd=self.home, env=self._environment, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip

    def __call__(self, *words: str) -> str:
        assert self.start(*words).wait(240) == 0, self.err
        return (self.home / "out").read_text()

    @property
    def err(self) -> str:
        return (self.home / "err").read_text()


@pytest.mark.timeout(600)
def test_a_running_pipeline_is_watched_stopped_after_its_batch_and_goes_on_exactly(
    bootstrap: str, topic: Any, fill: Any, records: Any, name: Any, tmp_path: Path
) -> None:
    source, target = topic("in", 1), name("out")
    fill(source, [b'{"id": %d}' % at for at in range(50)] + [b"bad"])
    text = TEXT.replace("BOOTSTRAP", bootstrap).replace("SOURCE", source).replace("TARGET", target)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "copy.toml").write_text(text)
    penstock = Command(tmp_path)
    process = penstock.start("run", "copy", "--metrics", "127.0.0.1:0")
    try:
        eventually(lambda: "batch 0: 51 rows" in penstock.err, within=240)
        address = re.search(r"metrics at (\S+)", penstock.err)
        assert address is not None
        with urllib.request.urlopen(address[1], timeout=10) as page:
            told = page.read().decode()
        assert 'penstock_pipeline_rows_total{pipeline="copy"} 51.0' in told
        why = 'pipeline="copy",reason="value is not json of the schema"'
        assert f"penstock_pipeline_bad_rows_total{{{why}}} 1.0" in told
        assert 'penstock_pipeline_lag_records{pipeline="copy"} 0.0' in told
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to Spark's processes too
        assert process.wait(120) == 0, penstock.err
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert "pipeline copy: stopped, 51 rows read" in penstock.err
    status = json.loads(penstock("status", "copy", "--json"))
    assert (status["state"], status["rows"], status["figures"]["bad"]) == ("stopped", 51, 1)
    fill(source, [b'{"id": %d}' % at for at in range(50, 80)])
    batches = [
        json.loads(text) for text in penstock("run", "copy", "--once", "--json").splitlines()
    ]
    assert sum(batch["rows"] for batch in batches) == 30
    found = sorted(json.loads(record.value())["id"] for record in records(target, 1))
    assert found == list(range(80))


def test_a_wrong_file_and_an_unknown_pipeline_are_told_at_once(tmp_path: Path) -> None:
    penstock = Command(tmp_path)
    (tmp_path / "p.toml").write_text('[source]\ntopic = "a"\n[sink]\nkind = "excel"\n')
    assert penstock.start("run", "p.toml").wait(60) == 2
    assert "p.toml:1: checkpoint: is missing" in penstock.err
    assert penstock.start("stop", "nobody").wait(60) == 1
    assert "pipeline nobody has never run here" in penstock.err


def test_the_live_view_shows_what_people_ask_for() -> None:
    from rich.console import Console

    view = PipelineView("orders", "flow", as_json=False)
    figures = Figures(
        batch=3, rows=500, rows_per_s=1000.0, seconds=0.5, lag=42, bad=2,
        reasons={"amount is positive": 2}, watermark="2026-11-15T12:00:00.000Z",
    )  # fmt: skip
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(view.picture(figures))
    shown = console.export_text()
    for words in ("orders (flow)", "1,000", "42 records", "3: 500 rows, 0.50 s", "12:00:00"):
        assert words in shown
    console.file.close()
    assert line(figures).startswith("batch 3: 500 rows, 1,000 rows/s, 0.50 s, lag 42, bad 2")
    assert spark_line([0.0, 5.0, 10.0]) == " ▄█"
