"""The database's half of an outbox: the rows to be moved, and one row of ours that says how far.

Our row has the owner, who alone may change it; the number of the batch that was claimed last; and
the ids of its rows, an empty list when they are deleted.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.client.errors import Fenced, InvalidArgument, NotFound
from penstock.sql.database import Cursor, Database, Dialect, table_needed

_RELAYS = "penstock_outbox_relays"
_CREATE_RELAYS = """CREATE TABLE IF NOT EXISTS {relays} (
    name TEXT PRIMARY KEY, owner TEXT NOT NULL, batch BIGINT NOT NULL, ids TEXT NOT NULL)"""
_CREATE_TABLE = """CREATE TABLE IF NOT EXISTS {{table}} (
    {{id}} {number}, {{topic}} TEXT NOT NULL, {{key}} {bytes}, {{payload}} {bytes},
    {{headers}} TEXT, created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP)"""
_TAKE_OVER = (
    "INSERT INTO {relays} (name, owner, batch, ids) VALUES (?, ?, 0, '[]') "
    "ON CONFLICT (name) DO UPDATE SET owner = excluded.owner"
)


@dataclass(frozen=True, slots=True)
class Columns:
    """How the columns are called. A table without one of them says None."""

    id: str = "id"
    topic: str | None = "topic"
    payload: str = "payload"
    key: str | None = "key"
    headers: str | None = "headers"


class Row(NamedTuple):
    """One message to be."""

    id: Any
    payload: bytes | str | None
    topic: str | None
    key: bytes | None
    headers: dict[str, Any] | None


class OutboxTable:
    """The rows of one outbox, as one owner sees them."""

    def __init__(
        self, database: Database, name: str, table: str, columns: Columns, owner: str
    ) -> None:
        self._database = database
        self._name = name
        self._table = table
        self._columns = columns
        self._owner = owner

    def __repr__(self) -> str:
        return f"<OutboxTable {self._table} of {self._name}>"

    def create(self) -> None:
        """Create the table of the rows, and ours, if they are not there."""
        dialect, columns = self._database.dialect, self._columns
        made = _CREATE_TABLE.format(number=dialect.number, bytes=dialect.bytes)
        with self._database.transaction() as cursor:
            cursor.execute(dialect.statement(_CREATE_RELAYS, relays=_RELAYS))
            cursor.execute(
                dialect.statement(
                    made,
                    table=self._table,
                    id=columns.id,
                    topic=columns.topic or "topic",
                    key=columns.key or "key",
                    payload=columns.payload,
                    headers=columns.headers or "headers",
                )
            )

    def insert(self, connection: Any, values: tuple[Any, Any, Any, Any]) -> None:
        """Write topic, payload, key and headers in the transaction of the user's connection."""
        columns = self._columns
        if columns.topic is None or columns.key is None or columns.headers is None:
            raise InvalidArgument(f"table {self._table} is your own: insert the row yourself")
        words = "INSERT INTO {table} ({topic}, {payload}, {key}, {headers}) VALUES (?, ?, ?, ?)"
        statement = self._words(Dialect(connection), words)
        with table_needed(self._table, "create_tables"), closing(connection.cursor()) as cursor:
            cursor.execute(statement, values)

    def take_over(self) -> None:
        """From here on whoever moved the rows before can claim and finish none."""
        statement = self._database.dialect.statement(_TAKE_OVER, relays=_RELAYS)
        with table_needed(_RELAYS, "create_tables"), self._database.transaction() as cursor:
            cursor.execute(statement, (self._name, self._owner))

    def check_owner(self) -> None:
        """`Fenced` when somebody has taken over from us."""
        with self._database.transaction() as cursor:
            self._state(cursor)

    def has_rows(self) -> bool:
        """Whether there is anything to move; `Fenced` when it is not ours any more."""
        with self._database.transaction() as cursor:
            self._state(cursor)
            cursor.execute(self._sql("SELECT 1 FROM {table} LIMIT 1"))
            return cursor.fetchone() is not None

    def claim(self, published: int, limit: int) -> tuple[int, list[Row]]:
        """The batch to publish: one that was claimed and not published, or a new one."""
        with self._database.transaction() as cursor:
            batch, ids = self._state(cursor)
            if batch <= published:
                self._delete(cursor, ids)
            elif rows := self._read(cursor, ids):
                return batch, rows
            batch = max(batch, published) + 1
            cursor.execute(self._sql("SELECT {id} FROM {table} ORDER BY {id} LIMIT ?"), (limit,))
            ids = [each for (each,) in cursor.fetchall()]
            self._write_state(cursor, batch, ids)
            return batch, self._read(cursor, ids)

    def finish(self) -> None:
        """The claimed rows are published: delete them."""
        with self._database.transaction() as cursor:
            batch, ids = self._state(cursor)
            self._delete(cursor, ids)
            self._write_state(cursor, batch, [])

    # --- within a transaction ---------------------------------------------------------------------

    def _state(self, cursor: Cursor) -> tuple[int, list[Any]]:
        """Our row, which nobody else changes until the end of the transaction."""
        dialect = self._database.dialect
        words = "SELECT owner, batch, ids FROM {relays} WHERE name = ?" + dialect.for_update
        cursor.execute(dialect.statement(words, relays=_RELAYS), (self._name,))
        found = cursor.fetchone()
        if found is None:
            raise NotFound(f"the row of {self._name} in {_RELAYS} is gone")
        owner, batch, ids = found
        if owner != self._owner:
            raise Fenced(f"the outbox {self._name} is moved by somebody else now")
        return int(batch), json.loads(ids)

    def _write_state(self, cursor: Cursor, batch: int, ids: Sequence[Any]) -> None:
        words = "UPDATE {relays} SET batch = ?, ids = ? WHERE name = ?"
        cursor.execute(
            self._database.dialect.statement(words, relays=_RELAYS),
            (batch, json.dumps(ids, default=str), self._name),
        )

    def _delete(self, cursor: Cursor, ids: Sequence[Any]) -> None:
        if ids:
            marks = ", ".join("?" * len(ids))
            cursor.execute(self._sql(f"DELETE FROM {{table}} WHERE {{id}} IN ({marks})"), ids)

    def _read(self, cursor: Cursor, ids: Sequence[Any]) -> list[Row]:
        if not ids:
            return []
        columns = self._columns
        wanted = [
            f"{{{name}}}" if getattr(columns, name) else "NULL"
            for name in ("id", "payload", "topic", "key", "headers")
        ]
        marks = ", ".join("?" * len(ids))
        words = f"SELECT {', '.join(wanted)} FROM {{table}} WHERE {{id}} IN ({marks})"
        cursor.execute(self._sql(words + " ORDER BY {id}"), ids)
        return [
            Row(row_id, _content(payload), topic, _key(key), _headers(headers))
            for row_id, payload, topic, key, headers in cursor.fetchall()
        ]

    def _sql(self, words: str) -> str:
        return self._words(self._database.dialect, words)

    def _words(self, dialect: Dialect, words: str) -> str:
        columns = self._columns
        names = {name: getattr(columns, name) for name in columns.__slots__}
        used = {name: column for name, column in names.items() if column is not None}
        return dialect.statement(words, table=self._table, **used)


def _content(payload: Any) -> bytes | str | None:
    """A payload as a driver gives it; JSON columns come as objects."""
    if payload is None or isinstance(payload, str | bytes):
        return payload
    if isinstance(payload, memoryview | bytearray):
        return bytes(payload)
    return json.dumps(payload)


def _key(key: Any) -> bytes | None:
    if key is None:
        return None
    return bytes(key) if isinstance(key, bytes | bytearray | memoryview) else str(key).encode()


def _headers(headers: Any) -> dict[str, Any] | None:
    if headers is None or isinstance(headers, dict):
        return headers
    found = json.loads(headers)
    return found if isinstance(found, dict) else None
