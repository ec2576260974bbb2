"""The catalogue in one SQLite file, `catalogue.sqlite`, in the data directory.

Writes from all services go to one thread, which takes everything that waits into one transaction:
creating a thousand topics at once costs two syncs, not a thousand. `synchronous=FULL` in WAL mode
makes a returned write safe from a power failure, and lets other programs read meanwhile. After a
failed sync the page cache lies, so it is never tried again: `on_fatal` must end the process. With
`:memory:` nothing is kept and nothing leaves the event loop's thread, so simulation stays exact.

A file that is not ours, damaged, or of a newer version is refused by name and left untouched.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from penstock.catalogue import schema
from penstock.catalogue.catalogue import (
    Contents,
    GroupRow,
    ResourceType,
    Shown,
    TopicRow,
)
from penstock.errors import DataDirectoryDamaged, StorageError
from penstock.model.quota import QuotaEntity
from penstock.model.topic import NO_CONFIG, Topic, topic_id_from_text, topic_id_text

FILE_NAME = "catalogue.sqlite"
_FAILED_SYNCS = (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)
_BUSY_SECONDS = 10.0  # how long another program may hold a lock on the file before we give up

T = TypeVar("T")
_Work = Callable[[sqlite3.Connection], Any]
_Waiter = asyncio.Future[Any]
_Answer = tuple[_Waiter, Any, Exception | None]


class SqliteCatalogue:
    """The SQLite home of a catalogue. Made by `open`; every method but that is async."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        path: str,
        on_fatal: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._connection = connection
        self._path = path
        self._on_fatal = on_fatal
        self._waiting: deque[tuple[_Work, _Waiter]] = deque()
        self._gate = threading.Lock()  # over _waiting and _draining: the loop and the writer thread
        self._draining = False
        self._writer = (
            None if path == ":memory:" else ThreadPoolExecutor(1, thread_name_prefix="catalogue")
        )

    def __repr__(self) -> str:
        return f"SqliteCatalogue({self._path!r})"

    @classmethod
    def open(
        cls, path: Path | str, *, on_fatal: Callable[[BaseException], None] | None = None
    ) -> SqliteCatalogue:
        """Open or create the file (or `:memory:`). Blocks briefly; raises DataDirectoryDamaged."""
        name = str(path)
        connection = None
        try:
            connection = sqlite3.connect(
                name, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            _prepare(connection, name)
        except sqlite3.Error as problem:
            if connection is not None:
                connection.close()
            raise DataDirectoryDamaged(_describe(name, problem)) from problem
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        return cls(connection, name, on_fatal)

    async def load(self) -> Contents:
        try:
            return await self.do(_load)
        except (sqlite3.Error, StorageError, ValueError, TypeError, AttributeError) as problem:
            raise DataDirectoryDamaged(
                f"{self._path} cannot be read: {problem}. Restore it from a backup, or move "
                "the whole directory away to start with no topics."
            ) from problem

    async def put_topics(self, rows: Sequence[TopicRow]) -> None:
        values = [_topic_values(row) for row in rows]
        await self.do(_each(_PUT_TOPIC, values))

    async def show_topics(self, rows: Sequence[TopicRow]) -> None:
        values = [(*row.shown, topic_id_text(row.topic.id)) for row in rows]
        await self.do(_each(_SHOW_TOPIC, values))

    async def delete_topics(self, topic_ids: Collection[uuid.UUID]) -> None:
        ids = [(topic_id_text(topic_id),) for topic_id in topic_ids]
        await self.do(_each("DELETE FROM topics WHERE topic_id = ?", ids))

    async def put_config(
        self, resource: ResourceType, name: str, config: Mapping[str, str]
    ) -> None:
        text = _json(config)
        if config:
            await self.do(_each(_PUT_CONFIG, [(resource, name, text)]))
        else:
            await self.do(_each(_DELETE_CONFIG, [(resource, name)]))

    async def put_quota(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        text = _json(dict(entity))
        rows = [(text, name, value) for name, value in values.items()]

        def replace(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM quotas WHERE entity = ?", (text,))
            db.executemany("INSERT INTO quotas VALUES (?, ?, ?)", rows)

        await self.do(replace)

    async def reserve_producer_ids(self, count: int) -> int:
        assert count > 0

        def reserve(db: sqlite3.Connection) -> int:
            ((end,),) = db.execute(_RESERVE, {"name": "producer_id", "count": count}).fetchall()
            return cast(int, end) - count

        return await self.do(reserve)

    async def put_groups(self, rows: Sequence[GroupRow]) -> None:
        values = [_group_values(row) for row in rows]
        await self.do(_each(_PUT_GROUP, values))

    async def delete_groups(self, group_ids: Collection[str]) -> None:
        ids = [(group_id,) for group_id in group_ids]
        await self.do(_each("DELETE FROM consumer_groups WHERE group_id = ?", ids))

    async def keep_groups(self, group_ids: Collection[str]) -> None:
        await self.do(_each(_KEEP_GROUPS, [(json.dumps(list(group_ids)),)]))

    async def close(self) -> None:
        if self._writer is None:
            self._connection.close()
            return
        # Behind everything that waits: the pool has one thread and keeps order.
        await asyncio.get_running_loop().run_in_executor(self._writer, self._connection.close)
        self._writer.shutdown(wait=False)

    async def do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Have the writer do `work` in its next transaction; returns when that is on disk.

        A caller that is cancelled does not take its work back: others are committed with it.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._writer is None:
            _answer(self._commit([(work, future)]))
            return await future
        with self._gate:
            self._waiting.append((work, future))
            start, self._draining = not self._draining, True
        if start:
            self._writer.submit(self._drain, loop)
        return await future

    def _drain(self, loop: asyncio.AbstractEventLoop) -> None:
        while True:
            with self._gate:
                batch = list(self._waiting)
                self._waiting.clear()
                if not batch:
                    self._draining = False
                    return
            loop.call_soon_threadsafe(_answer, self._commit(batch))

    def _commit(self, batch: list[tuple[_Work, _Waiter]]) -> list[_Answer]:
        """One transaction for the whole batch; a piece that fails undoes only itself."""
        answers: list[_Answer] = []
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for work, waiter in batch:
                self._connection.execute("SAVEPOINT piece")
                try:
                    answers.append((waiter, work(self._connection), None))
                except Exception as problem:
                    if not self._connection.in_transaction:
                        raise  # a full or failing disk has undone the whole transaction
                    self._connection.execute("ROLLBACK TO piece")
                    answers.append((waiter, None, _refusal(problem)))
                self._connection.execute("RELEASE piece")
            self._connection.execute("COMMIT")
        except sqlite3.Error as problem:
            if self._on_fatal is not None and _code(problem) in _FAILED_SYNCS:
                self._on_fatal(problem)
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            answers = [(waiter, None, _refusal(problem)) for _, waiter in batch]
        return answers


def _answer(answers: list[_Answer]) -> None:
    for waiter, result, refusal in answers:
        if waiter.done():  # its caller was cancelled
            continue
        if refusal is None:
            waiter.set_result(result)
        else:
            waiter.set_exception(refusal)


def _code(problem: sqlite3.Error) -> int:
    return getattr(problem, "sqlite_errorcode", 0)  # errors of the module itself have none


def _refusal(problem: Exception) -> Exception:
    if not isinstance(problem, sqlite3.Error):
        return problem
    refusal = StorageError(f"the catalogue could not be written: {problem}")
    refusal.__cause__ = problem
    return refusal


def _prepare(connection: sqlite3.Connection, name: str) -> None:
    """Check that the file is ours and whole, then bring it up to this version's tables."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    owner = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if tables and owner != schema.APPLICATION_ID:
        raise DataDirectoryDamaged(
            f"{name} is a SQLite database of something else, not a catalogue"
        )
    if version > schema.VERSION:
        raise DataDirectoryDamaged(
            f"{name} was written by a newer version (tables of version {version}; this one knows "
            f"{schema.VERSION}). Run the newer version, or restore a backup."
        )
    (health,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if health != "ok":
        raise DataDirectoryDamaged(
            f"{name} is damaged: {health}. Restore it from a backup, or try `sqlite3 {name} "
            "'.recover'`."
        )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    schema.migrate(connection, version)


def _describe(name: str, problem: sqlite3.Error) -> str:
    if isinstance(problem, sqlite3.OperationalError):  # of the disk, not of what is in the file
        return (
            f"{name} cannot be opened: {problem}. Is there room on the disk, and may this user "
            "write there?"
        )
    return (
        f"{name} cannot be opened as the catalogue: {problem}. Restore it from a backup, or move "
        "the whole directory away to start with no topics."
    )


_PUT_TOPIC = """
    INSERT INTO topics VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (topic_name) DO UPDATE SET
        topic_id = excluded.topic_id, partition_count = excluded.partition_count,
        replication_factor = excluded.replication_factor, retention_ms = excluded.retention_ms,
        max_message_bytes = excluded.max_message_bytes,
        compression_type = excluded.compression_type, cleanup_policy = excluded.cleanup_policy,
        created_at = excluded.created_at, config = excluded.config
"""
_SHOW_TOPIC = """
    UPDATE topics SET retention_ms = ?, max_message_bytes = ?, compression_type = ?,
                      cleanup_policy = ? WHERE topic_id = ?
"""
_PUT_GROUP = """
    INSERT INTO consumer_groups VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (group_id) DO UPDATE SET
        coordinator_id = excluded.coordinator_id,
        state = excluded.state,
        protocol_type = excluded.protocol_type,
        generation_id = excluded.generation_id,
        leader_id = excluded.leader_id,
        created_at = min(created_at, excluded.created_at),
        last_heartbeat = coalesce(excluded.last_heartbeat, last_heartbeat)
"""
_KEEP_GROUPS = """
    DELETE FROM consumer_groups WHERE group_id NOT IN (SELECT value FROM json_each(?))
"""
_PUT_CONFIG = "INSERT OR REPLACE INTO resource_configs VALUES (?, ?, ?)"
_DELETE_CONFIG = "DELETE FROM resource_configs WHERE resource_type = ? AND resource_name = ?"
_RESERVE = """
    INSERT INTO sequences VALUES (:name, :count)
    ON CONFLICT (name) DO UPDATE SET next = next + :count RETURNING next
"""
_READ_TOPICS = """
    SELECT topic_name, topic_id, partition_count, replication_factor, created_at, config,
           retention_ms, max_message_bytes, compression_type, cleanup_policy
    FROM topics ORDER BY topic_name
"""


def _each(statement: str, rows: Sequence[tuple[Any, ...]]) -> Callable[[sqlite3.Connection], None]:
    """Work that executes one statement for each row. Its cursor never leaves the writer's thread:
    letting go of one elsewhere while its statement is used again is a misuse of SQLite."""

    def work(db: sqlite3.Connection) -> None:
        db.executemany(statement, rows).close()

    return work


def _load(db: sqlite3.Connection) -> Contents:
    contents = Contents()
    shared: dict[str, Mapping[str, str]] = {"{}": NO_CONFIG}  # topics with equal overrides
    for name, topic_id, partitions, replicas, created_at, config, *shown in db.execute(
        _READ_TOPICS
    ):
        overrides = shared.get(config)
        if overrides is None:
            overrides = shared[config] = json.loads(config)
        topic = Topic(
            name=name,
            id=topic_id_from_text(topic_id),
            partition_count=partitions,
            replication_factor=replicas,
            created_at_ms=from_timestamp(created_at),
            config=overrides,
        )
        contents.topics.append(TopicRow(topic, Shown(*shown)))
    for resource, name, config in db.execute("SELECT * FROM resource_configs"):
        contents.configs[resource, name] = json.loads(config)
    for entity, name, value in db.execute("SELECT * FROM quotas"):
        parts = tuple(sorted(json.loads(entity).items()))
        contents.quotas.setdefault(parts, {})[name] = value
    return contents


def _topic_values(row: TopicRow) -> tuple[Any, ...]:
    topic = row.topic
    return (
        topic.name,
        topic_id_text(topic.id),
        topic.partition_count,
        topic.replication_factor,
        *row.shown,
        to_timestamp(topic.created_at_ms),
        _json(topic.config),
    )


def _group_values(row: GroupRow) -> tuple[Any, ...]:
    heartbeat = to_timestamp(row.last_heartbeat_ms) if row.last_heartbeat_ms >= 0 else None
    return (*row[:6], to_timestamp(row.created_at_ms), heartbeat)


def _json(mapping: Mapping[str, str | None]) -> str:
    return json.dumps(dict(mapping), ensure_ascii=False, sort_keys=True)


def to_timestamp(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d}"


def from_timestamp(text: str) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1000 + moment.microsecond // 1000
