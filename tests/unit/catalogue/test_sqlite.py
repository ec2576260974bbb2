"""The SQLite catalogue: what it keeps, what others can read, and what it refuses to open."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from pathlib import Path
from typing import Any

import pytest

from penstock.catalogue import schema
from penstock.catalogue.catalogue import GroupRow, Shown, TopicRow
from penstock.catalogue.sqlite import SqliteCatalogue
from penstock.errors import DataDirectoryDamaged, StorageError
from penstock.model.topic import Topic, topic_id_text
from penstock.model.topic_config import resolve
from support.scenario import scenario


def row(name: str, *, partitions: int = 4, **config: str) -> TopicRow:
    overrides = {key.replace("_", "."): value for key, value in config.items()}
    topic = Topic(
        name=name,
        id=uuid.uuid4(),
        partition_count=partitions,
        replication_factor=1,
        created_at_ms=1_700_000_000_123,
        config=overrides,
    )
    return TopicRow(topic, Shown.of(resolve(overrides, {})))


@scenario
async def test_what_was_put_is_there_after_opening_again(tmp_path: Path) -> None:
    orders, events = row("orders", retention_ms="1000"), row("events", partitions=9)
    first = SqliteCatalogue.open(tmp_path / "c.sqlite")
    await first.put_topics([orders, events])
    await first.put_config("group", "billing", {"consumer.session.timeout.ms": "50000"})
    await first.put_quota((("client-id", "app"), ("user", None)), {"producer_byte_rate": 1e6})
    await first.close()

    again = SqliteCatalogue.open(tmp_path / "c.sqlite")
    contents = await again.load()
    assert contents.topics == [events, orders]
    assert contents.configs == {("group", "billing"): {"consumer.session.timeout.ms": "50000"}}
    assert contents.quotas == {(("client-id", "app"), ("user", None)): {"producer_byte_rate": 1e6}}
    await again.close()


@scenario
async def test_any_sqlite_tool_reads_the_topics_while_the_broker_runs(tmp_path: Path) -> None:
    catalogue = SqliteCatalogue.open(tmp_path / "c.sqlite")
    orders = row("orders", retention_ms="1000", cleanup_policy="compact,delete", segment_ms="5000")
    await catalogue.put_topics([orders])
    tool = sqlite3.connect(tmp_path / "c.sqlite")
    tool.row_factory = sqlite3.Row
    shown = dict(tool.execute("SELECT * FROM topics").fetchone())
    age = tool.execute("SELECT julianday('2023-11-15') - julianday(created_at) FROM topics")
    assert 0 < age.fetchone()[0] < 1
    segment = tool.execute("SELECT json_extract(config, '$.\"segment.ms\"') FROM topics")
    assert segment.fetchone()[0] == "5000"
    tool.close()
    config = shown.pop("config")
    assert shown == {
        "topic_name": "orders",
        "topic_id": topic_id_text(orders.topic.id),
        "partition_count": 4,
        "replication_factor": 1,
        "retention_ms": 1000,
        "max_message_bytes": 1048588,
        "compression_type": "producer",
        "cleanup_policy": "compact,delete",
        "created_at": "2023-11-14 22:13:20.123",
    }
    assert "segment.ms" in config
    await catalogue.close()


@scenario
async def test_groups_are_mirrored_and_taken_out(tmp_path: Path) -> None:
    catalogue = SqliteCatalogue.open(tmp_path / "c.sqlite")
    born, beat = 1_700_000_000_000, 1_700_000_005_000
    await catalogue.put_groups(
        [
            GroupRow("billing", 1, "Stable", "consumer", 3, "m-1", born, beat),
            GroupRow("idle", 1, "Empty", "consumer", 0, "", born, -1),
        ]
    )
    tool = sqlite3.connect(tmp_path / "c.sqlite")
    query = "SELECT group_id, coordinator_id, state, generation_id, leader_id, last_heartbeat"
    assert tool.execute(query + " FROM consumer_groups ORDER BY group_id").fetchall() == [
        ("billing", 1, "Stable", 3, "m-1", "2023-11-14 22:13:25.000"),
        ("idle", 1, "Empty", 0, "", None),
    ]
    await catalogue.delete_groups(["billing", "unknown"])
    assert tool.execute("SELECT group_id FROM consumer_groups").fetchall() == [("idle",)]
    tool.close()
    await catalogue.close()


@scenario
async def test_a_group_shown_again_keeps_the_time_it_was_created(tmp_path: Path) -> None:
    catalogue = SqliteCatalogue.open(tmp_path / "c.sqlite")
    born = 1_700_000_000_000
    await catalogue.put_groups([GroupRow("g", 1, "Stable", "consumer", 3, "m-1", born, born)])
    await catalogue.put_groups([GroupRow("g", 2, "Empty", "consumer", 4, "", born + 9_000, -1)])
    tool = sqlite3.connect(tmp_path / "c.sqlite")
    query = "SELECT state, generation_id, created_at, last_heartbeat FROM consumer_groups"
    assert tool.execute(query).fetchall() == [
        ("Empty", 4, "2023-11-14 22:13:20.000", "2023-11-14 22:13:20.000")
    ]
    await catalogue.keep_groups(["g", "unknown"])
    assert len(tool.execute(query).fetchall()) == 1
    await catalogue.keep_groups([])
    assert tool.execute(query).fetchall() == []
    tool.close()
    await catalogue.close()


@scenario
async def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    given = []
    for _ in range(3):
        catalogue = SqliteCatalogue.open(path)
        given += [await catalogue.reserve_producer_ids(1000) for _ in range(2)]
        await catalogue.close()
    assert given == [0, 1000, 2000, 3000, 4000, 5000]


@scenario
async def test_a_piece_that_fails_leaves_the_others_of_its_transaction(tmp_path: Path) -> None:
    catalogue = SqliteCatalogue.open(tmp_path / "c.sqlite")
    twin = row("a")
    same_id = TopicRow(
        Topic(
            name="b",
            id=twin.topic.id,
            partition_count=1,
            replication_factor=1,
            created_at_ms=0,
        ),
        twin.shown,
    )
    results = await asyncio.gather(
        catalogue.put_topics([twin]),
        catalogue.put_topics([row("c"), same_id]),
        catalogue.put_topics([row("d")]),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), StorageError, type(None)]
    names = [topic.name for topic, _ in (await catalogue.load()).topics]
    assert names == ["a", "d"]
    await catalogue.close()


@scenario
async def test_many_writes_at_once_share_transactions(tmp_path: Path) -> None:
    catalogue = SqliteCatalogue.open(tmp_path / "c.sqlite")
    await asyncio.gather(*(catalogue.put_topics([row(f"t-{n}")]) for n in range(500)))
    assert len((await catalogue.load()).topics) == 500
    await catalogue.close()


@scenario
async def test_a_cancelled_write_is_still_written_with_the_others(tmp_path: Path) -> None:
    catalogue = SqliteCatalogue.open(tmp_path / "c.sqlite")
    gone = asyncio.create_task(catalogue.put_topics([row("gone")]))
    await asyncio.sleep(0)
    gone.cancel()
    await catalogue.put_topics([row("kept")])
    assert [topic.name for topic, _ in (await catalogue.load()).topics] == ["gone", "kept"]
    await catalogue.close()


@scenario
async def test_showing_new_defaults_does_not_bring_back_a_deleted_topic(tmp_path: Path) -> None:
    catalogue = SqliteCatalogue.open(tmp_path / "c.sqlite")
    gone, kept = row("gone"), row("kept")
    await catalogue.put_topics([gone, kept])
    await catalogue.delete_topics([gone.topic.id])
    fresh = Shown(5, 6, "zstd", "compact")
    await catalogue.show_topics([TopicRow(gone.topic, fresh), TopicRow(kept.topic, fresh)])
    assert (await catalogue.load()).topics == [TopicRow(kept.topic, fresh)]
    await catalogue.close()


@scenario
async def test_a_full_disk_is_a_storage_error_and_passes(tmp_path: Path) -> None:
    catalogue = SqliteCatalogue.open(tmp_path / "c.sqlite")
    pages = catalogue._connection.execute("PRAGMA page_count").fetchone()[0]
    catalogue._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match="full"):
        await catalogue.put_topics([row(f"a-long-name-of-a-topic-{n}") for n in range(200)])
    catalogue._connection.execute("PRAGMA max_page_count = 100000")
    await catalogue.put_topics([row("now-there-is-room")])
    assert [topic.name for topic, _ in (await catalogue.load()).topics] == ["now-there-is-room"]
    await catalogue.close()


class FailingSync(sqlite3.Connection):
    """A connection whose disk fails at the moment of the sync."""

    def execute(self, statement: str, *more: Any) -> sqlite3.Cursor:
        if statement == "COMMIT":
            problem = sqlite3.OperationalError("disk I/O error")
            problem.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise problem
        return super().execute(statement, *more)


@scenario
async def test_a_failed_sync_ends_the_process_and_is_never_tried_again(tmp_path: Path) -> None:
    path, ends = tmp_path / "c.sqlite", []
    await SqliteCatalogue.open(path).close()
    connection = sqlite3.connect(
        path, factory=FailingSync, isolation_level=None, check_same_thread=False
    )
    catalogue = SqliteCatalogue(connection, str(path), ends.append)
    with pytest.raises(StorageError, match="disk I/O error"):
        await catalogue.put_topics([row("orders")])
    assert [str(end) for end in ends] == ["disk I/O error"]
    await catalogue.close()


@scenario
async def test_memory_keeps_nothing() -> None:
    for _ in range(2):
        catalogue = SqliteCatalogue.open(":memory:")
        assert (await catalogue.load()).topics == []
        await catalogue.put_topics([row("orders")])
        assert len((await catalogue.load()).topics) == 1
        await catalogue.close()


def test_a_file_that_is_no_database_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.sqlite"
    path.write_bytes(b"this is not what you are looking for" * 100)
    with pytest.raises(DataDirectoryDamaged, match=r"catalogue\.sqlite.*not a database"):
        SqliteCatalogue.open(path)
    assert path.read_bytes().startswith(b"this is not")


def test_a_place_that_cannot_be_written_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(DataDirectoryDamaged, match="may this user write there") as refused:
        SqliteCatalogue.open(tmp_path / "nowhere" / "catalogue.sqlite")
    assert "backup" not in str(refused.value)


def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE recipes (name TEXT)")
    other.close()
    before = path.read_bytes()
    with pytest.raises(DataDirectoryDamaged, match="something else"):
        SqliteCatalogue.open(path)
    assert path.read_bytes() == before


@scenario
async def test_a_catalogue_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    await SqliteCatalogue.open(path).close()
    tool = sqlite3.connect(path)
    tool.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    tool.close()
    with pytest.raises(DataDirectoryDamaged, match=r"c\.sqlite was written by a newer version"):
        SqliteCatalogue.open(path)


@scenario
async def test_a_damaged_page_is_found_at_the_start(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    catalogue = SqliteCatalogue.open(path)
    await catalogue.put_topics([row(f"topic-{n}") for n in range(200)])
    await catalogue.close()
    data = bytearray(path.read_bytes())
    for page in range(1, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(data)
    with pytest.raises(DataDirectoryDamaged, match=r"c\.sqlite"):
        SqliteCatalogue.open(path)


@scenario
async def test_a_row_that_makes_no_sense_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.sqlite"
    catalogue = SqliteCatalogue.open(path)
    await catalogue.put_topics([row("orders")])
    catalogue._connection.execute("UPDATE topics SET topic_id = 'no uuid'")
    with pytest.raises(DataDirectoryDamaged, match=r"c\.sqlite cannot be read"):
        await catalogue.load()
    await catalogue.close()
