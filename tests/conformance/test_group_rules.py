"""The small print of the classic group protocol, by raw requests: what no client shows."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest

from support.waiting import eventually
from support.wire import Wire, create_topic

Connect = Callable[[], Wire]
Name = Callable[[str], str]
# Version 0, one topic named "t", no user data, as consumers write it.
SUBSCRIPTION = struct.pack(">hih1si", 0, 1, 1, b"t", -1)


def join(
    wire: Wire,
    group: str,
    member: str = "",
    *,
    instance: str | None = None,
    protocols: tuple[str, ...] = ("range",),
    version: int = 9,
    session: int = 10_000,
    kind: str = "consumer",
    wait: bool = True,
) -> Any:
    values = {
        "group_id": group,
        "session_timeout": session,
        "rebalance_timeout": 10_000,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": kind,
        "protocols": [{"name": one, "metadata": SUBSCRIPTION} for one in protocols],
        "reason": None,
    }
    wire.send("join_group", version, values)
    return wire.receive() if wait else None


def enter(wire: Wire, group: str, **options: Any) -> Any:
    """Join as a new member: get an id first where the protocol wants that (KIP-394)."""
    answer = join(wire, group, **options)
    if answer.error_code.name == "member_id_required":
        answer = join(wire, group, answer.member_id, **options)
    assert answer.error_code.value == 0, answer
    return answer


def sync(
    wire: Wire, group: str, member: str, generation: int, share: dict[str, bytes] | None = None
) -> Any:
    shares = [{"member_id": who, "assignment": what} for who, what in (share or {}).items()]
    values = {
        "group_id": group,
        "generation_id": generation,
        "member_id": member,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": shares,
    }
    return wire.call("sync_group", 5, values)


def heartbeat(wire: Wire, group: str, member: str, generation: int, *, version: int = 4) -> str:
    values = {"group_id": group, "generation_id": generation, "member_id": member}
    return str(wire.call("heartbeat", version, values).error_code.name)


def leave(wire: Wire, group: str, member: str) -> Any:
    members = [{"member_id": member, "group_instance_id": None}]
    values = {"group_id": group, "member_id": member, "members": members}
    return wire.call("leave_group", 5, values)


def stable(wire: Wire, group: str, **options: Any) -> tuple[str, int]:
    """A group with one member and its assignment; (member id, generation)."""
    answer = enter(wire, group, **options)
    assert answer.leader == answer.member_id
    synced = sync(wire, group, answer.member_id, answer.generation_id, {answer.member_id: b"all"})
    assert synced.error_code.value == 0
    assert bytes(synced.assignment) == b"all"
    return answer.member_id, answer.generation_id


def commit(wire: Wire, group: str, topic: str, **fields: Any) -> str:
    partition = {"partition_index": 0, "committed_offset": 3, "committed_metadata": "m"}
    values = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic, "partitions": [partition]}],
    }
    answer = wire.call("offset_commit", 8, {**values, **fields})
    return str(answer.topics[0].partitions[0].error_code.name)


def test_a_new_member_is_told_its_id_and_asked_to_come_again(wire: Wire, name: Name) -> None:
    group = name("group")
    first = join(wire, group)
    assert first.error_code.name == "member_id_required"
    assert first.member_id
    second = join(wire, group, first.member_id)
    assert second.error_code.value == 0
    assert second.member_id == first.member_id


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_old_versions_let_a_new_member_in_at_once(wire: Wire, name: Name, version: int) -> None:
    answer = join(wire, name("group"), version=version)
    assert answer.error_code.value == 0
    assert answer.leader == answer.member_id


@pytest.mark.parametrize("version", range(4, 10))
def test_every_version_tells_the_leader_who_is_in_the_group(
    wire: Wire, name: Name, version: int
) -> None:
    answer = enter(wire, name("group"), version=version, protocols=("range", "roundrobin"))
    assert answer.generation_id == 1
    assert answer.protocol_name == "range"
    assert answer.leader == answer.member_id
    (member,) = answer.members
    assert (member.member_id, bytes(member.metadata)) == (answer.member_id, SUBSCRIPTION)


def test_a_static_member_needs_no_second_request(wire: Wire, name: Name) -> None:
    answer = join(wire, name("group"), instance="one")
    assert answer.error_code.value == 0


def test_an_unknown_member_is_refused_everywhere(wire: Wire, name: Name) -> None:
    group = name("group")
    _, generation = stable(wire, group)
    assert join(wire, group, "stranger").error_code.name == "unknown_member_id"
    assert sync(wire, group, "stranger", generation).error_code.name == "unknown_member_id"
    assert heartbeat(wire, group, "stranger", generation) == "unknown_member_id"
    left = leave(wire, group, "stranger")
    assert left.members[0].error_code.name == "unknown_member_id"


def test_a_stale_generation_is_refused_everywhere(wire: Wire, name: Name) -> None:
    group, topic = name("group"), name("topic")
    create_topic(wire, topic)
    member, generation = stable(wire, group)
    assert heartbeat(wire, group, member, generation) == "none"
    assert heartbeat(wire, group, member, generation + 1) == "illegal_generation"
    assert sync(wire, group, member, generation - 1).error_code.name == "illegal_generation"
    fields = {"member_id": member, "generation_id_or_member_epoch": generation - 1}
    assert commit(wire, group, topic, **fields) == "illegal_generation"
    fields["generation_id_or_member_epoch"] = generation
    assert commit(wire, group, topic, **fields) == "none"


def test_a_commit_from_outside_a_group_with_members_is_refused(wire: Wire, name: Name) -> None:
    group, topic = name("group"), name("topic")
    create_topic(wire, topic)
    assert commit(wire, group, topic) == "none", "an empty group takes it"
    stable(wire, group)
    assert commit(wire, group, topic) == "unknown_member_id"


def test_members_are_told_of_a_rebalance_by_their_heartbeat(connect: Connect, name: Name) -> None:
    group = name("group")
    one, two = connect(), connect()
    member, generation = stable(one, group)
    came = join(two, group)
    join(two, group, came.member_id, wait=False)
    eventually(lambda: heartbeat(one, group, member, generation) == "rebalance_in_progress")
    answer = join(one, group, member)
    assert answer.generation_id == generation + 1
    assert {each.member_id for each in answer.members} == {member, came.member_id}
    joined = two.receive()
    assert joined.generation_id == generation + 1
    assert joined.members == ()
    assert joined.leader == member


def test_followers_wait_for_the_leaders_assignment(connect: Connect, name: Name) -> None:
    group = name("group")
    one, two = connect(), connect()
    member, _ = stable(one, group)
    came = join(two, group)
    join(two, group, came.member_id, wait=False)
    generation = join(one, group, member).generation_id
    two.receive()
    two.send(
        "sync_group",
        5,
        {
            "group_id": group,
            "generation_id": generation,
            "member_id": came.member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
        },
    )
    two.socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        two.socket.recv(1)
    two.socket.settimeout(15)
    share = {member: b"for one", came.member_id: b"for two"}
    assert bytes(sync(one, group, member, generation, share).assignment) == b"for one"
    assert bytes(two.receive().assignment) == b"for two"


def test_a_group_of_another_kind_is_not_joined(connect: Connect, name: Name) -> None:
    group = name("group")
    stable(connect(), group)
    answer = join(connect(), group, kind="connect")
    assert answer.error_code.name == "inconsistent_group_protocol"


@pytest.mark.parametrize("session", [1, 10_000_000])
def test_a_session_time_out_outside_the_limits_is_refused(
    wire: Wire, name: Name, session: int
) -> None:
    answer = join(wire, name("group"), session=session)
    assert answer.error_code.name == "invalid_session_timeout"


def test_a_group_without_a_name_is_refused(wire: Wire) -> None:
    assert join(wire, "").error_code.name == "invalid_group_id"


def test_a_static_member_that_joins_again_replaces_itself(connect: Connect, name: Name) -> None:
    group = name("group")
    one, two = connect(), connect()
    old, generation = stable(one, group, instance="same")
    answer = join(two, group, instance="same")
    assert answer.error_code.value == 0
    assert answer.member_id != old
    assert answer.generation_id == generation, "no rebalance for the same subscription"
    values = {
        "group_id": group,
        "generation_id": generation,
        "member_id": old,
        "group_instance_id": "same",
    }
    assert one.call("heartbeat", 4, values).error_code.name == "fenced_instance_id"


def test_a_session_that_times_out_empties_the_group(wire: Wire, name: Name) -> None:
    group = name("group")
    member, generation = stable(wire, group, session=700)

    def state() -> str:
        answer = wire.call("describe_groups", 5, {"groups": [group]})
        return str(answer.groups[0].group_state)

    assert state() == "Stable"
    eventually(lambda: state() == "Empty", within=10)
    assert heartbeat(wire, group, member, generation) == "unknown_member_id"


def test_leaving_is_possible_for_many_members_at_once(connect: Connect, name: Name) -> None:
    group, wire = name("group"), connect()
    one, _ = stable(wire, group, instance="a")
    members = [
        {"member_id": "", "group_instance_id": "a"},
        {"member_id": "", "group_instance_id": "missing"},
    ]
    answer = wire.call("leave_group", 5, {"group_id": group, "members": members})
    assert [each.error_code.name for each in answer.members] == ["none", "unknown_member_id"]
    assert join(wire, group, one).error_code.name == "unknown_member_id"
