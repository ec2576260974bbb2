"""Topic names and ids."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import InvalidTopicName
from penstock.model.topic import (
    OFFSETS_TOPIC,
    Topic,
    check_topic_name,
    collision_key,
    topic_id_from_text,
    topic_id_text,
)


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "_", "-", OFFSETS_TOPIC])
def test_kafkas_names_are_accepted(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "x" * 250, "a b", "a/b", "../x", "a\0b", "é", "a\n", "<script>", "a:b", "a,b"],
)
def test_names_that_cannot_be_directories_are_refused(name: str) -> None:
    with pytest.raises(InvalidTopicName):
        check_topic_name(name)


@given(st.text(max_size=300))
def test_an_accepted_name_is_safe_as_a_directory(name: str) -> None:
    try:
        check_topic_name(name)
    except InvalidTopicName:
        return
    assert name
    assert name not in (".", "..")
    assert len(name.encode()) <= 249
    assert "/" not in name
    assert "\0" not in name


def test_dots_and_underscores_collide() -> None:
    assert collision_key("a.b") == collision_key("a_b")
    assert collision_key("a.b") != collision_key("a-b")


@given(st.uuids())
def test_an_id_survives_its_text(topic_id: uuid.UUID) -> None:
    text = topic_id_text(topic_id)
    assert len(text) == 22
    assert topic_id_from_text(text) == topic_id


def test_only_the_brokers_own_topics_are_internal() -> None:
    def named(name: str) -> Topic:
        return Topic(
            name=name, id=uuid.uuid4(), partition_count=2, replication_factor=1, created_at_ms=0
        )

    assert named("__consumer_offsets").internal
    assert not named("__my_own").internal
    assert named("a").has_partition(1)
    assert not named("a").has_partition(2)
    assert not named("a").has_partition(-1)
