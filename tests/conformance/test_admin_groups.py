"""Groups through the admin client: listed, described, their offsets changed, deleted, refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from support.clients import Record
from support.clients.confluent import Confluent, consumer
from support.members import Member, settled
from support.waiting import eventually
from support.wire import Wire

Name = Callable[[str], str]


def offsets_of(admin: AdminClient, group: str, *places: TopicPartition) -> dict[int, int]:
    asked = ConsumerGroupTopicPartitions(group, list(places) or None)
    found = admin.list_consumer_group_offsets([asked])[group].result(10)
    return {one.partition: one.offset for one in found.topic_partitions}


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    source = consumer(bootstrap, group)
    source.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    source.close()


def error_of(future: Any) -> str:
    with pytest.raises(KafkaException) as failed:
        future.result(15)
    return str(failed.value.args[0].name())


def test_groups_are_listed_with_state_and_type(
    admin: AdminClient, bootstrap: str, topic: str, name: Name
) -> None:
    group = name("group")
    with Member(bootstrap, group, [topic]) as member:
        settled([member], topic, 1)
        listed = admin.list_consumer_groups().result(10).valid
        (found,) = [one for one in listed if one.group_id == group]
        assert found.state == ConsumerGroupState.STABLE
        assert found.type == ConsumerGroupType.CLASSIC
        assert not found.is_simple_consumer_group


def test_groups_can_be_listed_by_state_and_by_type(
    admin: AdminClient, bootstrap: str, topic: str, name: Name
) -> None:
    busy, idle = name("busy"), name("idle")
    commit(bootstrap, idle, topic, 1)
    with Member(bootstrap, busy, [topic]) as member:
        settled([member], topic, 1)

        def listed(**filters: Any) -> set[str]:
            return {one.group_id for one in admin.list_consumer_groups(**filters).result(10).valid}

        stable = listed(states={ConsumerGroupState.STABLE})
        assert busy in stable
        assert idle not in stable
        empty = listed(states={ConsumerGroupState.EMPTY})
        assert idle in empty
        assert busy not in empty
        assert busy not in listed(types={ConsumerGroupType.CONSUMER})


def test_a_group_is_described_with_its_members_and_what_they_own(
    admin: AdminClient, bootstrap: str, topic: str, name: Name
) -> None:
    group = name("group")
    options = {"client_id": "the-client", "partition_assignment_strategy": "range"}
    with Member(bootstrap, group, [topic], group_instance_id="the-instance", **options) as member:
        settled([member], topic, 1)
        found = admin.describe_consumer_groups([group])[group].result(10)
        assert found.state == ConsumerGroupState.STABLE
        assert found.partition_assignor == "range"
        assert found.coordinator is not None
        (one,) = found.members
        assert one.client_id == "the-client"
        assert one.group_instance_id == "the-instance"
        assert one.host
        owned = [(each.topic, each.partition) for each in one.assignment.topic_partitions]
        assert owned == [(topic, 0)]


def test_a_group_that_does_not_exist_is_described_as_dead(admin: AdminClient, name: Name) -> None:
    group = name("missing")
    found = admin.describe_consumer_groups([group])[group].result(10)
    assert found.state == ConsumerGroupState.DEAD
    assert found.members == []


def test_the_old_way_of_listing_groups_works(
    admin: AdminClient, bootstrap: str, topic: str, name: Name
) -> None:
    group = name("group")
    with Member(bootstrap, group, [topic]) as member:
        settled([member], topic, 1)
        with pytest.warns(DeprecationWarning, match="list_groups"):
            (found,) = admin.list_groups(group, timeout=10)
        assert (found.id, found.state, found.protocol_type) == (group, "Stable", "consumer")
        assert len(found.members) == 1


def test_committed_offsets_are_listed_and_changed(
    admin: AdminClient, bootstrap: str, topic: str, name: Name
) -> None:
    group = name("group")
    commit(bootstrap, group, topic, 5)
    assert offsets_of(admin, group) == {0: 5}
    change = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
    admin.alter_consumer_group_offsets([change])[group].result(10)
    assert offsets_of(admin, group) == {0: 2}
    assert offsets_of(admin, group, TopicPartition(topic, 0)) == {0: 2}


def test_offsets_of_a_partition_without_a_commit_are_listed_as_none(
    admin: AdminClient, topic: str, name: Name
) -> None:
    assert offsets_of(admin, name("group"), TopicPartition(topic, 0)) == {0: -1001}


def test_offsets_of_a_group_with_members_cannot_be_changed(
    admin: AdminClient, bootstrap: str, topic: str, name: Name
) -> None:
    group = name("group")
    with Member(bootstrap, group, [topic]) as member:
        settled([member], topic, 1)
        change = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 2)])
        answer = admin.alter_consumer_group_offsets([change])[group].result(10)
        (place,) = answer.topic_partitions
        assert place.error.name() == "UNKNOWN_MEMBER_ID"


def test_the_lag_of_a_group_is_the_end_less_what_it_committed(
    admin: AdminClient, bootstrap: str, confluent: Confluent, topic: str, name: Name
) -> None:
    group = name("group")
    confluent.produce(topic, [Record(b"%d" % n) for n in range(10)])
    confluent.read_group(topic, group, 10)
    confluent.produce(topic, [Record(b"%d" % n) for n in range(7)])
    assert confluent.watermarks(topic)[1] - offsets_of(admin, group)[0] == 7


def test_an_empty_group_can_be_deleted_with_its_offsets(
    admin: AdminClient, bootstrap: str, topic: str, name: Name
) -> None:
    group = name("group")
    commit(bootstrap, group, topic, 5)
    admin.delete_consumer_groups([group])[group].result(10)
    assert offsets_of(admin, group, TopicPartition(topic, 0)) == {0: -1001}
    listed = {one.group_id for one in admin.list_consumer_groups().result(10).valid}
    assert group not in listed


def test_a_group_with_members_cannot_be_deleted(
    admin: AdminClient, bootstrap: str, topic: str, name: Name
) -> None:
    group = name("group")
    with Member(bootstrap, group, [topic]) as member:
        settled([member], topic, 1)
        assert error_of(admin.delete_consumer_groups([group])[group]) == "NON_EMPTY_GROUP"


def test_a_group_that_does_not_exist_cannot_be_deleted(admin: AdminClient, name: Name) -> None:
    group = name("missing")
    assert error_of(admin.delete_consumer_groups([group])[group]) == "GROUP_ID_NOT_FOUND"


def offset_delete(wire: Wire, group: str, topic: str) -> tuple[str, list[str]]:
    topics = [{"name": topic, "partitions": [{"partition_index": 0}]}]
    answer = wire.call("offset_delete", 0, {"group_id": group, "topics": topics})
    partitions = [one for each in answer.topics for one in each.partitions]
    return answer.error_code.name, [one.error_code.name for one in partitions]


def test_a_single_committed_offset_can_be_deleted(
    admin: AdminClient, bootstrap: str, topic: str, name: Name, wire: Wire
) -> None:
    group = name("group")
    commit(bootstrap, group, topic, 5)
    assert offset_delete(wire, group, topic) == ("none", ["none"])
    assert offsets_of(admin, group, TopicPartition(topic, 0)) == {0: -1001}


def test_an_offset_of_a_subscribed_topic_cannot_be_deleted(
    bootstrap: str, topic: str, name: Name, wire: Wire
) -> None:
    group = name("group")
    with Member(bootstrap, group, [topic]) as member:
        settled([member], topic, 1)
        assert offset_delete(wire, group, topic) == ("none", ["group_subscribed_to_topic"])


def test_offsets_of_a_deleted_topic_are_forgotten(
    admin: AdminClient, bootstrap: str, topic: str, name: Name
) -> None:
    group = name("group")
    commit(bootstrap, group, topic, 5)
    admin.delete_topics([topic])[topic].result(10)
    eventually(lambda: offsets_of(admin, group) == {})
