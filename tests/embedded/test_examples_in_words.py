"""The examples in the docstrings of `penstock.embedded` say the truth."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import penstock.embedded

MODULES = [found.name for found in pkgutil.iter_modules(penstock.embedded.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module(name: str) -> None:
    result = doctest.testmod(import_module(f"penstock.embedded.{name}"))
    assert result.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    found = [
        test
        for name in MODULES
        for test in finder.find(import_module(f"penstock.embedded.{name}"))
        if test.examples
    ]
    assert len(found) >= 8
