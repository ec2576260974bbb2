"""Running `penstock ...` as a user does: in a process of its own, by its streams and exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCES = Path(__file__).resolve().parents[2] / "src"


@dataclass(frozen=True)
class Outcome:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return {**kept, "PYTHONPATH": str(SOURCES), "COLUMNS": "100", **more}


def penstock(
    *arguments: str | Path,
    bootstrap: str | None = None,
    stdin: str | bytes = b"",
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60.0,
) -> Outcome:
    """Run one command to its end."""
    more = dict(env or {})
    if bootstrap is not None:
        more["PENSTOCK_BOOTSTRAP"] = bootstrap
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=environment(**more),
        cwd=cwd,
        timeout=timeout,
        check=False,
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
