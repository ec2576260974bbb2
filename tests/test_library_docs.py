"""Every snippet of docs/library is run, page by page, in the order in which it is read.

The snippets of a page are one program; those that define tests are run by pytest. The address
127.0.0.1:9092 is replaced by that of a broker that runs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from support.command import environment

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = sorted((DOCS / "library").glob("*.md"))
SNIPPET = re.compile(r"^```python\n(.*?)^```$", flags=re.M | re.S)
TESTS = re.compile(r"^(def test_|class \w+\(unittest)", flags=re.M)
PLUGIN = "penstock.testing.plugin"

pytestmark = pytest.mark.timeout(240)


def _snippets(page: Path) -> list[str]:
    return SNIPPET.findall(page.read_text(encoding="utf-8"))


def _run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_snippets_of_a_page_run(page: Path, tmp_path: Path, broker: Any) -> None:
    program = [each for each in _snippets(page) if not TESTS.search(each)]
    text = "\n".join(program).replace("127.0.0.1:9092", broker.bootstrap)
    (tmp_path / "page.py").write_text(text, encoding="utf-8")
    _run("-W", "error::ResourceWarning", "page.py", cwd=tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tests_of_a_page_pass(page: Path, tmp_path: Path) -> None:
    tests = [each for each in _snippets(page) if TESTS.search(each)]
    if not tests:
        assert page.stem != "testing"
        return
    for number, text in enumerate(tests):
        (tmp_path / f"test_{number}.py").write_text(text, encoding="utf-8")
    known = any(entry.value == PLUGIN for entry in entry_points(group="pytest11"))
    said = _run("-m", "pytest", "-q", *([] if known else ["-p", PLUGIN]), cwd=tmp_path)
    assert f"{sum(each.count('def test_') for each in tests)} passed" in said


def test_every_page_is_in_the_index_and_has_snippets() -> None:
    index = (DOCS / "library" / "index.md").read_text(encoding="utf-8")
    for page in PAGES:
        if page.stem != "index":
            assert f"]({page.name})" in index
            assert _snippets(page)
