"""Share groups (KIP-932) by raw requests: sessions, epochs, acknowledgements, offsets."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kio.schema.errors import ErrorCode as E

from support.clients import Record
from support.clients.confluent import Confluent
from support.share_member import ACCEPT, REJECT, RELEASE, RENEW, Member, acquired
from support.sharing import configure
from support.waiting import eventually
from support.wire import Wire

Name = Callable[[str], str]


@pytest.fixture
def make_member(
    connect: Callable[[], Wire], admin: AdminClient, name: Name, topic: str, confluent: Confluent
) -> Callable[..., Member]:
    """A member that has joined, of a new group or of `group`, over ten records."""
    groups: list[str] = []

    def make(group: str | None = None, version: int = 2, **settings: object) -> Member:
        if group is None:
            group = name("sharers")
            configure(admin, group, **{"share_auto_offset_reset": "earliest", **settings})
            if not groups:
                confluent.produce(topic, [Record(b"%d" % n) for n in range(10)])
            groups.append(group)
        member = Member(connect(), group, topic, version)
        member.join()
        return member

    return make


MakeMember = Callable[..., Member]


# --- members --------------------------------------------------------------------------------------


def test_a_heartbeat_answers_what_has_changed(make_member: MakeMember, topic: str) -> None:
    member = make_member()
    answer = member.heartbeat(0, [topic])
    again = member.heartbeat(answer.member_epoch)
    assert again.error_code is E.none
    assert again.member_epoch == answer.member_epoch
    assert again.assignment is None


def test_heartbeats_that_make_no_sense_are_refused(make_member: MakeMember, topic: str) -> None:
    member = make_member()
    assert member.heartbeat(999).error_code is E.fenced_member_epoch
    member.id = str(uuid.uuid4())
    assert member.heartbeat(1).error_code is E.unknown_member_id
    assert member.heartbeat(0).error_code is E.invalid_request
    assert member.heartbeat(-2).error_code is E.invalid_request
    member.id = ""
    assert member.heartbeat(0, [topic]).error_code is E.invalid_request


def test_a_member_that_leaves_is_gone(make_member: MakeMember) -> None:
    member = make_member()
    assert member.heartbeat(-1).member_epoch == -1
    assert member.heartbeat(1).error_code is E.unknown_member_id


def test_a_group_has_one_kind(make_member: MakeMember, connect: Callable[[], Wire]) -> None:
    member = make_member()
    request = {
        "group_id": member.group,
        "member_id": str(uuid.uuid4()),
        "member_epoch": 0,
        "rebalance_timeout": 60000,
        "subscribed_topic_names": [member.topic],
        "topic_partitions": [],
    }
    answer = connect().call("consumer_group_heartbeat", 1, request)
    assert answer.error_code is E.group_id_not_found


def test_describe_shows_members_and_what_they_read(make_member: MakeMember) -> None:
    member = make_member()
    request = {"group_ids": [member.group, "no-such-group"]}
    found, missing = member.wire.call("share_group_describe", 1, request).groups
    assert (found.group_state, found.assignor_name) == ("Stable", "simple")
    (described,) = found.members
    assert described.member_id == member.id
    assert described.assignment.topic_partitions[0].topic_name == member.topic
    assert missing.error_code is E.group_id_not_found


# --- sessions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
def test_a_session_counts_its_requests(make_member: MakeMember, version: int) -> None:
    member = make_member(version=version)
    assert member.fetch(epoch=5).error_code is E.share_session_not_found
    assert member.take() == [(0, 9, 1)]
    assert member.fetch(epoch=member.epoch + 1).error_code is E.invalid_share_session_epoch
    assert member.outcome((0, 9, ACCEPT)) is E.none
    refused = member.acknowledge((0, 9, ACCEPT), epoch=0)
    assert refused.error_code is E.invalid_share_session_epoch


def test_the_first_fetch_acknowledges_nothing(make_member: MakeMember) -> None:
    member = make_member()
    assert member.fetch(epoch=0, said=[(0, 0, ACCEPT)]).error_code is E.invalid_request


def test_the_last_request_lets_go_of_everything(make_member: MakeMember) -> None:
    member = make_member()
    member.take()
    closed = member.acknowledge((0, 3, ACCEPT), epoch=-1)
    assert closed.error_code is E.none
    assert member.acknowledge((4, 4, ACCEPT)).error_code is E.share_session_not_found
    other = make_member(member.group)
    assert other.take() == [(4, 9, 2)]


def test_a_lost_connection_lets_go_of_everything(make_member: MakeMember) -> None:
    member = make_member()
    member.take()
    member.wire.close()
    other = make_member(member.group)
    assert other.take() == [(0, 9, 2)]


def test_a_record_that_its_readers_die_of_comes_to_its_end(make_member: MakeMember) -> None:
    member = make_member(share_delivery_count_limit=2)
    for count in (1, 2):
        assert member.take(max_records=1, share_acquire_mode=1) == [(0, 0, count)]
        member.wire.close()
        member = make_member(member.group)
    assert member.take()[0][:2] == (1, 9)


def test_a_fetch_waits_for_records(make_member: MakeMember, confluent: Confluent) -> None:
    member = make_member(share_auto_offset_reset="latest")
    eventually(lambda: member.fetch(max_wait=100).responses == () and member.epoch > 1)
    confluent.produce(member.topic, [Record(b"new")])
    assert member.take(max_wait=5000)[0][2] == 1


@pytest.mark.own_broker  # Kafka is late with its answer
def test_an_unknown_topic_is_an_error_of_its_own(make_member: MakeMember) -> None:
    member = make_member()
    member.topic_id = uuid.uuid4()
    (topic,) = member.fetch().responses
    assert topic.partitions[0].error_code is E.unknown_topic_id


# --- acknowledging --------------------------------------------------------------------------------


def test_acknowledgements_may_come_with_a_fetch(make_member: MakeMember) -> None:
    member = make_member()
    member.take()
    answer = member.fetch(said=[(0, 4, ACCEPT), (5, 9, RELEASE)])
    assert acquired(answer) == [(5, 9, 2)]
    assert answer.responses[0].partitions[0].acknowledge_error_code == 0


def test_a_batch_may_say_something_else_of_each_record(make_member: MakeMember) -> None:
    member = make_member()
    member.take()
    kinds = [ACCEPT, RELEASE, REJECT, ACCEPT, RELEASE]
    assert member.outcome((0, 4, kinds), (5, 9, ACCEPT)) is E.none
    assert member.take() == [(1, 1, 2), (4, 4, 2)]


def test_what_a_member_does_not_hold_it_cannot_acknowledge(make_member: MakeMember) -> None:
    member = make_member()
    member.take()
    other = make_member(member.group)
    other.fetch(max_wait=0)
    assert other.outcome((3, 3, ACCEPT)) is E.invalid_record_state
    assert member.outcome((0, 9, ACCEPT)) is E.none


def test_an_acknowledgement_of_more_than_was_given_out_costs_nothing(
    make_member: MakeMember,
) -> None:
    member = make_member()
    member.take()
    for last in (10, 900, 1 << 60):
        assert member.outcome((0, last, ACCEPT)) is E.invalid_request
    assert member.outcome((900, 901, ACCEPT)) is E.invalid_request
    assert member.outcome((0, 9, ACCEPT)) is E.none


def test_one_wrong_record_spoils_the_partitions_acknowledgements(make_member: MakeMember) -> None:
    member = make_member()
    member.take()
    assert member.outcome((5, 5, RELEASE)) is E.none
    assert member.outcome((4, 4, ACCEPT), (5, 5, ACCEPT)) is E.invalid_record_state
    assert member.outcome((4, 4, ACCEPT)) is E.none


@pytest.mark.parametrize(
    "said",
    [
        [(5, 3, ACCEPT)],
        [(0, 3, ACCEPT), (2, 5, ACCEPT)],
        [(0, 3, [1, 1])],
        [(0, 0, 9)],
        [(0, 0, [])],
    ],
)
def test_acknowledgements_that_make_no_sense_are_refused(
    make_member: MakeMember, said: Any
) -> None:
    member = make_member()
    member.take()
    assert member.outcome(*said) is E.invalid_request


@pytest.mark.own_broker
def test_renewing_keeps_a_record(make_member: MakeMember) -> None:
    member = make_member(share_record_lock_duration_ms=1500)
    member.take()
    for _ in range(4):
        time.sleep(0.6)
        assert member.outcome((0, 0, RENEW), is_renew_ack=True) is E.none
    assert member.outcome((0, 0, ACCEPT)) is E.none
    assert member.outcome((1, 1, ACCEPT)) is E.invalid_record_state


def test_renewing_must_be_announced_and_allowed(make_member: MakeMember) -> None:
    member = make_member()
    member.take()
    assert member.outcome((0, 0, RENEW)) is E.invalid_request


def test_max_records_is_kept_when_asked_for(make_member: MakeMember) -> None:
    member = make_member()
    assert member.take(max_records=3, share_acquire_mode=1) == [(0, 2, 1)]
    assert member.take(max_records=3, share_acquire_mode=0) == [(3, 9, 1)]


# --- where groups stand ---------------------------------------------------------------------------


def offsets(member: Member, version: int = 1) -> Any:
    request = {"groups": [{"group_id": member.group, "topics": None}]}
    (group,) = member.wire.call("describe_share_group_offsets", version, request).groups
    return group


@pytest.mark.own_broker  # Kafka is late with its answer
def test_offsets_are_described(make_member: MakeMember) -> None:
    member = make_member()
    member.take()
    assert member.outcome((0, 3, ACCEPT), (7, 7, ACCEPT)) is E.none
    (topic,) = offsets(member).topics
    assert topic.partitions[0].start_offset == 4
    assert topic.partitions[0].lag == 5


@pytest.mark.own_broker  # Kafka is late with its answer
def test_offsets_of_an_empty_group_can_be_moved_and_forgotten(make_member: MakeMember) -> None:
    member = make_member()
    member.take()
    assert member.outcome((0, 9, ACCEPT)) is E.none
    wanted = {"partition_index": 0, "start_offset": 6}
    alter = {
        "group_id": member.group,
        "topics": [{"topic_name": member.topic, "partitions": [wanted]}],
    }
    refused = member.wire.call("alter_share_group_offsets", 0, alter)
    assert refused.error_code is E.non_empty_group
    member.acknowledge(epoch=-1)
    member.heartbeat(-1)
    altered = member.wire.call("alter_share_group_offsets", 0, alter)
    assert altered.responses[0].partitions[0].error_code is E.none
    other = make_member(member.group)
    assert other.take() == [(6, 9, 1)]
    other.acknowledge(epoch=-1)
    other.heartbeat(-1)
    forget = {"group_id": member.group, "topics": [{"topic_name": member.topic}]}
    gone = member.wire.call("delete_share_group_offsets", 0, forget)
    assert gone.responses[0].error_code is E.none
    assert offsets(member).topics == ()
    assert make_member(member.group).take() == [(0, 9, 1)]


def test_groups_are_listed_by_their_type(make_member: MakeMember) -> None:
    member = make_member()
    request = {"states_filter": [], "types_filter": ["share"]}
    found = member.wire.call("list_groups", 5, request).groups
    mine = [group for group in found if group.group_id == member.group]
    assert [(g.group_type, g.group_state, g.protocol_type) for g in mine] == [
        ("share", "Stable", "share")
    ]
