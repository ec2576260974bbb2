"""Consumer groups with kafka-python: its assignors, rebalances, static members and commits."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from support.clients import Record
from support.clients.confluent import Confluent
from support.clients.kafka_python import OffsetAndMetadata, TopicPartition, consumer, take
from support.waiting import eventually

Name = Callable[[str], str]
MakeTopic = Callable[..., str]
ASSIGNORS = [
    RangePartitionAssignor,
    RoundRobinPartitionAssignor,
    StickyPartitionAssignor,
    CooperativeStickyAssignor,
]


def member(bootstrap: str, group: str, topic: str, **options: Any) -> Any:
    settings = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 300}
    source = consumer(bootstrap, group, **{**settings, **options})
    source.subscribe([topic])
    return source


def owned(members: list[Any], counts: list[int], *, within: float = 30.0) -> list[Any]:
    """Poll until the members own so many partitions each; the records that came meanwhile."""
    came: list[Any] = []
    deadline = time.monotonic() + within
    while [len(one.assignment()) for one in members] != counts:
        assert time.monotonic() < deadline, [one.assignment() for one in members]
        for one in members:
            for messages in one.poll(timeout_ms=50).values():
                came += messages
    return came


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda one: one.name)
def test_two_members_share_the_partitions(
    bootstrap: str, make_topic: MakeTopic, name: Name, assignor: type
) -> None:
    topic, group = make_topic(partitions=4), name("group")
    options = {"partition_assignment_strategy": [assignor]}
    one = member(bootstrap, group, topic, **options)
    owned([one], [4])
    two = member(bootstrap, group, topic, **options)
    owned([one, two], [2, 2])
    assert not one.assignment() & two.assignment()
    two.close()
    owned([one], [4])
    one.close()


def test_a_rebalance_loses_no_record(
    bootstrap: str, make_topic: MakeTopic, name: Name, confluent: Confluent
) -> None:
    topic, group = make_topic(partitions=4), name("group")
    confluent.produce(topic, [Record(b"%d" % n, partition=n % 4) for n in range(400)])
    one = member(bootstrap, group, topic, max_poll_records=10)
    seen = take(one, 100, within=20)
    one.commit()
    two = member(bootstrap, group, topic, max_poll_records=10)
    seen += owned([one, two], [2, 2])
    deadline = time.monotonic() + 20
    while len({(each.partition, each.offset) for each in seen}) < 400:
        assert time.monotonic() < deadline
        for source in (one, two):
            for messages in source.poll(timeout_ms=50).values():
                seen += messages
    one.close()
    two.close()


def test_commits_carry_their_metadata(bootstrap: str, topic: str, name: Name) -> None:
    place = TopicPartition(topic, 0)
    source = member(bootstrap, name("group"), topic)
    owned([source], [1])
    source.commit({place: OffsetAndMetadata(12, "a note", -1)})
    found = eventually(lambda: source.committed(place, metadata=True))  # it asks in vain at times
    assert (found.offset, found.metadata) == (12, "a note")
    source.close()


def test_a_committed_offset_is_where_the_group_goes_on(
    bootstrap: str, topic: str, name: Name, confluent: Confluent
) -> None:
    group = name("group")
    confluent.produce(topic, [Record(b"%d" % n) for n in range(20)])
    for expected in (0, 10):
        source = member(bootstrap, group, topic)
        assert [one.offset for one in take(source, 10, within=20)] == list(
            range(expected, expected + 10)
        )
        source.commit()
        source.close()


def test_a_static_member_keeps_its_partitions_over_a_restart(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    topic, group = make_topic(partitions=4), name("group")
    one = member(bootstrap, group, topic, group_instance_id="one")
    two = member(bootstrap, group, topic, group_instance_id="two")
    owned([one, two], [2, 2])
    kept = set(one.assignment())
    one.close()
    again = member(bootstrap, group, topic, group_instance_id="one")
    owned([again, two], [2, 2])
    assert set(again.assignment()) == kept
    again.close()
    two.close()
