"""Databases of users: SQLite and PostgreSQL, both real."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Client
from support.naming import unique
from support.postgres import Postgres

Connect = Callable[[], Any]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    server = Postgres()
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def connect(request: pytest.FixtureRequest, tmp_path: Path) -> Connect:
    """connect() is a new connection to a database of the test's own."""
    if request.param == "sqlite":
        return partial(sqlite3.connect, tmp_path / "app.db", timeout=60)
    server: Postgres = request.getfixturevalue("postgres")
    name = unique("db")
    server.create_database(name)
    return partial(server.connect, name)


@pytest.fixture(params=["in-process", "network"])
def mq(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    if request.param == "in-process":
        client: Client = penstock.open(tmp_path / "data")
    else:
        client = penstock.connect(request.getfixturevalue("broker").bootstrap)
    with client:
        yield client
