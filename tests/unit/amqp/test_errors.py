"""Every error of the broker has an AMQP reply code."""

from __future__ import annotations

import inspect

import pytest

from penstock import errors
from penstock.amqp.errors import REPLY_CODES, amqp_error
from penstock.wire.amqp import codes

ALL = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.BrokerError)
]


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_has_a_code(kind: type[errors.BrokerError]) -> None:
    failure = amqp_error(kind("what was wrong"), (50, 10))
    assert failure.code in codes.NAMES
    assert failure.reply_text == f"{codes.NAMES[failure.code]} - what was wrong"
    assert failure.method == (50, 10)


@pytest.mark.parametrize(
    ("kind", "code", "ends_connection"),
    [
        (errors.NotFound, 404, False),
        (errors.AccessRefused, 403, False),
        (errors.ResourceLocked, 405, False),
        (errors.PreconditionFailed, 406, False),
        (errors.NotAllowed, 530, True),
        (errors.StorageError, 506, True),
        (errors.CoordinatorLoading, 541, True),
    ],
)
def test_the_errors_of_queues_have_the_codes_of_rabbitmq(
    kind: type[errors.BrokerError], code: int, ends_connection: bool
) -> None:
    failure = amqp_error(kind("x"), (0, 0))
    assert (failure.code, failure.ends_connection) == (code, ends_connection)


def test_no_code_stands_for_nothing() -> None:
    assert all(code in codes.NAMES for code in REPLY_CODES.values())
