"""Data to standard output, in the form that its reader wants."""

from __future__ import annotations

import json

import pytest

from penstock.cli.output import emit_json, emit_table, human_bytes


def test_a_table_in_a_pipe_is_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    emit_table(("name", "count"), [("a", 1), ("longer", 12_345)])
    assert capsys.readouterr().out.splitlines() == [
        "NAME    COUNT",
        "a           1",
        "longer  12345",
    ]


def test_an_empty_cell_leaves_no_space_behind(capsys: pytest.CaptureFixture[str]) -> None:
    emit_table(("name", "member"), [("a", None)])
    assert capsys.readouterr().out == "NAME  MEMBER\na\n"


def test_json_in_a_pipe_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    emit_json({"name": "é", "list": [1, 2]})
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert json.loads(out) == {"name": "é", "list": [1, 2]}


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**40, "1.0 TiB")]
)
def test_bytes_are_shown_in_the_unit_that_fits(count: int, text: str) -> None:
    assert human_bytes(count) == text
