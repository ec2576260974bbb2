"""A transactional outbox: an order and its event are both there, or neither is.

SQLite here; with `connect = lambda: psycopg.connect(...)` the same on PostgreSQL.
"""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import penstock
from penstock.sql import Inbox, Outbox


def main(directory: Path) -> None:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(directory / "shop.db")

    with penstock.open(directory / "broker") as mq, Outbox(mq, connect) as outbox:
        outbox.create_tables()
        with closing(connect()) as database:
            database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
            database.execute("CREATE TABLE bills (order_id INTEGER)")
            for number, item in enumerate(["apple", "pear", "house"]):
                with database:  # one transaction
                    database.execute("INSERT INTO orders VALUES (?, ?)", (number, item))
                    outbox.add(database, "orders", {"id": number}, serializer="json")
                    if item == "house":
                        database.rollback()  # neither the order nor its event
        print("published:", outbox.move())

        # Whoever bills remembers in the same database which messages are billed already.
        with Inbox(connect, "billing") as inbox:
            inbox.create_table()
            for message in [*_read(mq), *_read(mq)]:  # all of them come twice
                order = message.json()["id"]
                inbox.handle(
                    message, lambda db, id=order: db.execute("INSERT INTO bills VALUES (?)", (id,))
                )
        with closing(connect()) as database:
            print("bills:", database.execute("SELECT * FROM bills ORDER BY 1").fetchall())


def _read(mq: penstock.Client) -> list[penstock.Message]:
    with mq.subscribe("orders", idle_timeout=0.5) as messages:
        return list(messages)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory))
