"""Topics: created, found, grown, configured, deleted; and kept over a restart."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest

from penstock.errors import (
    CoordinatorNotAvailable,
    DataDirectoryDamaged,
    InvalidConfig,
    InvalidPartitions,
    InvalidTopicName,
    PolicyViolation,
    StorageError,
    TopicExists,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from penstock.model.topic import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topic
from penstock.model.topic_config import TopicSettings
from penstock.model.topic_defaults import TopicDefaults
from support.admin import admin
from support.scenario import scenario


@scenario
async def test_a_created_topic_is_found_by_name_and_by_id() -> None:
    async with admin() as broker:
        topic = await broker.topics.create("orders", partitions=3, config={"retention.ms": "5"})
        assert broker.topics.get("orders") is topic
        assert broker.topics.by_id(topic.id) is topic
        assert (topic.partition_count, topic.replication_factor) == (3, 1)
        assert topic.created_at_ms == broker.clock.now_ms()
        assert broker.topics.settings("orders").retention_ms == 5


@scenario
async def test_a_topic_without_a_count_has_four_partitions() -> None:
    async with admin() as broker:
        assert (await broker.topics.create("orders")).partition_count == 4
    async with admin(num_partitions=7) as broker:
        assert (await broker.topics.auto_create("orders")).partition_count == 7


@scenario
async def test_an_unknown_topic_is_said_to_be_unknown() -> None:
    async with admin() as broker:
        assert broker.topics.find("ghost") is None
        with pytest.raises(UnknownTopicOrPartition, match="ghost"):
            broker.topics.get("ghost")
        with pytest.raises(UnknownTopicOrPartition):
            broker.topics.settings("ghost")
        with pytest.raises(UnknownTopicOrPartition):
            await broker.topics.delete("ghost")


@scenario
async def test_topics_survive_a_restart_with_their_ids_and_settings(tmp_path: Path) -> None:
    async with admin(tmp_path / "c.sqlite") as broker:
        before = await broker.topics.create("orders", config={"cleanup.policy": "compact"})
        await broker.topics.create("gone")
        await broker.topics.delete("gone")
        grown = await broker.topics.add_partitions("orders", 9)
    async with admin(tmp_path / "c.sqlite") as broker:
        after = broker.topics.get("orders")
        assert after == grown
        assert after.id == before.id
        assert broker.topics.settings("orders").compacted
        assert broker.topics.names() == ["orders"]


@scenario
async def test_a_name_is_taken_once_also_by_many_at_the_same_moment() -> None:
    async with admin() as broker:
        outcomes = await asyncio.gather(
            *(broker.topics.create("orders") for _ in range(20)), return_exceptions=True
        )
        assert sum(isinstance(each, Topic) for each in outcomes) == 1
        assert sum(isinstance(each, TopicExists) for each in outcomes) == 19
        automatic = await asyncio.gather(*(broker.topics.auto_create("new") for _ in range(20)))
        assert len({topic.id for topic in automatic}) == 1


@scenario
async def test_names_that_differ_in_dots_and_underscores_collide() -> None:
    async with admin() as broker:
        await broker.topics.create("a.b")
        with pytest.raises(InvalidTopicName, match=r"collides with existing topic: a\.b"):
            await broker.topics.create("a_b")
        await broker.topics.delete("a.b")
        await broker.topics.create("a_b")
        outcomes = await asyncio.gather(
            broker.topics.create("x.y"), broker.topics.create("x_y"), return_exceptions=True
        )
        assert sorted(type(each).__name__ for each in outcomes) == ["InvalidTopicName", "Topic"]


@scenario
async def test_validate_only_checks_everything_and_keeps_nothing() -> None:
    async with admin() as broker:
        topic = await broker.topics.create("orders", partitions=3, validate_only=True)
        assert topic.partition_count == 3
        assert len(broker.topics) == 0
        with pytest.raises(InvalidConfig):
            await broker.topics.create("orders", config={"nope": "1"}, validate_only=True)
        await broker.topics.create("orders")
        with pytest.raises(TopicExists):
            await broker.topics.create("orders", validate_only=True)
        await broker.topics.add_partitions("orders", 5, validate_only=True)
        await broker.topics.alter_config("orders", {"retention.ms": "1"}, validate_only=True)
        assert broker.topics.get("orders").partition_count == 4
        assert broker.topics.settings("orders").retention_ms != 1


@scenario
async def test_a_topic_created_again_has_another_id() -> None:
    async with admin() as broker:
        first = await broker.topics.create("orders")
        await broker.topics.delete("orders")
        second = await broker.topics.create("orders")
        assert first.id != second.id
        assert broker.topics.by_id(first.id) is None
        with pytest.raises(UnknownTopicId):
            await broker.topics.delete("orders", topic_id=first.id)
        await broker.topics.delete("orders", topic_id=second.id)


@scenario
async def test_no_id_begins_with_a_dash_or_is_zero() -> None:
    from penstock.model.topic import topic_id_text
    from penstock.services.topics import new_topic_id

    ids = [new_topic_id() for _ in range(2000)]
    assert not any(topic_id_text(each).startswith("-") for each in ids)
    assert uuid.UUID(int=0) not in ids


@scenario
async def test_everyone_who_keeps_something_of_a_topic_is_told_in_order() -> None:
    async with admin() as broker:
        events: list[str] = []

        async def deleted(topic: Topic) -> None:
            await asyncio.sleep(0)
            assert broker.topics.find("orders") is None
            events.append(f"deleted {topic.name}")

        def changed(topic: Topic, settings: TopicSettings) -> None:
            events.append(f"changed {topic.partition_count} {settings.retention_ms}")

        broker.topics.on_created.append(lambda topic: events.append(f"created {topic.name}"))
        broker.topics.on_changed.append(changed)
        broker.topics.on_deleted.append(deleted)
        await broker.topics.create("orders", config={"retention.ms": "5"})
        await broker.topics.add_partitions("orders", 6)
        await broker.topics.alter_config("orders", {"retention.ms": "7"})
        await broker.topics.alter_config("orders", {"retention.ms": "7"})
        again = asyncio.create_task(broker.topics.delete("orders"))
        await asyncio.sleep(0)
        await broker.topics.create("orders")
        await again
        assert events == [
            "created orders",
            "changed 6 5",
            "changed 6 7",
            "deleted orders",
            "created orders",
        ]


@scenario
async def test_all_are_told_of_a_deletion_although_one_cannot_follow() -> None:
    async with admin() as broker:
        told: list[str] = []

        async def fails(topic: Topic) -> None:
            raise CoordinatorNotAvailable("the disk is full")

        async def follows(topic: Topic) -> None:
            told.append(topic.name)

        broker.topics.on_deleted += [fails, follows]
        await broker.topics.create("orders")
        await broker.topics.delete("orders")
        assert told == ["orders"]


@scenario
async def test_a_write_the_disk_refuses_leaves_no_topic(tmp_path: Path) -> None:
    async with admin(tmp_path / "c.sqlite") as broker:
        connection = broker.catalogue._connection  # type: ignore[attr-defined]
        connection.execute("PRAGMA query_only = ON")
        with pytest.raises(StorageError):
            await broker.topics.create("orders")
        assert broker.topics.find("orders") is None
        connection.execute("PRAGMA query_only = OFF")
        await broker.topics.create("orders")


@scenario
async def test_a_caller_that_goes_away_does_not_leave_half_a_topic(tmp_path: Path) -> None:
    async with admin(tmp_path / "c.sqlite") as broker:
        caller = asyncio.create_task(broker.topics.create("orders"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        # Whoever asks next waits for its turn, and finds the topic whole.
        assert (await broker.topics.auto_create("orders")).name == "orders"
        assert broker.topics.find("orders") is not None
        kept = (await broker.catalogue.load()).topics
        assert [row.topic for row in kept] == [broker.topics.get("orders")]


@scenario
async def test_internal_topics_are_made_by_the_broker_and_are_its_own() -> None:
    async with admin() as broker:
        topics = broker.topics
        with pytest.raises(PolicyViolation):
            await topics.create(OFFSETS_TOPIC)
        offsets = await topics.ensure_internal(OFFSETS_TOPIC)
        assert await topics.ensure_internal(OFFSETS_TOPIC) is offsets
        with pytest.raises(TopicExists):
            await topics.create(OFFSETS_TOPIC)
        assert (await topics.auto_create(TRANSACTIONS_TOPIC)).internal
        assert offsets.partition_count == 50
        settings = topics.settings(OFFSETS_TOPIC)
        assert (settings.cleanup_policy, settings.segment_bytes) == ({"compact"}, 104857600)
        with pytest.raises(PolicyViolation):
            await topics.delete(OFFSETS_TOPIC)
        with pytest.raises(PolicyViolation):
            await topics.add_partitions(OFFSETS_TOPIC, 60)
        with pytest.raises(InvalidConfig, match="must stay compacted"):
            await topics.alter_config(OFFSETS_TOPIC, {"cleanup.policy": "delete"})
        await topics.alter_config(OFFSETS_TOPIC, {"segment.bytes": "2097152"})


@scenario
async def test_nothing_is_created_by_itself_when_the_broker_does_not_allow_it() -> None:
    async with admin(auto_create_topics_enable=False) as broker:
        with pytest.raises(UnknownTopicOrPartition):
            await broker.topics.auto_create("orders")
        assert (await broker.topics.auto_create(OFFSETS_TOPIC)).internal


@scenario
async def test_topics_never_shrink() -> None:
    async with admin() as broker:
        await broker.topics.create("orders", partitions=3)
        for total in (3, 2, 0, -1):
            with pytest.raises(InvalidPartitions):
                await broker.topics.add_partitions("orders", total)


@scenario
async def test_topics_follow_the_brokers_defaults_unless_they_have_their_own() -> None:
    async with admin() as broker:
        await broker.topics.create("plain")
        await broker.topics.create("own", config={"retention.ms": "5"})
        told: list[str] = []
        broker.topics.on_changed.append(lambda topic, _: told.append(topic.name))
        await broker.topics.change_defaults(TopicDefaults(settings={"retention.ms": "77"}))
        assert told == ["plain"]
        assert broker.topics.settings("plain").retention_ms == 77
        assert broker.topics.settings("own").retention_ms == 5
        rows = (await broker.catalogue.load()).topics
        assert {topic.name: shown.retention_ms for topic, shown in rows} == {"plain": 77, "own": 5}


@scenario
async def test_the_table_shows_the_defaults_of_the_last_start(tmp_path: Path) -> None:
    async with admin(tmp_path / "c.sqlite") as broker:
        await broker.topics.create("orders")
    async with admin(tmp_path / "c.sqlite", log_retention_ms=99) as broker:
        assert broker.topics.settings("orders").retention_ms == 99
        ((_, shown),) = (await broker.catalogue.load()).topics
        assert shown.retention_ms == 99


@scenario
async def test_a_row_edited_into_nonsense_is_refused_by_topic(tmp_path: Path) -> None:
    async with admin(tmp_path / "c.sqlite") as broker:
        await broker.topics.create("orders")
        connection = broker.catalogue._connection  # type: ignore[attr-defined]
        connection.execute("""UPDATE topics SET config = '{"retention.ms": "soon"}'""")
    with pytest.raises(DataDirectoryDamaged, match="'orders'"):
        async with admin(tmp_path / "c.sqlite"):
            pass


@scenario
async def test_ten_thousand_topics_cost_less_than_two_kilobytes_each(tmp_path: Path) -> None:
    import tracemalloc

    async with admin(tmp_path / "c.sqlite") as broker:
        count = 10_000
        await asyncio.gather(
            *(
                broker.topics.create(f"topic.{n}", config={"retention.ms": str(n % 5 + 1)})
                for n in range(count)
            )
        )
    async with admin(tmp_path / "c.sqlite") as other:
        assert len(other.topics) == count
        tracemalloc.start()
        rows = (await other.catalogue.load()).topics
        from penstock.services.topics import Topics

        loaded = Topics(other.catalogue, other.clock)
        await loaded.load(rows)
        del rows
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(loaded) == count
        assert used / count < 2048
