"""Everything that the pages about queues tell people to type is typed here, in that order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.http.management import TABLE
from support.broker import BrokerProcess
from support.command import environment

DOCS = Path(__file__).parents[2] / "docs"
SAID = {
    "queues.md": (
        "sent 1 message back",
        "\nlamp\n",
        "disk full",
        "message-ttl=60000",
        '"payload":"hello"',
    ),
    "share-groups.md": ("b'dig' for the 1 time", "Share", "changed workers"),
}

pytestmark = pytest.mark.own_broker


def read(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", list(SAID))
def test_the_page_can_be_followed(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, page: str
) -> None:
    broker = start_broker()
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "penstock"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m penstock "$@"\n')
    command.chmod(0o755)
    settings = environment(
        PATH=f"{command.parent}:{os.environ['PATH']}",
        PENSTOCK_HTTP=broker.http.removeprefix("http://"),
        PENSTOCK_BOOTSTRAP=broker.bootstrap,
    )
    said: list[str] = []
    blocks = re.findall(r"^```(bash|python)\n(.*?)^```$", read(page), flags=re.M | re.S)
    for language, text in blocks:
        text = text.replace("http://127.0.0.1:8080", broker.http)
        text = text.replace('"127.0.0.1:9092"', f'"{broker.bootstrap}"')
        text = text.replace('"127.0.0.1", 5672', f'"127.0.0.1", {broker.amqp_port}')
        shell = ["bash", "-euo", "pipefail", "-c", text]
        done = subprocess.run(
            shell if language == "bash" else [sys.executable, "-c", text],
            env=settings,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        said.append(done.stdout + done.stderr)
    everything = "\n".join(said)
    for words in SAID[page]:
        assert words in everything, words
    assert '"error"' not in everything


def test_the_page_lists_every_path_of_the_api() -> None:
    told = re.sub(r"\{\w+\}", "{}", read("queues.md"))
    for row in TABLE:
        path = "/".join(row.pattern)
        if path.endswith("/{}/{}/{}") or "/e/{}/" in path or path.endswith("bindings/destination"):
            continue  # told in words
        assert f"`/api/{path}`" in told, path
