"""Virtual hosts, users, exchanges, queues, bindings and policies in the SQLite catalogue.

Arguments are JSON, for people who look with SQLite's tools. What JSON cannot say (bytes, decimals,
timestamps) makes the whole table of arguments an AMQP field table in hexadecimal instead.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from penstock.catalogue.messaging import (
    BindingRow,
    ExchangeRow,
    MessagingContents,
    PermissionRow,
    PolicyRow,
    QueueRow,
    Row,
    UserRow,
    VhostRow,
)
from penstock.catalogue.sqlite import SqliteCatalogue, from_timestamp, to_timestamp
from penstock.model.binding import Binding, Destination
from penstock.model.field_table import decode_table, encode_table

_FIELD_TABLE = "field-table"  # the key under which arguments that are not JSON are kept

_TABLES: Mapping[type[Row], tuple[str, tuple[str, ...]]] = {  # table, columns of the key
    VhostRow: ("vhosts", ("name",)),
    UserRow: ("users", ("name",)),
    PermissionRow: ("permissions", ("user", "vhost")),
    ExchangeRow: ("exchanges", ("vhost", "name")),
    QueueRow: ("queues", ("vhost", "name")),
    BindingRow: (
        "bindings",
        ("vhost", "source", "destination", "destination_kind", "routing_key", "arguments"),
    ),
    PolicyRow: ("policies", ("vhost", "name")),
}


class SqliteMessagingCatalogue:
    """The rows of AMQP's world, in the file of a `SqliteCatalogue`."""

    def __init__(self, catalogue: SqliteCatalogue) -> None:
        self._catalogue = catalogue

    def __repr__(self) -> str:
        return f"SqliteMessagingCatalogue({self._catalogue!r})"

    async def load(self) -> MessagingContents:
        return await self._catalogue.do(_load)

    async def put(self, *rows: Row) -> None:
        statements = [_put(row) for row in rows]
        await self._catalogue.do(_all(statements))

    async def delete(self, *rows: Row) -> None:
        statements = [_delete(row) for row in rows]
        await self._catalogue.do(_all(statements))

    async def delete_vhost(self, name: str) -> None:
        tables = ("permissions", "exchanges", "queues", "bindings", "policies")
        statements = [(f"DELETE FROM {table} WHERE vhost = ?", (name,)) for table in tables]
        statements.append(("DELETE FROM vhosts WHERE name = ?", (name,)))
        await self._catalogue.do(_all(statements))

    async def delete_user(self, name: str) -> None:
        await self._catalogue.do(
            _all(
                [
                    ("DELETE FROM permissions WHERE user = ?", (name,)),
                    ("DELETE FROM users WHERE name = ?", (name,)),
                ]
            )
        )


_Statement = tuple[str, tuple[Any, ...]]


def _all(statements: list[_Statement]) -> Callable[[sqlite3.Connection], None]:
    def work(db: sqlite3.Connection) -> None:
        for statement, values in statements:
            db.execute(statement, values).close()

    return work


def _put(row: Row) -> _Statement:
    values = _values(row)
    places = ", ".join("?" * len(values))
    return f"INSERT OR REPLACE INTO {_TABLES[type(row)][0]} VALUES ({places})", values


def _delete(row: Row) -> _Statement:
    table, key = _TABLES[type(row)]
    where = " AND ".join(f"{column} = ?" for column in key)
    # The columns of the key come first in every table.
    return f"DELETE FROM {table} WHERE {where}", _values(row)[: len(key)]


def _values(row: Row) -> tuple[Any, ...]:
    match row:
        case VhostRow(name, created_at_ms):
            return name, to_timestamp(created_at_ms)
        case UserRow(name, password, tags):
            return name, password, " ".join(tags)
        case ExchangeRow() | QueueRow():
            return (*row[:-1], _arguments_text(row.arguments))
        case BindingRow(vhost, (source, destination, routing_key, arguments)):
            kind = "exchange" if destination.is_exchange else "queue"
            text = _arguments_text(decode_table(arguments))
            return vhost, source, destination.name, kind, routing_key, text
        case PolicyRow():
            definition = json.dumps(dict(row.definition), sort_keys=True)
            return (*row[:3], definition, *row[4:])
    return tuple(row)


def _load(db: sqlite3.Connection) -> MessagingContents:
    shared: dict[str, Mapping[str, object]] = {}  # queues with equal arguments

    def arguments(text: str) -> Mapping[str, object]:
        found = shared.get(text)
        if found is None:
            found = shared[text] = _arguments(text)
        return found

    rows = {table: db.execute(f"SELECT * FROM {table}") for table, _ in _TABLES.values()}
    return MessagingContents(
        [VhostRow(name, from_timestamp(created)) for name, created in rows["vhosts"]],
        [UserRow(name, word, tuple(tags.split())) for name, word, tags in rows["users"]],
        [PermissionRow(*values) for values in rows["permissions"]],
        [
            ExchangeRow(vhost, name, kind, bool(a), bool(b), bool(c), arguments(text))
            for vhost, name, kind, a, b, c, text in rows["exchanges"]
        ],
        [
            QueueRow(vhost, name, topic, bool(a), bool(b), bool(c), bool(d), arguments(text))
            for vhost, name, topic, a, b, c, d, text in rows["queues"]
        ],
        [
            BindingRow(
                vhost,
                Binding.of(source, Destination(name, kind == "exchange"), key, arguments(text)),
            )
            for vhost, source, name, kind, key, text in rows["bindings"]
        ],
        [
            PolicyRow(vhost, name, pattern, json.loads(definition), priority, apply_to)
            for vhost, name, pattern, definition, priority, apply_to in rows["policies"]
        ],
    )


def _arguments_text(arguments: Mapping[str, object]) -> str:
    plain = dict(arguments)
    table = encode_table(plain)
    try:
        text = json.dumps(plain, ensure_ascii=False, sort_keys=True)
        if encode_table(dict(json.loads(text))) == encode_table(dict(sorted(plain.items()))):
            text.encode()
            return text
    except (TypeError, ValueError):
        pass
    return json.dumps({_FIELD_TABLE: table.hex()})


def _arguments(text: str) -> Mapping[str, object]:
    found: dict[str, object] = json.loads(text)
    table = found.get(_FIELD_TABLE)
    return decode_table(bytes.fromhex(table)) if isinstance(table, str) else found
