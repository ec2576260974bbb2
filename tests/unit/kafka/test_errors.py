"""The table from our errors to Kafka's codes is total and right."""

from __future__ import annotations

import inspect

import pytest
from kio.schema.errors import ErrorCode

from penstock import errors
from penstock.kafka import errors as codes

BROKER_ERRORS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.BrokerError) and kind is not errors.BrokerError
]
CONSTANTS = {
    name: value for name, value in vars(codes).items() if name.isupper() and isinstance(value, int)
}


@pytest.mark.parametrize("kind", BROKER_ERRORS, ids=lambda kind: kind.__name__)
def test_every_broker_error_has_a_code(kind: type[errors.BrokerError]) -> None:
    assert codes.error_code(kind("because")) != codes.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_code_is_the_protocols_number(name: str) -> None:
    assert ErrorCode[name.lower()].value == CONSTANTS[name]


def test_a_failure_that_is_not_ours_is_an_unknown_server_error() -> None:
    assert codes.error_code(RuntimeError("x")) == codes.UNKNOWN_SERVER_ERROR


def test_a_refused_access_names_the_resource_it_was_refused_to() -> None:
    assert codes.error_code(errors.AccessDenied("no", "group")) == codes.GROUP_AUTHORIZATION_FAILED
