"""The examples in the docstrings of `penstock.sql` say the truth."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module

import pytest

import penstock.sql

MODULES = [found.name for found in pkgutil.iter_modules(penstock.sql.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module(name: str) -> None:
    assert doctest.testmod(import_module(f"penstock.sql.{name}")).failed == 0
