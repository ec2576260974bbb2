"""The reference pages are what the code would write today."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def _pages() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: dict[str, str] = module.pages()
    return pages


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return _pages()


@pytest.mark.parametrize(
    "name", ["configuration.md", "topic-settings.md", "commands.md", "kafka-apis.md"]
)
def test_a_page_says_what_the_code_says(pages: dict[str, str], name: str) -> None:
    written = (DOCS / "reference" / name).read_text(encoding="utf-8")
    assert written == pages[name], "run `make docs`"
