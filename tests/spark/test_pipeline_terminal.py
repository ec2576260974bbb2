"""`penstock pipeline run` in a terminal: a picture that changes, Ctrl-C pressed as people do."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any, Self

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROWS, AT_ONCE = 600, 20
TEXT = """
checkpoint = "checkpoint"
[source]
bootstrap = "BOOTSTRAP"
topic = "SOURCE"
max_rows_per_batch = 20
[decode]
schema = "id BIGINT"
on_error = "fail"
[sink]
kind = "topic"
topic = "TARGET"
"""
# The terminal becomes the one that Ctrl-C of the whole session comes from.
TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execv(sys.executable, [sys.executable, '-m', 'penstock', *sys.argv[1:]])"
)
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A command with a terminal of its own, what it shows, and a keyboard."""

    def __init__(self, home: Path, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        more = {"PYTHONPATH": str(ROOT / "src"), "PENSTOCK_PIPELINES": str(home / "state")}
        self.raw = ""
        self.process = subprocess.Popen(
            [sys.executable, "-c", TAKE_TERMINAL, *words],
            stdin=theirs, stdout=theirs, stderr=theirs, cwd=home, start_new_session=True,
            env={**kept, **more, "TERM": "xterm-256color"},
        )  # fmt: skip
        os.close(theirs)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._ours)

    @property
    def text(self) -> str:
        return CONTROL.sub("", self.raw)

    def see(self, pattern: str, within: float = 240) -> re.Match[str]:
        """Look until something is to be seen."""
        deadline = time.monotonic() + within
        while (found := re.search(pattern, self.text)) is None:
            assert self._read(deadline), f"{pattern} is not in:\n{self.text[-3000:]}"
        return found

    def end(self, within: float = 240) -> int:
        deadline = time.monotonic() + within
        while self._read(deadline):
            pass
        return self.process.wait(60)

    def press(self, key: bytes) -> None:
        os.write(self._ours, key)

    def _read(self, deadline: float) -> bool:
        """Whether there was more; nobody holds the terminal when the command has ended."""
        ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
        try:
            read = os.read(self._ours, 65536) if ready else b""
        except OSError:
            read = b""
        self.raw += read.decode(errors="replace")
        return bool(read)


@pytest.mark.timeout(900)
def test_the_picture_changes_ctrl_c_waits_for_the_batch_and_a_restart_goes_on_exactly(
    bootstrap: str, topic: Any, fill: Any, records: Any, tmp_path: Path
) -> None:
    source, target = topic("in", 1), topic("out", 1)
    fill(source, [b'{"id": %d}' % at for at in range(ROWS)])
    text = TEXT.replace("BOOTSTRAP", bootstrap).replace("SOURCE", source).replace("TARGET", target)
    file = tmp_path / "copy.toml"
    file.write_text(text)

    def copied() -> list[int]:
        return [json.loads(record.value())["id"] for record in records(target, 1)]

    with Terminal(tmp_path, "pipeline", "run", "copy.toml") as terminal:
        terminal.see(r"copy \(flow\): starting Spark; Ctrl-C stops after the batch")
        terminal.see(r"batch +1: 20 rows")
        shown = terminal.text
        for words in (r"copy \(flow\)", r"rows +\d+ in \d+ s", r"rows/s +\d+", r"lag +\d+ records"):
            assert re.search(words, shown), shown[-3000:]
        terminal.press(b"\x03")
        assert terminal.end() == 0, terminal.text[-3000:]
        told = terminal.see(r"pipeline copy: stopped, (\d+) rows read", within=0)
        assert "\x1b[1A" in terminal.raw  # drawn over, not below
        assert not re.search(r"WARN|Exception|Traceback", terminal.text), terminal.text[-3000:]
    first = copied()
    # Whole batches, each once; what the command told is there, and not everything was done.
    assert first == list(range(len(first)))
    assert int(told[1]) <= len(first) < ROWS
    assert (int(told[1]) % AT_ONCE, len(first) % AT_ONCE) == (0, 0)
    file.write_text(text.replace("max_rows_per_batch = 20\n", ""))
    with Terminal(tmp_path, "pipeline", "run", "copy.toml", "--once") as terminal:
        assert terminal.end() == 0, terminal.text[-3000:]
        told = terminal.see(r"pipeline copy: done, (\d+) rows read", within=0)
    assert copied() == list(range(ROWS))
    assert ROWS - len(first) <= int(told[1]) <= ROWS
