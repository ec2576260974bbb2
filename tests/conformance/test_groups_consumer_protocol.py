"""Groups of the new protocol (KIP-848), where the broker assigns: confluent-kafka and raw requests.

The Java client's share of it is in test_java.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from support.clients import Record
from support.clients.confluent import Confluent, consumer, producer, take
from support.members import Member, settled
from support.waiting import eventually
from support.wire import Wire

Name = Callable[[str], str]
MakeTopic = Callable[..., str]
NEW = {"group_protocol": "consumer"}


def test_one_member_gets_everything(
    bootstrap: str, make_topic: MakeTopic, name: Name, confluent: Confluent
) -> None:
    topic = make_topic(partitions=4)
    confluent.produce(topic, [Record(b"%d" % n, partition=n % 4) for n in range(100)])
    with Member(bootstrap, name("group"), [topic], **NEW) as member:
        settled([member], topic, 4)
        eventually(lambda: len(member.seen) == 100)
    assert not member.errors


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_brokers_assignors_share_evenly(
    bootstrap: str, make_topic: MakeTopic, name: Name, admin: AdminClient, assignor: str
) -> None:
    topic, group = make_topic(partitions=4), name("group")
    options = {**NEW, "group_remote_assignor": assignor}
    with (
        Member(bootstrap, group, [topic], **options) as one,
        Member(bootstrap, group, [topic], **options) as two,
    ):
        eventually(lambda: len(one.owned) == len(two.owned) == 2, within=20)
        settled([one, two], topic, 4)
        (described,) = admin.describe_consumer_groups([group]).values()
        found = described.result(10)
        assert found.partition_assignor == assignor
        assert found.type == ConsumerGroupType.CONSUMER
        eventually(
            lambda: (
                admin.describe_consumer_groups([group])[group].result(10).state
                == ConsumerGroupState.STABLE
            )
        )
        assert len(found.members) == 2


def test_an_unknown_assignor_is_refused(bootstrap: str, make_topic: MakeTopic, name: Name) -> None:
    topic = make_topic()
    options = {**NEW, "group_remote_assignor": "nonsense"}
    with Member(bootstrap, name("group"), [topic], **options) as member:
        eventually(lambda: member.errors)
        assert member.errors[0].name() in {"UNSUPPORTED_ASSIGNOR", "_FATAL"}


def test_rebalances_while_records_flow_lose_nothing(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    topic, group = make_topic(partitions=4), name("group")
    sender = producer(bootstrap)
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        for number in range(sent, sent + count):
            sender.produce(topic, b"%d" % number, partition=number % 4)
            sender.poll(0)
        sent += count

    members = [Member(bootstrap, group, [topic], **NEW)]
    settled(members, topic, 4)
    send(2000)
    members.append(Member(bootstrap, group, [topic], **NEW))
    send(2000)
    settled(members, topic, 4)
    send(2000)
    members[0].leave()
    send(2000)
    settled(members[1:], topic, 4)
    sender.flush(15)

    def seen() -> list[tuple[str, int, int]]:
        return [place for member in members for place in member.seen]

    eventually(lambda: len(set(seen())) == sent, within=30)
    members[1].leave()
    assert len(seen()) == sent, "a member that committed before it gave up saw a record twice"


def test_only_what_moves_is_taken_away(bootstrap: str, make_topic: MakeTopic, name: Name) -> None:
    topic, group = make_topic(partitions=4), name("group")
    with Member(bootstrap, group, [topic], **NEW) as one:
        settled([one], topic, 4)
        with Member(bootstrap, group, [topic], **NEW) as two:
            eventually(lambda: len(one.owned) == len(two.owned) == 2, within=20)
            assert set().union(*one.revoked) == two.owned
            assert not one.lost


def test_new_partitions_and_new_topics_reach_the_group(
    bootstrap: str, make_topic: MakeTopic, name: Name, admin: AdminClient
) -> None:
    topic, later = make_topic(), name("later")
    with Member(bootstrap, name("group"), [topic, later], **NEW) as member:
        settled([member], topic, 1)
        admin.create_partitions([NewPartitions(topic, 3)])[topic].result(10)
        settled([member], topic, 3)
        admin.create_topics([NewTopic(later, 2, 1)])[later].result(10)
        settled([member], later, 2)


def test_a_pattern_is_matched_by_the_broker(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    stem = name("pattern")
    first = make_topic(f"{stem}.a")
    with Member(bootstrap, name("group"), [f"^{stem}.*"], **NEW) as member:
        eventually(lambda: member.owned == {(first, 0)}, within=20)
        second = make_topic(f"{stem}.b")
        eventually(lambda: member.owned == {(first, 0), (second, 0)}, within=30)


def test_a_static_member_comes_back_to_its_partitions(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    topic, group = make_topic(partitions=4), name("group")
    one = Member(bootstrap, group, [topic], group_instance_id="one", **NEW)
    with Member(bootstrap, group, [topic], group_instance_id="two", **NEW) as two:
        eventually(lambda: len(one.owned) == len(two.owned) == 2, within=20)
        kept, rebalances = set(one.owned), len(two.assigned)
        one.leave()
        with Member(bootstrap, group, [topic], group_instance_id="one", **NEW) as again:
            eventually(lambda: again.owned == kept, within=20)
            assert len(two.assigned) == rebalances


def test_commits_continue_where_a_classic_group_of_the_same_name_ended(
    bootstrap: str, topic: str, name: Name, confluent: Confluent
) -> None:
    """An empty classic group becomes one of the new protocol and keeps its offsets, and back."""
    group = name("group")
    confluent.produce(topic, [Record(b"%d" % n) for n in range(30)])
    for protocol, expected in [("classic", 0), ("consumer", 10), ("classic", 20)]:
        source = consumer(bootstrap, group, group_protocol=protocol)
        source.subscribe([topic])
        assert take(source, 10, within=20)[0].offset() == expected
        source.commit(asynchronous=False)
        source.close()


def test_commits_carry_their_metadata(bootstrap: str, topic: str, name: Name) -> None:
    source = consumer(bootstrap, name("group"), **NEW)
    source.subscribe([topic])
    eventually(lambda: source.poll(0.1) is None and source.assignment(), within=20)
    source.commit(offsets=[TopicPartition(topic, 0, 3, "noted")], asynchronous=False)
    (found,) = source.committed([TopicPartition(topic, 0)], timeout=10)
    assert (found.offset, found.metadata) == (3, "noted")
    source.close()


def heartbeat(wire: Wire, group: str, member: str, epoch: int, **fields: Any) -> Any:
    values = {
        "group_id": group,
        "member_id": member,
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
    }
    return wire.call("consumer_group_heartbeat", 1, {**values, **fields})


def join(wire: Wire, group: str, topic: str) -> tuple[str, Any]:
    member = str(uuid.uuid4())
    answer = heartbeat(
        wire,
        group,
        member,
        0,
        rebalance_timeout=5000,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )
    assert answer.error_code.value == 0, answer
    return member, answer


def test_a_first_heartbeat_is_answered_with_epoch_and_assignment(
    wire: Wire, make_topic: MakeTopic, name: Name
) -> None:
    topic = make_topic(partitions=3)

    def assigned() -> list[int]:
        """In a group of its own: Kafka's coordinator may hear of a new topic a little later."""
        member, answer = join(wire, name("group"), topic)
        assert answer.member_id == member
        assert answer.member_epoch >= 1
        assert answer.heartbeat_interval.total_seconds() > 0
        return sorted(n for one in answer.assignment.topic_partitions for n in one.partitions)

    eventually(lambda: assigned() == [0, 1, 2])


def test_a_heartbeat_of_a_stale_epoch_is_fenced(wire: Wire, topic: str, name: Name) -> None:
    group = name("group")
    member, answer = join(wire, group, topic)
    stale = heartbeat(wire, group, member, answer.member_epoch + 5)
    assert stale.error_code.name == "fenced_member_epoch"


def test_a_heartbeat_of_an_unknown_member_is_refused(wire: Wire, topic: str, name: Name) -> None:
    group = name("group")
    join(wire, group, topic)
    answer = heartbeat(wire, group, str(uuid.uuid4()), 3)
    assert answer.error_code.name == "unknown_member_id"


def test_a_commit_with_a_stale_member_epoch_is_refused(wire: Wire, topic: str, name: Name) -> None:
    group = name("group")
    member, answer = join(wire, group, topic)
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}

    def commit(epoch: int) -> str:
        values = {
            "group_id": group,
            "generation_id_or_member_epoch": epoch,
            "member_id": member,
            "topics": [{"name": topic, "partitions": [partition]}],
        }
        answer = wire.call("offset_commit", 9, values)
        return str(answer.topics[0].partitions[0].error_code.name)

    assert commit(answer.member_epoch) == "none"
    assert commit(answer.member_epoch + 1) == "stale_member_epoch"


class Reader:
    """A member that takes and gives back partitions of one topic at once."""

    def __init__(self, wire: Wire, group: str, topic: str) -> None:
        self.wire, self.group, self.topic = wire, group, topic
        self.topic_id = wire.call("metadata", 12, {"topics": [{"name": topic}]}).topics[0].topic_id
        self.member, joined = join(wire, group, topic)
        self.epoch, self.owned = joined.member_epoch, _partitions(joined)

    def beat(self) -> list[int]:
        mine = [{"topic_id": self.topic_id, "partitions": self.owned}] if self.owned else []
        asked = {"group_id": self.group, "member_id": self.member, "member_epoch": self.epoch}
        values = {**asked, "rebalance_timeout": -1, "topic_partitions": mine}
        answer = self.wire.call("consumer_group_heartbeat", 1, values)
        assert answer.error_code.value == 0, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = _partitions(answer)
        return self.owned

    def commit(self, epoch: int, partition: int) -> str:
        committed = {"partition_index": partition, "committed_offset": 1}
        values = {
            "group_id": self.group,
            "generation_id_or_member_epoch": epoch,
            "member_id": self.member,
            "topics": [{"name": self.topic, "partitions": [committed]}],
        }
        answer = self.wire.call("offset_commit", 9, values)
        return str(answer.topics[0].partitions[0].error_code.name)


def _partitions(answer: Any) -> list[int]:
    topics = answer.assignment.topic_partitions if answer.assignment is not None else ()
    return [index for topic in topics for index in topic.partitions]


def test_a_commit_that_crosses_a_rebalance_counts_for_what_the_member_kept(
    wire: Wire, make_topic: Callable[..., str], name: Name
) -> None:
    group, topic = name("group"), make_topic(partitions=2)
    first = Reader(wire, group, topic)
    eventually(lambda: len(first.beat()) == 2)
    before = first.epoch
    second = Reader(wire, group, topic)
    eventually(lambda: len(first.beat()) == len(second.beat()) == 1)
    assert first.epoch > before
    assert first.commit(before, first.owned[0]) == "none"
    assert first.commit(before, second.owned[0]) == "stale_member_epoch"


def test_a_silent_member_is_dropped_after_the_session_time_out(
    wire: Wire, topic: str, name: Name, admin: AdminClient
) -> None:
    """The time-out is a setting of the group, so that the test need not wait for the default."""
    group = name("group")
    setting = "consumer.session.timeout.ms"
    entry = ConfigEntry(setting, "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(10)
    member, answer = join(wire, group, topic)

    def dropped() -> bool:
        found = admin.describe_consumer_groups([group])[group].result(10)
        return not found.members

    eventually(dropped, within=10)
    late = heartbeat(wire, group, member, answer.member_epoch)
    assert late.error_code.name == "unknown_member_id"


def test_a_member_that_leaves_is_gone_at_once(wire: Wire, topic: str, name: Name) -> None:
    group = name("group")
    member, _ = join(wire, group, topic)
    assert heartbeat(wire, group, member, -1).error_code.value == 0
    answer = wire.call("consumer_group_describe", 1, {"group_ids": [group]})
    (described,) = answer.groups
    assert described.group_state.lower() == "empty"
    assert described.members == ()
