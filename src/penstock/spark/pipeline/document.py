"""A TOML or YAML file as plain values, with the line of every one of them.

Only for messages: `lines` maps a path such as ("sink", "path") or ("quality", 1, "rule") to the
line where it stands.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from penstock.spark.errors import SparkConnectorError

Where = tuple[str | int, ...]
_TABLE = re.compile(r"^\s*(\[\[?)\s*([A-Za-z0-9_.\-\" ]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_\-\"]+)\s*=")


class PipelineInvalid(SparkConnectorError):
    """A pipeline file that cannot be run, with the place."""


class Document(NamedTuple):
    """What a file says, and where it says it."""

    name: str
    values: dict[str, Any]
    lines: dict[Where, int]

    def complaint(self, where: Where, words: str) -> PipelineInvalid:
        """An error that points at the line of `where`, or of what it would stand in."""
        place = where
        while place and place not in self.lines:
            place = place[:-1]
        line = self.lines.get(place, 1)
        path = ".".join(str(part) for part in where)
        return PipelineInvalid(f"{self.name}:{line}: {path}: {words}" if path else
                               f"{self.name}:{line}: {words}")  # fmt: skip


def read_document(path: Path) -> Document:
    """Parse a file by its ending."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as failure:
        raise PipelineInvalid(f"{path}: cannot be read ({failure.strerror})") from None
    except UnicodeDecodeError as failure:
        before = failure.object.count(b"\n", 0, failure.start)
        raise PipelineInvalid(f"{path.name}:{before + 1}: is not text in UTF-8") from None
    if path.suffix in (".yaml", ".yml"):
        return _yaml(path.name, text)
    try:
        return Document(path.name, tomllib.loads(text), _toml_lines(text))
    except tomllib.TOMLDecodeError as failure:
        place = re.search(r"line (\d+)", str(failure))
        line = place[1] if place else "1"
        raise PipelineInvalid(f"{path.name}:{line}: {failure}") from None


def _toml_lines(text: str) -> dict[Where, int]:
    lines: dict[Where, int] = {}
    table: Where = ()
    counts: dict[Where, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if found := _TABLE.match(line):
            table = tuple(part.strip().strip('"') for part in found[2].split("."))
            if found[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                lines.setdefault(table, number)
                table = (*table, counts[table])
            lines[table] = number
        elif found := _KEY.match(line):
            lines[(*table, found[1].strip('"'))] = number
    return lines


def _yaml(name: str, text: str) -> Document:
    import yaml

    lines: dict[Where, int] = {}

    def walk(node: Any, where: Where) -> None:
        lines.setdefault(where, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if (*where, key.value) in lines:
                    line = key.start_mark.line + 1
                    raise PipelineInvalid(f"{name}:{line}: {key.value}: is there twice")
                lines[(*where, key.value)] = key.start_mark.line + 1
                walk(value, (*where, key.value))
        elif isinstance(node, yaml.SequenceNode):
            for at, value in enumerate(node.value):
                walk(value, (*where, at))

    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        values = yaml.safe_load(text)
    except yaml.MarkedYAMLError as failure:
        line = failure.problem_mark.line + 1 if failure.problem_mark else 1
        raise PipelineInvalid(f"{name}:{line}: {failure.problem}") from None
    except yaml.YAMLError as failure:
        raise PipelineInvalid(f"{name}:1: {str(failure).splitlines()[0]}") from None
    if not isinstance(values, dict):
        raise PipelineInvalid(f"{name}:1: a pipeline is a mapping of source, sink and the rest")
    walk(tree, ())
    return Document(name, values, lines)
