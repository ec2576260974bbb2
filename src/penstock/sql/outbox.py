"""Rows of a table in the user's database become messages, each exactly once.

The application writes a row in the transaction that changes its own data, so that there is never
one without the other. The outbox moves the rows, batch by batch:

    1. database   claim    the ids of some rows, and the number of the batch, in one row of ours
    2. broker     publish  the rows and, on a topic of ours, the number; in one transaction
    3. database   finish   delete the rows

Whoever dies between two steps is followed by somebody who reads the number on our topic. If it is
the claimed one, the batch was published, and step 3 is left to do; if not, it was not, and steps 2
and 3 are. Both happen again with the same rows.

Two who move the same rows at the same time would undo that. So whoever begins writes its name into
our row, after which the one before can claim and finish no more; and begins a transaction with the
same id at the broker, after which the one before can commit none. Only then it reads the number.
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.client.arguments import check_text
from penstock.client.errors import (
    AlreadyExists,
    Fenced,
    InvalidArgument,
    TransactionAborted,
    in_our_words,
)
from penstock.client.message import key_bytes
from penstock.client.properties import write_headers
from penstock.client.serializer import Serializer, find_serializer, payload_bytes
from penstock.client.sync import Client
from penstock.client.transaction import Transaction
from penstock.model.topic import check_topic_name
from penstock.sql.database import Connect, Database
from penstock.sql.outbox_table import Columns, OutboxTable, Row

if TYPE_CHECKING:
    from penstock.client.aio import AsyncClient

log = logging.getLogger("penstock")

_TRIES = 3


class Outbox:
    """Moves rows of a table into topics.

    >>> import sqlite3, tempfile, penstock
    >>> from contextlib import closing
    >>> file = tempfile.NamedTemporaryFile(suffix=".db")
    >>> connect = lambda: sqlite3.connect(file.name)
    >>> with penstock.open(None) as mq, Outbox(mq, connect) as outbox:
    ...     outbox.create_tables()
    ...     with closing(connect()) as database, database:        # one transaction of yours
    ...         _ = database.execute("CREATE TABLE orders (id INTEGER)")
    ...         _ = database.execute("INSERT INTO orders VALUES (7)")
    ...         outbox.add(database, "orders", {"id": 7}, key="user-1", serializer="json")
    ...     outbox.move()
    ...     next(mq.subscribe("orders")).json()
    1
    {'id': 7}
    """

    def __init__(
        self,
        mq: Client | AsyncClient,
        connect: Connect,
        *,
        table: str = "outbox",
        columns: Columns | None = None,
        topic: str | None = None,
        name: str | None = None,
        batch_size: int = 500,
    ) -> None:
        """`connect` gives a new connection to the database: `lambda: sqlite3.connect("app.db")`.

        `table` may be one of yours, with other `columns`; without a column for it, `topic` is where
        all of it goes. `name` tells this outbox from others on the same broker; the table's by
        default.
        """
        if batch_size < 1:
            raise InvalidArgument(f"batch_size is 1 or more, not {batch_size}")
        self.columns = columns or Columns()
        if (self.columns.topic is None) == (topic is None):
            raise InvalidArgument("give either a column with the topic, or a topic for all rows")
        self.name = name or table
        for wanted in (None if name is None else self.progress_topic, topic):
            if wanted is not None:
                _check_topic(wanted)
        self._mq = mq if isinstance(mq, Client) else mq._client
        self._table = table
        self._topic = topic
        self._batch_size = batch_size
        self._database = Database(connect)
        self._rows = OutboxTable(
            self._database, self.name, table, self.columns, owner=str(uuid.uuid4())
        )
        self._has_taken_over = False
        self._published: int | None = None  # the last batch that is; None: to be found out
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        return f"<Outbox {self.name} of {self._table}>"

    @property
    def progress_topic(self) -> str:
        """Our topic: it has the number of the last batch published."""
        return f"penstock.outbox.{self.name}"

    # --- writing rows -----------------------------------------------------------------------------

    def create_tables(self) -> None:
        """Create the table of the rows, and ours, if they are not there."""
        self._rows.create()

    def add(
        self,
        connection: Any,
        topic: str,
        payload: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        serializer: Serializer | str | None = None,
    ) -> None:
        """Write a row, in the transaction that is open on your `connection`. You commit it.

        What could never be published is refused here: in the table it would hold up all others.
        """
        _check_topic(topic)
        write_headers(headers)
        body = payload_bytes(payload, find_serializer(serializer))
        told = None if headers is None else _as_json(headers)
        self._rows.insert(connection, (topic, body, key_bytes(key), told))

    # --- moving them ------------------------------------------------------------------------------

    def move(self) -> int:
        """Move the rows that are there; how many. `Fenced` when somebody else has taken over.

        The first call of an outbox takes over from whoever moved the rows before.
        """
        moved = 0
        with self._lock:
            while count := self._move_batch():
                moved += count
                if count < self._batch_size:
                    break
        return moved

    def _move_batch(self) -> int:
        for _ in range(_TRIES):
            try:
                return self._move_next()
            except (Fenced, TransactionAborted):
                self._published = None
                self._rows.check_owner()
                # The rows are ours, so it was only a last sign of life of the one before.
            except BaseException:
                self._published = None  # who knows how far it came: the next time finds out
                raise
        raise Fenced(f"the outbox {self.name} is moved by somebody else, too")

    def _move_next(self) -> int:
        if not self._has_taken_over:
            self._rows.take_over()
            self._has_taken_over = True
        elif self._published is not None and not self._rows.has_rows():
            return 0
        transaction = self._mq.transaction(f"penstock-outbox-{self.name}")
        with transaction:
            if self._published is None:
                self._published = self._last_published()
            batch, rows = self._rows.claim(self._published, self._batch_size)
            if not rows:
                transaction.abort()
                return 0
            self._publish(transaction, batch, rows)
        self._published = batch
        self._rows.finish()
        return len(rows)

    def _publish(self, transaction: Transaction, batch: int, rows: Sequence[Row]) -> None:
        for row in rows:
            topic = self._topic or str(row.topic)
            try:
                _check_topic(topic)
                transaction.send(
                    topic,
                    row.payload,
                    key=row.key,
                    headers=row.headers,
                    message_id=f"{self.name}-{row.id}",
                )
            except InvalidArgument as failure:
                raise InvalidArgument(
                    f"row {row.id} of {self._table} cannot be published: {failure}"
                ) from failure
        transaction.send(self.progress_topic, str(batch), key=self.name, partition=0)

    def _last_published(self) -> int:
        """The number on our topic, 0 when there is none yet."""
        topic = self.progress_topic
        try:
            self._mq.admin.create_topic(topic, partitions=1, config={"cleanup.policy": "compact"})
            return 0
        except AlreadyExists:
            (partition,) = self._mq.admin.topic(topic).partitions
        back = 64
        while True:  # the last number is near the end, but ends of transactions take offsets too
            start = max(partition.start_offset, partition.end_offset - back)
            numbers = [int(message.text) for message in self._mq.read(topic, 0, start)]
            if numbers:
                return numbers[-1]
            if start == partition.start_offset:
                return 0
            back *= 16

    # --- in the background ------------------------------------------------------------------------

    def start(self, interval: float = 0.5) -> None:
        """Move rows as they come, in a thread: look every `interval` seconds.

        It goes on through failures of the broker and the database, and ends when another process
        has taken over.

        >>> import sqlite3, tempfile, penstock
        >>> file = tempfile.NamedTemporaryFile(suffix=".db")
        >>> connect = lambda: sqlite3.connect(file.name)
        >>> with penstock.open(None) as mq, Outbox(mq, connect) as outbox:
        ...     outbox.create_tables()
        ...     outbox.start()
        ...     print(outbox.is_running)
        ...     outbox.stop()
        True
        """
        if self._thread is not None and self._thread.is_alive():
            return
        self._stopping.clear()
        self._thread = threading.Thread(
            target=self._run, args=(interval,), name=f"outbox-{self.name}", daemon=True
        )
        self._thread.start()

    def _run(self, interval: float) -> None:
        try:
            while not self._stopping.is_set():
                pause = interval
                try:
                    self.move()
                except Fenced as taken_over:
                    log.error("%r stops: %s", self, taken_over)
                    return
                except Exception as failure:
                    if self._mq.is_closed:
                        return
                    log.warning("%r waits: %s", self, failure)
                    self._database.close()
                    pause = max(interval, 1.0)
                self._stopping.wait(pause)
        finally:
            self._database.close()

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """End the thread; what is being moved is moved first."""
        self._stopping.set()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def close(self) -> None:
        """Stop, and close the connection to the database."""
        self.stop()
        self._database.close()

    def __enter__(self) -> Outbox:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _check_topic(name: str) -> None:
    check_text(name, "a topic")
    with in_our_words():
        check_topic_name(name)


def _as_json(headers: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(headers))
    except TypeError:
        raise InvalidArgument(f"headers of a row are texts or numbers, not {headers!r}") from None
