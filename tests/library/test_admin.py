"""Administration, in both homes."""

from __future__ import annotations

import pytest

import penstock
from penstock import Client, TopicPartition
from support.naming import unique


def test_topics_are_created_listed_described_and_deleted(mq: Client) -> None:
    name = unique("admin")
    mq.admin.create_topic(name, partitions=3, config={"retention_ms": 3_600_000})
    assert name in mq.admin.topics()
    mq.publish_many(name, ["a", "b", "c"], partition=1)
    info = mq.admin.topic(name)
    assert (info.name, info.partition_count, info.message_count) == (name, 3, 3)
    assert [(p.start_offset, p.end_offset) for p in info.partitions] == [(0, 0), (0, 3), (0, 0)]
    assert info.config == {"retention.ms": "3600000"}
    mq.admin.delete_topic(name)
    assert name not in mq.admin.topics()
    with pytest.raises(penstock.NotFound):
        mq.admin.topic(name)


def test_settings_change_and_go_back(mq: Client, topic: str) -> None:
    mq.admin.alter_topic(topic, {"max.message.bytes": 5_000, "cleanup_policy": "compact"})
    config = mq.admin.topic_config(topic)
    assert (config["max.message.bytes"], config["cleanup.policy"]) == ("5000", "compact")
    mq.admin.alter_topic(topic, {"max.message.bytes": None})
    assert mq.admin.topic_config(topic)["max.message.bytes"] == "1048588"
    with pytest.raises(penstock.InvalidArgument):
        mq.admin.alter_topic(topic, {"no.such.setting": 1})


def test_a_compacted_topic_wants_keys(mq: Client, topic: str, home: str) -> None:
    mq.admin.alter_topic(topic, {"cleanup.policy": "compact"})
    with pytest.raises(penstock.InvalidArgument):
        mq.publish(topic, "no key")
    assert mq.publish(topic, "good", key="k").offset == 0
    if home == "network":
        return  # there librdkafka lets all that went in one batch fail together
    futures = [mq.send(topic, "good", key="k"), mq.send(topic, "bad"), mq.send(topic, "k", key="k")]
    assert futures[0].result(10).offset == 1
    assert isinstance(futures[1].exception(10), penstock.InvalidArgument)
    assert futures[2].result(10).offset == 2


@pytest.mark.own_broker
def test_topics_of_the_server_are_not_listed(mq: Client) -> None:
    queue = mq.queue(unique("queue"))
    queue.publish("in a day", delay=86_400)  # long delays lie in topics of the server's own
    assert not [name for name in mq.admin.topics() if name.startswith("__")]
    assert queue.name in mq.admin.topics()


def test_partitions_are_added(mq: Client, topic: str) -> None:
    mq.admin.add_partitions(topic, 3)
    assert mq.admin.topic(topic).partition_count == 3
    with pytest.raises(penstock.InvalidArgument):
        mq.admin.add_partitions(topic, 2)


def test_what_is_wrong_is_said(mq: Client, topic: str) -> None:
    with pytest.raises(penstock.AlreadyExists):
        mq.admin.create_topic(topic)
    with pytest.raises(penstock.InvalidArgument):
        mq.admin.create_topic("no spaces please")
    with pytest.raises(penstock.InvalidArgument):
        mq.admin.create_topic(unique("none"), partitions=0)
    with pytest.raises(penstock.NotFound):
        mq.admin.delete_topic(unique("nothing"))
    with pytest.raises(penstock.NotFound):
        mq.admin.group(unique("nobody"))
    with pytest.raises(penstock.NotFound):
        mq.admin.delete_group(unique("nobody"))


def test_groups_show_members_offsets_and_lag(mq: Client, topic: str, group: str) -> None:
    mq.publish_many(topic, [str(n) for n in range(10)])
    with mq.subscribe(topic, group=group) as messages:
        for _ in range(4):
            next(messages)
        messages.commit()
        info = mq.admin.group(group)
        assert info.consumer_count == 1
        assert info.members[0].assignment == (TopicPartition(topic, 0),)
        assert info.offsets == {TopicPartition(topic, 0): 4}
        assert (info.total_lag, info.state) == (6, "Stable")
        assert group in mq.admin.groups()
        with pytest.raises(penstock.Conflict):
            mq.admin.delete_group(group)
    mq.admin.delete_group(group)
    assert group not in mq.admin.groups()


def test_a_group_is_moved(mq: Client, topic: str, group: str) -> None:
    mq.publish_many(topic, [str(n) for n in range(10)])
    mq.admin.set_group_offsets(group, {(topic, 0): 7})
    with mq.subscribe(topic, group=group) as messages:
        assert next(messages).text == "7"
    mq.admin.reset_group(group, topic)
    with mq.subscribe(topic, group=group) as messages:
        assert next(messages).text == "0"
    mq.admin.reset_group(group, topic, to="latest")
    assert mq.admin.group(group).total_lag == 0


def test_records_are_deleted(mq: Client, topic: str) -> None:
    mq.publish_many(topic, [str(n) for n in range(10)])
    mq.admin.delete_records(topic, 0, before=4)
    assert [message.text for message in mq.read(topic)] == ["4", "5", "6", "7", "8", "9"]
    mq.admin.delete_records(topic, 0, before=-1)
    assert list(mq.read(topic)) == []


def test_the_server_tells_who_it_is(mq: Client, topic: str) -> None:
    info = mq.admin.cluster()
    assert len(info.cluster_id) == 22
    assert info.topic_count >= 1


def test_internal_topics_are_left_alone(mq: Client, topic: str, group: str) -> None:
    mq.publish(topic, "a")
    with mq.subscribe(topic, group=group) as messages:
        next(messages)
    assert not [name for name in mq.admin.topics() if name.startswith("__")]
    with pytest.raises(penstock.PenstockError):
        mq.publish("__consumer_offsets", b"no", timeout=20)
