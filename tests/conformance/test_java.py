"""The Java client's scenarios (tests/conformance/java), each of which checks itself.

They run where Java and Maven are; where they are not, the end of the run says so.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.clients import Record
from support.clients.confluent import Confluent

Name = Callable[[str], str]
MakeTopic = Callable[..., str]
Run = Callable[..., list[str]]
PACKAGE = "org.apache.kafka.clients.consumer"


@pytest.mark.parametrize(
    "assignor",
    ["RangeAssignor", "RoundRobinAssignor", "StickyAssignor", "CooperativeStickyAssignor"],
)
def test_two_classic_members_share_the_partitions(
    java: Run, make_topic: MakeTopic, name: Name, assignor: str
) -> None:
    strategy = ("partition.assignment.strategy", f"{PACKAGE}.{assignor}")
    java("Groups.share", make_topic(partitions=4), name("group"), "classic", *strategy)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_two_members_of_the_new_protocol_share_the_partitions(
    java: Run, make_topic: MakeTopic, name: Name, assignor: str
) -> None:
    topic = make_topic(partitions=4)
    java("Groups.share", topic, name("group"), "consumer", "group.remote.assignor", assignor)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_commit_is_found_again_with_its_metadata(
    java: Run, topic: str, name: Name, confluent: Confluent, protocol: str
) -> None:
    confluent.produce(topic, [Record(b"%d" % n) for n in range(5)])
    java("Groups.commit", topic, name("group"), protocol)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_can_be_administered(java: Run, topic: str, name: Name, protocol: str) -> None:
    java("Groups.administer", topic, name("group"), protocol)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_positions_can_be_asked_for_and_changed(
    java: Run, topic: str, name: Name, confluent: Confluent, protocol: str
) -> None:
    confluent.produce(topic, [Record(b"%d" % n) for n in range(20)])
    java("Groups.positions", topic, name("group"), protocol)


def test_a_subscription_by_a_pattern_of_the_broker(
    java: Run, make_topic: MakeTopic, name: Name
) -> None:
    java("Groups.pattern", make_topic(), name("group"), "consumer")


def test_a_classic_member_and_a_new_one_share_a_group(
    java: Run, make_topic: MakeTopic, name: Name
) -> None:
    java("Groups.mixed", make_topic(partitions=4), name("group"))


@pytest.mark.parametrize("scenario", ["topics", "refusals", "cluster", "quotas"])
def test_admin_calls(java: Run, name: Name, scenario: str) -> None:
    java(f"AdminCalls.{scenario}", name(scenario))


def test_settings_come_with_their_synonyms_and_documentation(java: Run, topic: str) -> None:
    java("AdminCalls.configs", topic)


def test_offsets_are_listed_and_records_deleted(java: Run, make_topic: MakeTopic) -> None:
    java("AdminCalls.offsets", make_topic(retention_ms=-1))


def test_transactions_are_described_and_fenced(java: Run, topic: str, name: Name) -> None:
    java("AdminCalls.transactions", topic, name("tx"))
