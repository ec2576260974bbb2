"""amqplib for Node.js, where node and npm are there: the scenarios of node/scenarios.js."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent / "node"
SCENARIOS = re.findall(r'^  async "(.+?)"\(', (HERE / "scenarios.js").read_text(), re.MULTILINE)


@pytest.fixture(scope="session")
def amqplib(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the scenarios and amqplib installed beside them."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("amqplib: node and npm are not installed")
    place = tmp_path_factory.mktemp("node")
    for file in HERE.iterdir():
        shutil.copy(file, place)
    installed = subprocess.run(
        [npm, "install", "--silent", "--no-audit", "--no-fund"],
        cwd=place, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    if installed.returncode:
        pytest.skip(f"amqplib: npm cannot install it ({installed.stderr.strip()[:100]})")
    return place


def test_every_scenario_was_found() -> None:
    assert len(SCENARIOS) == 10


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_amqplib(amqp: Any, amqplib: Path, scenario: str) -> None:
    done = subprocess.run(
        ["node", "scenarios.js", amqp.url.rstrip("/"), scenario],
        cwd=amqplib, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stdout == "ok\n", done.stdout + done.stderr
