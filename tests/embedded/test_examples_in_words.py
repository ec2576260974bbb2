"""The examples in the docstrings of `penstock.embedded` and `penstock.sql`: true, and of all."""

from __future__ import annotations

import doctest
import inspect
import pkgutil
from importlib import import_module
from typing import Any

import pytest

import penstock.embedded
import penstock.sql

PACKAGES = (penstock.embedded, penstock.sql)
MODULES = [
    f"{package.__name__}.{found.name}"
    for package in PACKAGES
    for found in pkgutil.iter_modules(package.__path__)
]
CLASSES = [
    thing
    for package in PACKAGES
    for name in package.__all__
    if inspect.isclass(thing := getattr(package, name)) and not issubclass(thing, Exception)
]


def _examples(module: str) -> str:
    found = doctest.DocTestFinder(exclude_empty=True).find(import_module(module))
    return "".join(example.source for test in found for example in test.examples)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_are_true(name: str) -> None:
    assert doctest.testmod(import_module(name)).failed == 0


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_public_call_is_in_an_example(kind: Any) -> None:
    if getattr(kind, "_is_protocol", False):
        return
    shown = _examples(kind.__module__)
    calls = [
        name
        for name in dir(kind)
        if not name.startswith("_")
        and name != "close"  # a `with` block does it
        and inspect.isfunction(call := inspect.getattr_static(kind, name))
        and call.__module__.startswith("penstock")
    ]
    assert [name for name in calls if f".{name}(" not in shown] == []
