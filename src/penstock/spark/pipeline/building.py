"""Checked dataclasses from the plain values of a file; every complaint points at a line.

A pipeline's definition is its dataclass: names, types and defaults are declared there once, and
what a file says that does not fit is refused here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import UTC, date, datetime
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_type_hints

from penstock.spark.pipeline.document import Document, Where

Need = Callable[[bool, Where, str], None]
DURATION = re.compile(r"^\d+ ?(ms|milliseconds?|s|seconds?|m|minutes?|h|hours?|d|days?)$")
NOT_A_TIME = "is not a time such as 2026-11-15T10:00:00Z"
NOT_A_DURATION = "is not a duration such as '5 seconds'"
_ARTICLES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}
_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def default_bootstrap() -> str:
    """As for every command: $PENSTOCK_BOOTSTRAP, else this machine."""
    return os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")


def seconds_of(text: str) -> float:
    """`5 minutes` as seconds; checked with the definition."""
    found = re.fullmatch(r"(\d+) ?([a-z]+)", text)
    assert found is not None, "checked with the definition"
    unit = "ms" if found[2].startswith(("ms", "milli")) else found[2][0]
    return int(found[1]) * _UNITS_S[unit]


def interval(text: str) -> str:
    """A duration in the words that Spark's intervals know: `200 ms` is `200 milliseconds`."""
    found = re.fullmatch(r"(\d+) ?([a-z]+)", text)
    assert found is not None, "checked with the definition"
    units = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    return f"{found[1]} {units.get(found[2], found[2])}"


def local(path: str) -> str:
    """A path that means the same to the JVM and to Spark's workers, wherever they were started."""
    return path if not path or "://" in path else str(Path(path).absolute())


def time_of(text: str) -> datetime | None:
    """2026-11-15T10:00:00Z as a time, in UTC unless it says otherwise; None when it is none."""
    try:
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def check_span(since: str, until: str, need: Need) -> None:
    """Two times, each of which may be missing, in their order."""
    for name, text in (("since", since), ("until", until)):
        need(not text or time_of(text) is not None, (name,), NOT_A_TIME)
    first, last = time_of(since), time_of(until)
    need(first is None or last is None or first < last, ("until",), "is not after since")


def is_pattern(text: str) -> bool:
    """Whether it is a regular expression."""
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def check_bootstrap(text: str, where: Where, need: Need) -> None:
    """HOST:PORT, or several of them."""
    for place in text.split(","):
        host, _, port = place.strip().rpartition(":")
        need(bool(host) and port.isdecimal(), where, f"{place.strip()!r} is not HOST:PORT")


def needing(document: Document) -> Need:
    """need(good, where, words): complain about `where` unless it is good."""

    def need(good: bool, where: Where, words: str) -> None:
        if not good:
            raise document.complaint(where, words)

    return need


def build(kind: Any, values: Any, where: Where, document: Document) -> Any:
    """A dataclass from a table: unknown and missing names, and wrong types, are complaints."""
    if not isinstance(values, dict):
        raise document.complaint(where, "must be a table")
    hints = get_type_hints(kind)
    known = {one.name: one for one in fields(kind)}
    for name in values:
        if name not in known:
            near = ", ".join(known)
            raise document.complaint((*where, name), f"is unknown here; known are {near}")
    for name, one in known.items():
        required = one.default is MISSING and one.default_factory is MISSING
        if required and name not in values:
            raise document.complaint(where, f"{name} is missing")
    made = {
        name: _value(hints[name], value, (*where, name), document) for name, value in values.items()
    }
    return kind(**made)


def _value(hint: Any, value: Any, where: Where, document: Document) -> Any:
    if isinstance(hint, UnionType):
        hint = next(part for part in get_args(hint) if part is not type(None))
    if isinstance(hint, type) and hasattr(hint, "__dataclass_fields__"):
        return build(hint, value, where, document)
    if getattr(hint, "__origin__", None) is list:
        if not isinstance(value, list):
            raise document.complaint(where, "must be a list")
        (inner,) = get_args(hint)
        return [_value(inner, item, (*where, at), document) for at, item in enumerate(value)]
    if getattr(hint, "__origin__", None) is dict:
        if not isinstance(value, dict):
            raise document.complaint(where, "must be a table")
        for key, item in value.items():
            if isinstance(item, dict | list):
                raise document.complaint((*where, key), "is not a plain value")
        return {str(key): _option(item) for key, item in value.items()}
    if hint is float and isinstance(value, int):
        value = float(value)
    if hint is str and isinstance(value, date):  # a time without quotes
        value = value.isoformat()
    if type(value) is not hint:
        raise document.complaint(where, f"{value!r} is not {_ARTICLES[hint]}")
    return value


def _option(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
