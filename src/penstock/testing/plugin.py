"""Pytest's fixtures. They are there as soon as Penstock is installed.

    penstock_broker           a fresh broker for each test
    penstock_session_broker   one for the whole run: use names of your own

Options of the broker come from a fixture that you may override: `penstock_broker_options`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from penstock.testing.broker import BrokerForTests


@pytest.fixture
def penstock_broker_options() -> dict[str, Any]:
    """Options of the broker that `penstock_broker` starts: override it in your tests."""
    return {}


@pytest.fixture
def penstock_broker(penstock_broker_options: dict[str, Any]) -> Iterator[BrokerForTests]:
    """A fresh broker, ready and empty."""
    from penstock.testing.broker import BrokerForTests  # only those who use it pay for it

    with BrokerForTests(**penstock_broker_options) as broker:
        yield broker


@pytest.fixture(scope="session")
def penstock_session_broker() -> Iterator[BrokerForTests]:
    """One broker for the whole run."""
    from penstock.testing.broker import BrokerForTests

    with BrokerForTests() as broker:
        yield broker
