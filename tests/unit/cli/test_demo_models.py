"""The two models of the demonstration, replication and sharding, come true to the end."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from support.command import environment, penstock

pytestmark = pytest.mark.timeout(240)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("replication", ["the primary dies", "took over", "comes back", "a secondary dies"]),
        ("sharding", ["beta goes away", "beta comes back with its data"]),
    ],
)
def test_a_model_tells_its_story_in_plain_text(model: str, words: list[str]) -> None:
    done = penstock("demo", model, timeout=200)
    assert done.code == 0, done.out + done.err
    assert [word for word in words if word not in done.out] == []
    assert "0 lost" in done.out
    assert "everything came true" in done.out
    assert "\x1b" not in done.out


def test_in_a_terminal_it_is_drawn_live() -> None:
    ours, theirs = pty.openpty()
    shown = b""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "demo", "sharding"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(TERM="xterm-256color", LINES="40"),
    )
    os.close(theirs)
    try:
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
    finally:
        os.close(ours)
    assert process.wait(30) == 0, shown.decode(errors="replace")[-3000:]
    assert shown.count(b"alpha") > 20  # the same picture again and again
    assert b"everything came true" in shown
