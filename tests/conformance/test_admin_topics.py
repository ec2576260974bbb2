"""Topics through confluent-kafka's admin client: made, described, grown, deleted, refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    ElectionType,
    IsolationLevel,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from support.clients import Record
from support.clients.confluent import Confluent, consumer, take
from support.waiting import eventually

Name = Callable[[str], str]
MakeTopic = Callable[..., str]


def create(admin: AdminClient, *topics: NewTopic, **options: Any) -> None:
    for future in admin.create_topics(list(topics), **options).values():
        future.result(15)


def describe(admin: AdminClient, topic: str) -> Any:
    """The description of a topic that exists; Kafka may take a moment to tell of a new one."""
    eventually(lambda: topic in admin.list_topics(timeout=10).topics)
    return admin.describe_topics(TopicCollection([topic]))[topic].result(10)


def error_of(future: Any) -> str:
    with pytest.raises(KafkaException) as failed:
        future.result(15)
    return str(failed.value.args[0].name())


def test_a_topic_has_the_partitions_and_settings_asked_for(admin: AdminClient, name: Name) -> None:
    topic = name("made")
    create(admin, NewTopic(topic, 3, 1, config={"retention.ms": "3600000"}))
    described = describe(admin, topic)
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    for partition in described.partitions:
        assert partition.leader is not None
        assert [node.id for node in partition.replicas] == [partition.leader.id]
        assert [node.id for node in partition.isr] == [partition.leader.id]
    assert not described.is_internal
    assert str(described.topic_id) not in {"", "AAAAAAAAAAAAAAAAAAAAAA"}


def test_a_topic_made_without_a_count_gets_the_default_of_four_partitions(
    admin: AdminClient, name: Name
) -> None:
    """Four is Penstock's default (the oracle is set to it)."""
    topic = name("default")
    create(admin, NewTopic(topic, -1, -1))
    described = describe(admin, topic)
    assert len(described.partitions) == 4


def test_a_topic_that_was_made_is_listed(admin: AdminClient, name: Name) -> None:
    topic = name("listed")
    create(admin, NewTopic(topic, 1, 1))
    eventually(lambda: topic in admin.list_topics(timeout=10).topics)


def test_validating_does_not_make_the_topic(admin: AdminClient, name: Name) -> None:
    topic = name("imagined")
    create(admin, NewTopic(topic, 1, 1), validate_only=True)
    assert topic not in admin.list_topics(timeout=10).topics


def test_a_topic_that_exists_is_not_made_again(admin: AdminClient, topic: str) -> None:
    (future,) = admin.create_topics([NewTopic(topic, 1, 1)]).values()
    assert error_of(future) == "TOPIC_ALREADY_EXISTS"


@pytest.mark.parametrize(
    "bad", [".", "..", "a b", "a/b", "slash\\", "ünï", "x" * 250, "<script>", "../up"]
)
def test_a_name_that_cannot_be_a_topic_is_refused(admin: AdminClient, bad: str) -> None:
    (future,) = admin.create_topics([NewTopic(bad, 1, 1)]).values()
    assert error_of(future) == "TOPIC_EXCEPTION"


def test_the_longest_name_is_249_characters(admin: AdminClient, name: Name) -> None:
    topic = name("long") + "-" * 300
    create(admin, NewTopic(topic[:249], 1, 1))
    eventually(lambda: topic[:249] in admin.list_topics(timeout=10).topics)


def test_names_that_differ_only_in_dot_and_underscore_collide(
    admin: AdminClient, name: Name
) -> None:
    stem = name("collide")
    create(admin, NewTopic(f"{stem}.x", 1, 1))
    (future,) = admin.create_topics([NewTopic(f"{stem}_x", 1, 1)]).values()
    assert error_of(future) == "TOPIC_EXCEPTION"


def test_a_topic_without_partitions_is_refused(admin: AdminClient, name: Name) -> None:
    (future,) = admin.create_topics([NewTopic(name("bad"), 0, 1)]).values()
    assert error_of(future) == "INVALID_PARTITIONS"


def test_more_replicas_than_brokers_are_refused(admin: AdminClient, name: Name) -> None:
    (future,) = admin.create_topics([NewTopic(name("bad"), 1, 3)]).values()
    assert error_of(future) == "INVALID_REPLICATION_FACTOR"


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("no.such.setting", "1"),
        ("retention.ms", "soon"),
        ("retention.ms", "-2"),
        ("max.message.bytes", "-1"),
        ("cleanup.policy", "shred"),
        ("compression.type", "rar"),
        ("message.timestamp.type", "Yesterday"),
        ("min.insync.replicas", "0"),
        ("segment.bytes", "1"),
        ("min.cleanable.dirty.ratio", "1.5"),
    ],
)
def test_a_setting_that_does_not_exist_or_is_out_of_bounds_is_refused(
    admin: AdminClient, name: Name, setting: str, value: str
) -> None:
    topic = name("bad")
    (future,) = admin.create_topics([NewTopic(topic, 1, 1, config={setting: value})]).values()
    assert error_of(future) == "INVALID_CONFIG"
    assert topic not in admin.list_topics(timeout=10).topics


def test_one_bad_topic_does_not_stop_the_others_of_the_request(
    admin: AdminClient, topic: str, name: Name
) -> None:
    good = name("good")
    futures = admin.create_topics([NewTopic(topic, 1, 1), NewTopic(good, 1, 1)])
    assert error_of(futures[topic]) == "TOPIC_ALREADY_EXISTS"
    futures[good].result(10)


def test_partitions_can_be_added_but_not_taken_away(
    admin: AdminClient, confluent: Confluent, topic: str
) -> None:
    confluent.produce(topic, [Record(b"old")])
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
    confluent.produce(topic, [Record(b"new", partition=2)])
    assert confluent.read(topic, 1)[0].value == b"old"
    assert confluent.read(topic, 1, partition=2)[0].value == b"new"
    for total in (1, 3):
        future = admin.create_partitions([NewPartitions(topic, total)])[topic]
        assert error_of(future) == "INVALID_PARTITIONS"


def test_partitions_cannot_be_added_to_a_topic_that_does_not_exist(
    admin: AdminClient, name: Name
) -> None:
    topic = name("missing")
    future = admin.create_partitions([NewPartitions(topic, 3)])[topic]
    assert error_of(future) == "UNKNOWN_TOPIC_OR_PART"


def test_a_deleted_topic_is_gone_and_its_name_is_free(
    admin: AdminClient, confluent: Confluent, topic: str
) -> None:
    before = describe(admin, topic).topic_id
    confluent.produce(topic, [Record(b"old")])
    admin.delete_topics([topic])[topic].result(10)
    eventually(lambda: topic not in admin.list_topics(timeout=10).topics)
    create(admin, NewTopic(topic, 2, 1))
    after = describe(admin, topic)
    assert str(after.topic_id) != str(before), "a new topic has a new id"
    assert len(after.partitions) == 2
    assert confluent.watermarks(topic) == (0, 0)
    confluent.produce(topic, [Record(b"new")])
    assert confluent.read(topic, 1)[0].value == b"new"


def test_a_topic_that_does_not_exist_cannot_be_deleted_or_described(
    admin: AdminClient, name: Name
) -> None:
    topic = name("missing")
    assert error_of(admin.delete_topics([topic])[topic]) == "UNKNOWN_TOPIC_OR_PART"
    described = admin.describe_topics(TopicCollection([topic]))[topic]
    assert error_of(described) == "UNKNOWN_TOPIC_OR_PART"


def test_describing_a_missing_topic_does_not_make_it(admin: AdminClient, name: Name) -> None:
    topic = name("missing")
    error_of(admin.describe_topics(TopicCollection([topic]))[topic])
    assert topic not in admin.list_topics(timeout=10).topics


def test_records_before_an_offset_can_be_deleted(
    admin: AdminClient, bootstrap: str, confluent: Confluent, topic: str
) -> None:
    confluent.produce(topic, [Record(b"%d" % n) for n in range(10)])
    place = TopicPartition(topic, 0, 4)
    assert admin.delete_records([place])[place].result(10).low_watermark == 4
    assert confluent.watermarks(topic) == (4, 10)
    source = consumer(bootstrap)
    source.assign([TopicPartition(topic, 0, 0)])
    assert take(source, 1)[0].value() == b"4"
    source.close()
    everything = TopicPartition(topic, 0, -1)
    assert admin.delete_records([everything])[everything].result(10).low_watermark == 10
    assert confluent.watermarks(topic) == (10, 10)
    confluent.produce(topic, [Record(b"10")])
    assert confluent.read(topic, 1, start=10)[0].value == b"10"


def test_records_that_are_not_there_cannot_be_deleted(
    admin: AdminClient, confluent: Confluent, topic: str
) -> None:
    confluent.produce(topic, [Record(b"only")])
    beyond = TopicPartition(topic, 0, 99)
    assert error_of(admin.delete_records([beyond])[beyond]) == "OFFSET_OUT_OF_RANGE"


def test_offsets_are_listed_by_every_kind_of_question(
    admin: AdminClient, confluent: Confluent, make_topic: MakeTopic
) -> None:
    topic = make_topic(retention_ms=-1)
    stamps = [1_600_000_000_000, 1_600_000_009_000, 1_600_000_003_000]
    confluent.produce(topic, [Record(b"v", timestamp=stamp) for stamp in stamps])
    place = TopicPartition(topic, 0)

    def ask(question: OffsetSpec) -> tuple[int, int]:
        future = admin.list_offsets(
            {place: question}, isolation_level=IsolationLevel.READ_UNCOMMITTED
        )[place]
        found = future.result(10)
        return found.offset, found.timestamp

    assert ask(OffsetSpec.earliest())[0] == 0
    assert ask(OffsetSpec.latest())[0] == 3
    assert ask(OffsetSpec.max_timestamp()) == (1, stamps[1])
    assert ask(OffsetSpec.for_timestamp(stamps[0] + 1)) == (1, stamps[1])
    assert ask(OffsetSpec.for_timestamp(stamps[1] + 1))[0] == -1


def test_the_leader_of_one_node_needs_no_election(admin: AdminClient, topic: str) -> None:
    place = TopicPartition(topic, 0)
    answered = admin.elect_leaders(ElectionType.PREFERRED, [place]).result(10)
    assert answered[place].name() == "ELECTION_NOT_NEEDED"


def test_an_election_for_an_unknown_partition_is_refused(admin: AdminClient, name: Name) -> None:
    place = TopicPartition(name("missing"), 0)
    answered = admin.elect_leaders(ElectionType.PREFERRED, [place]).result(10)
    assert answered[place].name() == "UNKNOWN_TOPIC_OR_PART"


def test_the_cluster_describes_itself(admin: AdminClient, bootstrap: str) -> None:
    described = admin.describe_cluster().result(10)
    assert described.cluster_id
    assert described.controller is not None
    (node,) = described.nodes
    assert f"{node.host}:{node.port}" == bootstrap


def test_the_internal_topics_are_marked_as_such(
    admin: AdminClient, bootstrap: str, confluent: Confluent, topic: str, name: Name
) -> None:
    confluent.produce(topic, [Record(b"v")])
    confluent.read_group(topic, name("group"), 1)
    internal = "__consumer_offsets"
    described = describe(admin, internal)
    assert described.is_internal
    assert len(described.partitions) == 50
