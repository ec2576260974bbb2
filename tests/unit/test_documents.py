"""Documents name things that exist: files, functions, other documents."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "penstock"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def _names(file: Path) -> set[str]:
    """Functions, classes and `Class.method` of a module."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{part.name}"
                for part in node.body
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


def test_every_file_it_names_exists() -> None:
    for path in re.findall(r"`([\w/]+\.py)`", TEXT):
        assert (SOURCE / path).exists() or (ROOT / path).exists(), path


def test_every_function_it_names_is_in_the_file_it_names() -> None:
    pairs = re.findall(r"`([\w/]+\.py)`\s+`([\w.]+)`", TEXT)
    assert len(pairs) > 15
    for path, name in pairs:
        assert name in _names(SOURCE / path), f"{path} has no {name}"


def test_every_method_it_names_alone_exists_somewhere() -> None:
    everywhere = set().union(*(_names(file) for file in SOURCE.rglob("*.py")))
    for name in re.findall(r"`([A-Z]\w+\.\w+)`", TEXT):
        assert name in everywhere, name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), target


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_document_it_mentions_exists(document: Path) -> None:
    for name in re.findall(r"`(docs/[\w./-]+|[A-Z]+\.md)`", document.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name
