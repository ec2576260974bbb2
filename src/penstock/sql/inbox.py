"""The ids of processed messages in the user's own database, so that each message counts once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from penstock.client.arguments import check_text
from penstock.client.errors import InvalidArgument
from penstock.client.message import Message, Seconds, milliseconds
from penstock.sql.database import Connect, Database, Dialect, table_needed

_CREATE = """CREATE TABLE IF NOT EXISTS {table} (
    consumer TEXT NOT NULL, message_id TEXT NOT NULL, processed_ms BIGINT NOT NULL,
    PRIMARY KEY (consumer, message_id))"""
_ADD = (
    "INSERT INTO {table} (consumer, message_id, processed_ms) VALUES (?, ?, ?) "
    "ON CONFLICT (consumer, message_id) DO NOTHING"
)


class Inbox:
    """Processes each message once, however often it is delivered.

    The id of a message is written in the transaction in which the message has its effect: both are
    there or neither is. `consumer` names who processes: each has ids of its own. Two who process
    the same message at the same time wait for each other.

    >>> import sqlite3, tempfile
    >>> from penstock import Message
    >>> file = tempfile.NamedTemporaryFile(suffix=".db")
    >>> with Inbox(lambda: sqlite3.connect(file.name), "billing") as inbox:
    ...     inbox.create_table()
    ...     message = Message(b"order 7", message_id="order-7")
    ...     effects = []
    ...     [inbox.handle(message, lambda database: effects.append(1)) for _ in range(2)], effects
    ([True, False], [1])
    """

    def __init__(self, connect: Connect, consumer: str, *, table: str = "penstock_inbox") -> None:
        """`connect` gives a new connection to the database, as for `Outbox`."""
        check_text(consumer, "a consumer")
        self.consumer = consumer
        self._table = table
        self._database = Database(connect)

    def __repr__(self) -> str:
        return f"<Inbox of {self.consumer} in {self._table}>"

    def create_table(self) -> None:
        """Create the table if it is not there."""
        with self._database.transaction() as cursor:
            cursor.execute(self._database.dialect.statement(_CREATE, table=self._table))

    def handle(self, message: Message, process: Callable[[Any], object]) -> bool:
        """Call `process` with a connection, unless the message was processed.

        What it does with the connection is committed with the id of the message. If it raises,
        nothing is. Returns whether it was called.
        """
        with self._database.transaction():
            connection = self._database.connection()
            if not self.is_first(connection, message):
                return False
            process(connection)
            return True

    def is_first(self, connection: Any, message: Message) -> bool:
        """Whether the message is new, and remember it: for a transaction of your own.

        It is remembered when you commit, and not when you roll back.

        >>> import sqlite3, tempfile
        >>> file = tempfile.NamedTemporaryFile(suffix=".db")
        >>> with Inbox(lambda: sqlite3.connect(file.name), "billing") as inbox:
        ...     inbox.create_table()
        ...     with closing(sqlite3.connect(file.name)) as database, database:
        ...         message = Message(b"order 7", message_id="order-7")
        ...         inbox.is_first(database, message), inbox.is_first(database, message)
        (True, False)
        """
        added = Dialect(connection).statement(_ADD, table=self._table)
        values = (self.consumer, _id(message), time.time_ns() // 1_000_000)
        with table_needed(self._table, "create_table"), closing(connection.cursor()) as cursor:
            cursor.execute(added, values)
            return bool(cursor.rowcount == 1)

    def forget(self, older_than: Seconds) -> int:
        """Forget the ids of long ago; how many. Keep them as long as a message may come again.

        >>> import sqlite3, tempfile
        >>> file = tempfile.NamedTemporaryFile(suffix=".db")
        >>> with Inbox(lambda: sqlite3.connect(file.name), "billing") as inbox:
        ...     inbox.create_table()
        ...     inbox.forget(older_than=7 * 24 * 3600)
        0
        """
        before = time.time_ns() // 1_000_000 - milliseconds(older_than, "older_than")
        dialect = self._database.dialect
        with self._database.transaction() as cursor:
            cursor.execute(
                dialect.statement(
                    "DELETE FROM {table} WHERE consumer = ? AND processed_ms < ?",
                    table=self._table,
                ),
                (self.consumer, before),
            )
            return cursor.rowcount

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def __enter__(self) -> Inbox:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _id(message: Message) -> str:
    if message.properties.message_id is None and message.offset < 0:
        raise InvalidArgument(
            "the message has no id that tells it from others: publish it with a message_id"
        )
    return message.message_id
