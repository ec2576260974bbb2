"""Every refusal of the broker has a place in the library's small tree."""

from __future__ import annotations

import inspect

import pytest

import penstock
from penstock import errors
from penstock.client.errors import of_broker_error

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.BrokerError)
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_same_sentence_in_the_librarys_tree(kind: type[errors.BrokerError]) -> None:
    found = of_broker_error(kind("what was wrong"))
    assert isinstance(found, penstock.PenstockError)
    assert not isinstance(found, errors.BrokerError)
    assert str(found) == "what was wrong"


def test_errors_are_what_python_programmers_expect_too() -> None:
    assert issubclass(penstock.InvalidArgument, ValueError)
    assert issubclass(penstock.TimedOut, TimeoutError)
    assert issubclass(penstock.DataDirectoryInUse, penstock.PenstockError)
