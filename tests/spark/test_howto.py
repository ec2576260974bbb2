"""Every page of docs/pipelines is done as it stands, in one place, from the first to the last.

A file is saved and run by the command in its second line; commands and Python are run too, in this
process and on the session of the tests, so that only the tutorial starts a Spark of its own.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline import load
from penstock.spark.pipeline.state import RunState
from support.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "pipelines"
EXAMPLES = ROOT / "examples" / "pipelines"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.S)
# In this order: a page may use what an earlier one made.
ORDER = (
    "topic-to-lake", "quality", "topic-to-topic", "redrive", "replay", "aggregates", "mirror",
    "traffic", "lake-upkeep",
)  # fmt: skip
pytestmark = [pytest.mark.own_broker, pytest.mark.timeout(900)]


def _blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((PAGES / f"{page}.md").read_text())


class Shop:
    """A directory with two brokers behind the addresses that the pages use."""

    def __init__(self, home: Path, here: Any, there: Any, spark: Any) -> None:
        self.home = home
        self.spark = spark
        self._addresses = {
            "127.0.0.1:9092": here.bootstrap,
            "127.0.0.1:9192": there.bootstrap,
            "127.0.0.1:5672": f"127.0.0.1:{here.amqp_port}",
            "127.0.0.1:5772": f"127.0.0.1:{there.amqp_port}",
        }

    def local(self, text: str) -> str:
        for address, real in self._addresses.items():
            text = text.replace(address, real)
        return text

    def do(self, kind: str, text: str) -> None:
        if kind == "toml":
            command = re.search(r"^# (penstock pipeline run .*)$", text, re.M)
            assert command is not None
            line = command[1].replace("examples/pipelines/", "")
            (self.home / shlex.split(line)[3]).write_text(self.local(text))
            self.command(line)
        elif kind == "sh":
            for line in text.splitlines():
                self.command(line.partition("#")[0].strip())
        else:
            exec(compile(self.local(text), "docs", "exec"), {})

    def command(self, line: str) -> None:
        """As if typed; a pipeline that would go on for ever is stopped when it has begun."""
        from typer.testing import CliRunner

        from penstock.cli.pipeline import app

        words = shlex.split(line)
        assert words[:2] == ["penstock", "pipeline"], line
        name = words[3].removesuffix(".toml") if words[2] == "run" else ""
        endless = name and not {"--once", "--dry-run"} & set(words) and _goes_on(words[3])
        if endless:
            threading.Thread(target=_stop_soon, args=(name,), daemon=True).start()
        result = CliRunner().invoke(app, words[2:], catch_exceptions=False)
        assert result.exit_code == 0, f"{line}\n{result.output}"


def _goes_on(file: str) -> bool:
    definition = load(Path(file))
    if hasattr(definition, "trigger"):
        return not definition.trigger.available_now
    return bool(getattr(definition, "every", ""))


def _stop_soon(name: str) -> None:
    begun = time.time()

    def busy() -> bool:
        try:
            said = RunState(name).read()
        except SparkConnectorError:
            return False
        return bool(said["state"] == "running" and said["since"] >= begun - 1)

    eventually(busy, within=240)
    RunState(name).stop()


@pytest.fixture
def shop(tmp_path: Path, start_broker: Any, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Shop:
    here, there = start_broker(tmp_path / "here"), start_broker(tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_PIPELINES", str(tmp_path / "state"))
    monkeypatch.setattr(type(spark), "stop", lambda session: None)
    return Shop(tmp_path, here, there, spark)


def _fill(shop: Shop, count: int) -> None:
    import pika
    from confluent_kafka.admin import AdminClient, NewTopic

    bootstrap, amqp = (shop.local(f"127.0.0.1:{port}") for port in (9092, 5672))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    new = [NewTopic(name, 2) for name in ("orders", "payments", "orders.bad")]
    for made in admin.create_topics(new).values():
        made.result(20)
    told = subprocess.run(
        [sys.executable, str(EXAMPLES / "shop_events.py"), bootstrap, str(count)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "events sent" in told.stdout
    connection = pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@{amqp}/%2F"))
    channel = connection.channel()
    channel.queue_declare("work", durable=True)
    channel.basic_publish("", "work", b"job")
    connection.close()
    (shop.home / "shelves.csv").write_text((EXAMPLES / "shelves.csv").read_text())


def test_the_how_tos_do_what_they_say(shop: Shop) -> None:
    from deltalake import DeltaTable

    _fill(shop, 600)
    done: set[str] = set()
    for page in ORDER:
        for kind, text in _blocks(page):
            if text not in done:  # a file that stands on two pages is run once
                shop.do(kind, text)
            done.add(text)
    assert DeltaTable("lake/orders").to_pyarrow_table().num_rows > 600
    revenue = DeltaTable("lake/revenue").to_pyarrow_table().to_pylist()
    assert {row["item"] for row in revenue} >= {"tea", "coffee"}
    assert all(row["end"].minute % 10 == 0 for row in revenue)
    shop.command("penstock pipeline list --json")
    shop.command("penstock pipeline status orders-to-lake")


def test_the_pages_show_the_example_files_and_every_page_is_done() -> None:
    shown = {text for page in ORDER for kind, text in _blocks(page) if kind == "toml"}
    assert shown == {file.read_text() for file in EXAMPLES.glob("*.toml")}
    assert {path.stem for path in PAGES.glob("*.md")} == {*ORDER, "index", "tutorial"}


def test_the_tutorial_works_as_it_is_written(tmp_path: Path, start_broker: Any) -> None:
    broker = start_broker(tmp_path / "shop-data")
    command = tmp_path / "bin" / "penstock"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock "$@"\n')
    command.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "PENSTOCK_BOOTSTRAP": broker.bootstrap,
        "PENSTOCK_PIPELINES": str(tmp_path / "state"),
    }
    blocks = _blocks("tutorial")
    assert "pip install 'penstock[spark]'" in blocks[0][1]
    assert blocks[1][1].startswith("penstock serve")
    for kind, text in blocks[2:]:
        if kind == "toml":
            (tmp_path / "orders.toml").write_text(text)
            continue
        run = ["bash", "-eu", "-o", "pipefail", "-c", text]
        if kind == "python":
            run = [sys.executable, "-c", text]
        done = subprocess.run(
            run, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        if "pipeline run" in text:
            assert "no order at all" in done.stdout
            assert "501 rows read" in done.stderr
