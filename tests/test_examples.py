"""Every file of examples/ runs as it is and says what it should."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from support.command import environment

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
PAGE = (EXAMPLES / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.timeout(240)

SAYS = {
    "task_queue.py": [
        "mail to anna@example.org",
        "mail to ben@example.org",
        "mail to clara@example.org",
        "mail to dora@example.org",
        "dead letter {'to': 'nobody'}: 'nobody' is no address",
    ],
    "event_stream.py": ["clicks of user-1: 250", "left for statistics: 0", "read again: 1000"],
    "request_reply.py": [
        "an apple costs 3",
        "a house: KeyError at 'rpc.price': 'house'",
        "nobody answers at rpc.nobody",
    ],
    "outbox.py": ["published: 2", "bills: [(0,), (1,)]"],
    "exactly_once.py": [
        "crashed in the fourth batch",
        "100 amounts, 100 of them different, the last 0.99",
    ],
    "fastapi_jobs.py": [
        "cat.png 202",
        "dog.png 202",
        "{'cat.png': 'cat.png.small', 'dog.png': 'dog.png.small'}",
    ],
    "faststream_app.py": ["a bill of 42 euros"],
    "celery_app.py": ["42 euros charged at the second try"],
}


def _run(*command: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("name", SAYS)
def test_an_example_says_what_it_should(name: str) -> None:
    said = _run(EXAMPLES / name).splitlines()
    assert [line for line in SAYS[name] if line not in said] == [], said


def test_the_example_for_pytest_passes() -> None:
    plugin = "penstock.testing.plugin"  # known by itself where Penstock is installed
    known = any(entry.value == plugin for entry in entry_points(group="pytest11"))
    load = [] if known else ["-p", plugin]
    said = _run("-m", "pytest", "-q", *load, EXAMPLES / "test_orders.py")
    assert "4 passed" in said


def test_every_example_is_run_and_in_the_table() -> None:
    files = {file.name for file in EXAMPLES.glob("*.py")}
    assert files == {*SAYS, "test_orders.py"}
    assert all(f"]({name})" in PAGE for name in files)


@pytest.mark.parametrize("name", [*SAYS, "test_orders.py"])
def test_an_example_is_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= 75
