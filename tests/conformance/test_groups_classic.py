"""Classic consumer groups: assignment, rebalances, static members, commits (confluent-kafka)."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from support.clients import Record
from support.clients.confluent import Confluent, consumer, producer, take
from support.clients.kcat import install
from support.members import Member, settled
from support.waiting import eventually

Name = Callable[[str], str]
MakeTopic = Callable[..., str]


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_two_members_share_the_partitions_evenly(
    bootstrap: str, make_topic: MakeTopic, name: Name, strategy: str
) -> None:
    topic, group = make_topic(partitions=4), name("group")
    options = {"partition_assignment_strategy": strategy}
    with (
        Member(bootstrap, group, [topic], **options) as one,
        Member(bootstrap, group, [topic], **options) as two,
    ):
        eventually(lambda: len(one.owned) == len(two.owned) == 2, within=20)
        settled([one, two], topic, 4)
    assert not one.errors + two.errors


def test_members_with_different_strategies_use_the_one_they_share(
    bootstrap: str, make_topic: MakeTopic, name: Name, admin: AdminClient
) -> None:
    topic, group = make_topic(partitions=4), name("group")
    with (
        Member(bootstrap, group, [topic], partition_assignment_strategy="range,roundrobin") as one,
        Member(bootstrap, group, [topic], partition_assignment_strategy="roundrobin") as two,
    ):
        eventually(lambda: len(one.owned) == len(two.owned) == 2, within=20)
        (described,) = admin.describe_consumer_groups([group]).values()
        assert described.result().partition_assignor == "roundrobin"


def test_a_member_without_a_common_strategy_is_refused(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    topic, group = make_topic(partitions=1), name("group")
    with Member(bootstrap, group, [topic], partition_assignment_strategy="range") as one:
        settled([one], topic, 1)
        with Member(bootstrap, group, [topic], partition_assignment_strategy="roundrobin") as two:
            eventually(lambda: [error.name() for error in two.errors])
            assert two.errors[0].name() == "INCONSISTENT_GROUP_PROTOCOL"


def test_more_members_than_partitions_leave_some_idle(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    topic, group = make_topic(partitions=2), name("group")
    members = [Member(bootstrap, group, [topic]) for _ in range(3)]
    eventually(lambda: sorted(len(member.owned) for member in members) == [0, 1, 1], within=20)
    settled(members, topic, 2)
    for member in members:
        member.leave()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_rebalances_while_records_flow_lose_nothing(
    bootstrap: str, make_topic: MakeTopic, name: Name, strategy: str
) -> None:
    """Members that commit before they give partitions up see every record, and see it once."""
    topic, group = make_topic(partitions=4), name("group")
    options = {"partition_assignment_strategy": strategy}
    sender = producer(bootstrap)
    sent = 0

    def send(count: int) -> None:
        nonlocal sent
        for number in range(sent, sent + count):
            sender.produce(topic, b"%d" % number, partition=number % 4)
            sender.poll(0)
        sent += count

    members = [Member(bootstrap, group, [topic], **options)]
    settled(members, topic, 4)
    send(2000)
    members.append(Member(bootstrap, group, [topic], **options))
    send(2000)
    settled(members, topic, 4)
    send(2000)
    members.append(Member(bootstrap, group, [topic], **options))
    send(2000)
    settled(members, topic, 4)
    members[0].leave()
    send(2000)
    settled(members[1:], topic, 4)
    send(2000)
    sender.flush(15)

    def seen() -> list[tuple[str, int, int]]:
        return [place for member in members for place in member.seen]

    eventually(lambda: len(set(seen())) == sent, within=30)
    for member in members[1:]:
        member.leave()
    everything = seen()
    assert len(everything) == sent, f"{len(everything) - sent} records were seen twice"
    for member in members:
        for partition in range(4):
            offsets = [offset for _, where, offset in member.seen if where == partition]
            assert offsets == sorted(offsets)


def test_a_cooperative_rebalance_takes_away_only_what_moves(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    topic, group = make_topic(partitions=4), name("group")
    options = {"partition_assignment_strategy": "cooperative-sticky"}
    with Member(bootstrap, group, [topic], **options) as one:
        settled([one], topic, 4)
        with Member(bootstrap, group, [topic], **options) as two:
            eventually(lambda: len(one.owned) == len(two.owned) == 2, within=20)
            assert set().union(*one.revoked) == two.owned
            assert one.lost == []


def test_a_killed_member_is_noticed_and_its_partitions_move(
    bootstrap: str, make_topic: MakeTopic, name: Name, confluent: Confluent
) -> None:
    if why := install():
        pytest.skip(why)
    topic, group = make_topic(partitions=2), name("group")
    confluent.produce(topic, [Record(b"0", partition=0), Record(b"1", partition=1)])
    command = ["kcat", "-b", bootstrap, "-q", "-u", "-X", "session.timeout.ms=1500"]
    command += ["-X", "heartbeat.interval.ms=300", "-X", "auto.offset.reset=earliest"]
    victim = subprocess.Popen(
        [*command, "-G", group, topic], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert victim.stdout is not None
    assert victim.stdout.readline()
    options = {"partition_assignment_strategy": "range", "session_timeout_ms": 1500}
    with Member(bootstrap, group, [topic], **options) as survivor:
        eventually(lambda: len(survivor.owned) == 1, within=20)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
        settled([survivor], topic, 2)


def test_a_member_that_stops_polling_loses_its_place(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    topic, group = make_topic(), name("group")
    slow = consumer(bootstrap, group, session_timeout_ms=1500, max_poll_interval_ms=1500)
    slow.subscribe([topic])
    eventually(lambda: slow.poll(0.1) is None and slow.assignment(), within=20)
    with Member(bootstrap, group, [topic]) as other:
        settled([other], topic, 1)
    slow.close()


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    topic, group = make_topic(partitions=4), name("group")
    options = {"session_timeout_ms": 10_000, "partition_assignment_strategy": "range"}
    one = Member(bootstrap, group, [topic], group_instance_id="one", **options)
    with Member(bootstrap, group, [topic], group_instance_id="two", **options) as two:
        eventually(lambda: len(one.owned) == len(two.owned) == 2, within=20)
        kept, rebalances = set(one.owned), len(two.assigned)
        one.leave()
        with Member(bootstrap, group, [topic], group_instance_id="one", **options) as again:
            eventually(lambda: again.owned == kept, within=20)
            assert len(two.assigned) == rebalances


def test_the_older_of_two_members_with_one_instance_id_is_fenced(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    topic, group = make_topic(), name("group")
    with Member(bootstrap, group, [topic], group_instance_id="same") as older:
        settled([older], topic, 1)
        with Member(bootstrap, group, [topic], group_instance_id="same") as newer:
            settled([newer], topic, 1)
            eventually(lambda: older.errors)
            assert {error.name() for error in older.errors} <= {"_FATAL", "FENCED_INSTANCE_ID"}


def test_commits_carry_their_metadata(bootstrap: str, make_topic: MakeTopic, name: Name) -> None:
    topic, group = make_topic(partitions=2), name("group")
    source = consumer(bootstrap, group)
    places = [TopicPartition(topic, 0, 7, "first 🐟"), TopicPartition(topic, 1, 9, "")]
    source.commit(offsets=places, asynchronous=False)
    found = source.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=10)
    assert [(one.offset, one.metadata or "") for one in found] == [(7, "first 🐟"), (9, "")]
    source.close()


def test_metadata_over_its_limit_is_refused(bootstrap: str, topic: str, name: Name) -> None:
    source = consumer(bootstrap, name("group"))
    place = TopicPartition(topic, 0, 1, "m" * 5000)
    with pytest.raises(KafkaException, match="OFFSET_METADATA_TOO_LARGE"):
        source.commit(offsets=[place], asynchronous=False)
    source.close()


def test_a_partition_without_a_commit_has_no_committed_offset(
    bootstrap: str, topic: str, name: Name
) -> None:
    source = consumer(bootstrap, name("group"))
    (found,) = source.committed([TopicPartition(topic, 0)], timeout=10)
    assert found.offset == -1001
    assert found.error is None
    source.close()


def test_a_commit_for_a_topic_that_does_not_exist_is_refused(bootstrap: str, name: Name) -> None:
    source = consumer(bootstrap, name("group"))
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PART"):
        source.commit(offsets=[TopicPartition(name("missing"), 0, 1)], asynchronous=False)
    source.close()


def test_a_new_group_that_wants_the_earliest_starts_at_the_beginning(
    bootstrap: str, topic: str, name: Name, confluent: Confluent
) -> None:
    confluent.produce(topic, [Record(b"%d" % n) for n in range(10)])
    source = consumer(bootstrap, name("group"), auto_offset_reset="earliest")
    source.subscribe([topic])
    assert take(source, 1)[0].offset() == 0
    source.close()


def test_a_new_group_that_wants_the_latest_sees_only_what_comes(
    bootstrap: str, topic: str, name: Name, confluent: Confluent
) -> None:
    confluent.produce(topic, [Record(b"%d" % n) for n in range(10)])
    with Member(bootstrap, name("group"), [topic], auto_offset_reset="latest") as member:
        settled([member], topic, 1)

        def one_arrived() -> bool:
            confluent.produce(topic, [Record(b"more")])
            return bool(member.seen)

        eventually(one_arrived, every=0.2)
        assert member.seen[0][2] >= 10


def test_a_new_group_without_a_policy_is_told_that_it_has_no_offset(
    bootstrap: str, topic: str, name: Name
) -> None:
    with Member(bootstrap, name("group"), [topic], auto_offset_reset="error") as member:
        eventually(lambda: member.errors)
        assert member.errors[0].name() == "_AUTO_OFFSET_RESET"


def test_auto_commit_remembers_what_was_handed_out(
    bootstrap: str, topic: str, name: Name, confluent: Confluent
) -> None:
    group = name("group")
    confluent.produce(topic, [Record(b"%d" % n) for n in range(20)])
    for expected in (0, 10):
        source = consumer(bootstrap, group, enable_auto_commit=True)
        source.subscribe([topic])
        assert take(source, 10)[0].offset() == expected
        source.close()


def test_a_subscription_by_pattern_finds_topics_that_come_later(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    stem = name("pattern")
    first = make_topic(stem)
    options = {"topic_metadata_refresh_interval_ms": 500}
    with Member(bootstrap, name("group"), [f"^{stem}.*"], **options) as member:
        eventually(lambda: member.owned == {(first, 0)}, within=20)
        second = make_topic(stem)
        eventually(lambda: member.owned == {(first, 0), (second, 0)}, within=20)


def test_new_partitions_are_given_to_the_group(
    bootstrap: str, topic: str, name: Name, admin: AdminClient
) -> None:
    options = {"topic_metadata_refresh_interval_ms": 500}
    with Member(bootstrap, name("group"), [topic], **options) as member:
        settled([member], topic, 1)
        (grown,) = admin.create_partitions([NewPartitions(topic, 3)]).values()
        grown.result(10)
        settled([member], topic, 3)
