"""Share groups (KIP-932): confluent-kafka's ShareConsumer. Raw requests: test_share_rules.py."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from support.broker import BrokerProcess
from support.clients import Record
from support.clients.confluent import Confluent, producer
from support.sharing import ACCEPT, REJECT, RELEASE, Sharer, configure, values
from support.waiting import eventually

Name = Callable[[str], str]
MakeTopic = Callable[..., str]
MakeGroup = Callable[..., str]


@pytest.fixture
def make_group(admin: AdminClient, name: Name) -> MakeGroup:
    """A share group that reads from the beginning; its settings with underscores for dots."""

    def make(**settings: object) -> str:
        group = name("sharers")
        configure(admin, group, **{"share_auto_offset_reset": "earliest", **settings})
        return group

    return make


def fill(confluent: Confluent, topic: str, count: int, start: int = 0) -> list[bytes]:
    sent = [b"%d" % number for number in range(start, start + count)]
    confluent.produce(topic, [Record(value) for value in sent])
    return sent


# --- one member -----------------------------------------------------------------------------------


def test_a_member_is_given_every_record_once(
    bootstrap: str, topic: str, make_group: MakeGroup, confluent: Confluent
) -> None:
    sent = fill(confluent, topic, 200)
    with Sharer(bootstrap, make_group(), [topic]) as member:
        assert values(member.drain(len(sent))) == sent


def test_implicit_members_accept_with_the_next_poll(
    bootstrap: str, topic: str, make_group: MakeGroup, confluent: Confluent
) -> None:
    group, sent = make_group(), fill(confluent, topic, 10)
    with Sharer(bootstrap, group, [topic], share_acknowledgement_mode="implicit") as member:
        assert values(member.take(10)) == sent
        assert member.consumer.commit_sync(10)
    with Sharer(bootstrap, group, [topic]) as member:
        assert member.drain() == []


def test_latest_is_where_a_group_begins_by_itself(
    bootstrap: str, topic: str, name: Name, confluent: Confluent
) -> None:
    fill(confluent, topic, 5)
    with Sharer(bootstrap, name("sharers"), [topic]) as member:
        assert member.drain(quiet=7) == []  # it may take a heartbeat until it reads
        sent = fill(confluent, topic, 5, start=5)
        assert values(member.drain(len(sent))) == sent


def test_by_duration_begins_with_what_is_young_enough(
    bootstrap: str, topic: str, make_group: MakeGroup, confluent: Confluent
) -> None:
    old = int(time.time() * 1000) - 7_200_000
    confluent.produce(topic, [Record(b"old", timestamp=old)])
    confluent.produce(topic, [Record(b"young")])
    group = make_group(share_auto_offset_reset="by_duration:PT1H")
    with Sharer(bootstrap, group, [topic]) as member:
        assert values(member.drain(1)) == [b"young"]


def test_released_records_come_back_with_a_higher_count(
    bootstrap: str, topic: str, make_group: MakeGroup, confluent: Confluent
) -> None:
    fill(confluent, topic, 5)
    with Sharer(bootstrap, make_group(), [topic]) as member:
        first = member.take(5)
        assert [message.delivery_count() for message in first] == [1] * 5
        member.say(first[1:4], RELEASE)
        member.say([first[0], first[4]], ACCEPT)
        member.commit()
        again = member.take(3)
        assert values(again) == [b"1", b"2", b"3"]
        assert [message.delivery_count() for message in again] == [2] * 3
        member.say(again)
        member.commit()
        assert member.drain() == []


def test_rejected_records_do_not_come_back(
    bootstrap: str, topic: str, make_group: MakeGroup, confluent: Confluent
) -> None:
    fill(confluent, topic, 4)
    with Sharer(bootstrap, make_group(), [topic]) as member:
        taken = member.take(4)
        member.say(taken[:2], REJECT)
        member.say(taken[2:], RELEASE)
        member.commit()
        assert values(member.drain()) == [b"2", b"3"]


def test_a_record_is_given_out_as_often_as_the_limit_says(
    bootstrap: str, topic: str, make_group: MakeGroup, confluent: Confluent
) -> None:
    fill(confluent, topic, 1)
    with Sharer(bootstrap, make_group(share_delivery_count_limit=3), [topic]) as member:
        for count in (1, 2, 3):
            (message,) = member.take()
            assert message.delivery_count() == count
            member.say([message], RELEASE)
            member.commit()
        assert member.drain(quiet=2) == []


def test_acknowledging_by_offset_is_the_same(
    bootstrap: str, topic: str, make_group: MakeGroup, confluent: Confluent
) -> None:
    fill(confluent, topic, 2)
    with Sharer(bootstrap, make_group(), [topic]) as member:
        member.take(2)
        member.consumer.acknowledge_offset(topic, 0, 0, ACCEPT)
        member.consumer.acknowledge_offset(topic, 0, 1, RELEASE)
        member.commit()
        assert values(member.drain()) == [b"1"]


def test_the_callback_hears_of_acknowledgements(
    bootstrap: str, topic: str, make_group: MakeGroup, confluent: Confluent
) -> None:
    fill(confluent, topic, 3)
    heard: list[tuple[set[int], object]] = []
    with Sharer(bootstrap, make_group(), [topic]) as member:
        member.consumer.set_acknowledgement_commit_callback(
            lambda offsets, failure: heard.extend((set(some), failure) for some in offsets.values())
        )
        member.say(member.take(3))
        member.consumer.commit_async()
        eventually(lambda: member.poll() == [] and heard)
        member.consumer.set_acknowledgement_commit_callback(None)
    assert heard == [({0, 1, 2}, None)]


# --- many members ---------------------------------------------------------------------------------


def test_members_share_one_partition(
    bootstrap: str, topic: str, make_group: MakeGroup, confluent: Confluent
) -> None:
    group = make_group()
    with (
        Sharer(bootstrap, group, [topic], max_poll_records=10) as one,
        Sharer(bootstrap, group, [topic], max_poll_records=10) as two,
        Sharer(bootstrap, group, [topic], max_poll_records=10) as three,
    ):
        members = [one, two, three]
        seen: list[list[bytes]] = [[], [], []]
        sender = producer(bootstrap, linger_ms=0)
        sent: list[bytes] = []
        deadline = time.monotonic() + 30
        while not all(seen) and time.monotonic() < deadline:
            for _ in range(30):
                sent.append(b"%d" % len(sent))
                sender.produce(topic, sent[-1])
                sender.flush()
            for number, member in enumerate(members):
                found = member.poll(0.1)
                member.say(found)
                seen[number] += values(found)
        for number, member in enumerate(members):
            member.commit()
            seen[number] += values(member.drain(quiet=0.5))
    assert all(seen), "every member got some"
    assert Counter(value for some in seen for value in some) == Counter(sent)


def test_every_partition_is_read_whatever_the_number_of_members(
    bootstrap: str, make_topic: MakeTopic, make_group: MakeGroup, confluent: Confluent
) -> None:
    topic, group = make_topic(partitions=4), make_group()
    confluent.produce(topic, [Record(b"%d" % n, partition=n % 4) for n in range(100)])
    with Sharer(bootstrap, group, [topic]) as one, Sharer(bootstrap, group, [topic]) as two:
        seen: list[bytes] = []

        def all_seen() -> bool:
            for member in (one, two):
                found = member.poll(0.1)
                member.say(found)
                member.commit()
                seen.extend(values(found))
            return len(seen) >= 100

        eventually(all_seen, within=30)
    assert Counter(seen) == Counter(b"%d" % n for n in range(100))


def test_two_groups_do_not_know_of_each_other(
    bootstrap: str, topic: str, make_group: MakeGroup, confluent: Confluent
) -> None:
    sent = fill(confluent, topic, 20)
    with Sharer(bootstrap, make_group(), [topic]) as one:
        assert values(one.drain(len(sent))) == sent
    with Sharer(bootstrap, make_group(), [topic]) as other:
        assert values(other.drain(len(sent))) == sent


def test_what_a_closed_member_held_is_for_others_at_once(
    bootstrap: str, topic: str, make_group: MakeGroup, confluent: Confluent
) -> None:
    group, sent = make_group(), fill(confluent, topic, 5)
    with Sharer(bootstrap, group, [topic]) as member:
        member.take(5)
    with Sharer(bootstrap, group, [topic]) as other:
        assert values(other.take(5, within=10)) == sent


@pytest.mark.own_broker
def test_a_record_comes_back_when_its_lock_is_over(
    bootstrap: str, topic: str, make_group: MakeGroup, confluent: Confluent
) -> None:
    group = make_group(share_record_lock_duration_ms=1500)
    fill(confluent, topic, 3)
    with Sharer(bootstrap, group, [topic]) as slow:
        held = slow.take(3)
        started = time.monotonic()
        with Sharer(bootstrap, group, [topic]) as quick:
            again = quick.take(3)
            waited = time.monotonic() - started
            assert [message.delivery_count() for message in again] == [2] * 3
            assert waited > 1.0
            slow.say(held)
            (refusal,) = slow.consumer.commit_sync(10).values()
            assert refusal is not None
            assert refusal.args[0].name() == "INVALID_RECORD_STATE"
            quick.say(again)
            quick.commit()


@pytest.mark.own_broker
def test_no_more_records_are_out_than_there_may_be_locks(
    bootstrap: str, topic: str, make_group: MakeGroup
) -> None:
    group = make_group(share_partition_max_record_locks=100)
    sender = producer(bootstrap, linger_ms=0, batch_num_messages=1)
    for number in range(300):
        sender.produce(topic, b"%d" % number)
    sender.flush()
    with Sharer(bootstrap, group, [topic]) as greedy:
        held = greedy.take()
        with Sharer(bootstrap, group, [topic]) as other:
            found = other.poll(2.0)
            assert len(held) + len(found) <= 100
            other.say(found)
            other.commit()
            greedy.say(held)
            greedy.commit()


# --- transactions ---------------------------------------------------------------------------------


def transactions(bootstrap: str, topic: str, name: Name) -> None:
    sender = producer(bootstrap, transactional_id=name("txn"))
    sender.init_transactions(10)
    for number, commit in enumerate([True, False, True]):
        sender.begin_transaction()
        sender.produce(topic, b"%d" % number)
        sender.flush()
        (sender.commit_transaction if commit else sender.abort_transaction)(10)


@pytest.mark.parametrize(
    ("isolation", "expected"),
    [("read_committed", [b"0", b"2"]), ("read_uncommitted", [b"0", b"1", b"2"])],
)
def test_isolation_decides_whether_aborted_records_are_seen(
    bootstrap: str,
    topic: str,
    make_group: MakeGroup,
    name: Name,
    isolation: str,
    expected: list[bytes],
) -> None:
    transactions(bootstrap, topic, name)
    with Sharer(bootstrap, make_group(share_isolation_level=isolation), [topic]) as member:
        assert values(member.drain(len(expected))) == expected


# --- administration -------------------------------------------------------------------------------


def test_share_groups_are_deleted_like_others(
    bootstrap: str, topic: str, make_group: MakeGroup, admin: AdminClient, confluent: Confluent
) -> None:
    group, sent = make_group(), fill(confluent, topic, 3)
    with Sharer(bootstrap, group, [topic]) as member:
        assert values(member.drain(len(sent))) == sent
        (refused,) = admin.delete_consumer_groups([group]).values()
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            refused.result(10)
    eventually(lambda: admin.delete_consumer_groups([group])[group].exception(10) is None)
    with Sharer(bootstrap, group, [topic]) as member:
        assert values(member.drain(3)) == sent, "the new group of that name begins anew"


def test_a_topic_that_comes_later_is_read(
    bootstrap: str, name: Name, make_group: MakeGroup, confluent: Confluent, admin: AdminClient
) -> None:
    late = name("late")
    with Sharer(bootstrap, make_group(), [late]) as member:
        assert member.poll(1.0) == []
        (made,) = admin.create_topics([NewTopic(late, 1, 1)]).values()
        made.result(10)
        sent = fill(confluent, late, 5)
        assert values(member.take(5, within=30)) == sent


@pytest.mark.own_broker
def test_records_that_retention_took_are_done_with(
    bootstrap: str, topic: str, make_group: MakeGroup, confluent: Confluent, admin: AdminClient
) -> None:
    group = make_group()
    fill(confluent, topic, 10)
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 7)]).values()
    deleted.result(10)
    with Sharer(bootstrap, group, [topic]) as member:
        assert values(member.drain(3)) == [b"7", b"8", b"9"]


# --- dead letters (KIP-1191) ----------------------------------------------------------------------


@pytest.mark.own_broker
@pytest.mark.parametrize("copies", [True, False])
def test_dead_letters_say_where_they_come_from(
    bootstrap: str,
    topic: str,
    make_group: MakeGroup,
    make_topic: MakeTopic,
    confluent: Confluent,
    copies: bool,
) -> None:
    graveyard = make_topic("dlq.graveyard", errors_deadletterqueue_group_enable="true")
    group = make_group(
        share_delivery_count_limit=2,
        errors_deadletterqueue_topic_name=graveyard,
        errors_deadletterqueue_copy_record_enable=str(copies).lower(),
    )
    confluent.produce(topic, [Record(b"bad", b"key", (("h", b"1"),)), Record(b"worse")])
    with Sharer(bootstrap, group, [topic]) as member:
        bad, worse = member.take(2)
        member.say([bad], REJECT)
        member.say([worse], RELEASE)
        member.commit()
        (worse,) = member.take()
        member.say([worse], RELEASE)
        member.commit()
        first, second = confluent.read(graveyard, 2)
        assert member.drain() == []
    assert first.value == (b"bad" if copies else None)
    assert first.key == (b"key" if copies else None)
    why = dict(first.headers)
    assert ("h" in why) is copies
    assert why["__dlq.errors.topic"] == topic.encode()
    assert why["__dlq.errors.offset"] == b"0"
    assert why["__dlq.errors.group"] == group.encode()
    assert dict(second.headers)["__dlq.errors.delivery.count"] == b"2"


@pytest.mark.own_broker
def test_a_topic_that_does_not_allow_it_gets_no_dead_letters(
    bootstrap: str, topic: str, make_group: MakeGroup, make_topic: MakeTopic, confluent: Confluent
) -> None:
    closed = make_topic("dlq.closed")
    fill(confluent, topic, 2)
    group = make_group(errors_deadletterqueue_topic_name=closed)
    with Sharer(bootstrap, group, [topic]) as member:
        taken = member.take(2)
        member.say(taken, REJECT)
        member.commit()
        assert member.drain() == []  # they are let go all the same
    assert confluent.watermarks(closed) == (0, 0)


# --- restarts -------------------------------------------------------------------------------------


@pytest.mark.own_broker
@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_acknowledgements_survive(
    start_broker: Callable[..., BrokerProcess], ending: str, name: Name
) -> None:
    broker = start_broker()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topic, group = name("topic"), name("group")
    (made,) = admin.create_topics([NewTopic(topic, 1, 1)]).values()
    made.result(10)
    configure(admin, group, share_auto_offset_reset="earliest")
    confluent = Confluent(broker.bootstrap)
    fill(confluent, topic, 30)
    with Sharer(broker.bootstrap, group, [topic]) as member:
        taken = member.take(30)
        member.say(taken[:10], ACCEPT)
        member.say(taken[10:20:2], REJECT)
        member.say(taken[11:20:2], RELEASE)
        member.commit()  # the last ten stay in the member's hands
        getattr(broker, ending)()
        broker.start()
    with Sharer(broker.bootstrap, group, [topic]) as member:
        again = member.drain(15)
    assert sorted(int(value) for value in values(again)) == [11, 13, 15, 17, 19, *range(20, 30)]
    counts = {int(message.value()): message.delivery_count() for message in again}
    assert all(counts[number] >= 2 for number in (11, 13, 15, 17, 19))


# --- the Java client (tests/conformance/java/Shares.java) -----------------------------------------


@pytest.mark.parametrize("scenario", ["implicit", "explicit", "two", "administer"])
def test_the_java_client_shares(
    java: Callable[..., list[str]], topic: str, name: Name, confluent: Confluent, scenario: str
) -> None:
    fill(confluent, topic, 10)
    java(f"Shares.{scenario}", topic, name("sharers"))
