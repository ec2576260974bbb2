"""How mistakes are answered, by raw requests: the code of each refusal is one a client acts on.

A retriable code makes a producer send for minutes what can never be taken, a generation that is
said to be over makes a consumer give up its partitions: so each of these is as Apache Kafka 4.3
answers, against which this file passes too.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from support.batches import batch, with_header_field
from support.fetching import fetch_request
from support.naming import unique
from support.waiting import eventually
from support.wire import Wire, create_topic, topic_id


@pytest.fixture
def topic(wire: Wire) -> str:
    name = unique("refusals")
    create_topic(wire, name)
    return name


def produced(wire: Wire, topic: str, data: bytes) -> str:
    partition = {"index": 0, "records": data}
    values = {
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }
    answer = wire.call("produce", 9, values)
    return str(answer.responses[0].partition_responses[0].error_code.name)


# --- produce --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda data: data[:-3], id="cut off"),
        pytest.param(lambda data: with_header_field(data, 57, ">i", 2), id="too many counted"),
        pytest.param(lambda data: with_header_field(data, 57, ">i", -1), id="fewer than none"),
        pytest.param(lambda data: with_header_field(data, 23, ">i", -1), id="ends too early"),
        pytest.param(lambda data: with_header_field(data, 8, ">i", 50_000), id="too long"),
    ],
)
def test_a_batch_that_was_made_wrongly_is_not_asked_for_again(
    wire: Wire, topic: str, spoil: Callable[[bytes], bytes]
) -> None:
    assert produced(wire, topic, spoil(batch([b"x"]))) == "invalid_record"


def test_more_replicas_in_sync_than_there_are_replicas_are_not_waited_for(wire: Wire) -> None:
    topic = unique("careful")
    create_topic(wire, topic, configs={"min.insync.replicas": "2"})
    assert produced(wire, topic, batch([b"x"])) == "none"


# --- fetch sessions -------------------------------------------------------------------------------


def session_fetch(wire: Wire, topic: str, session: int, epoch: int, **more: Any) -> Any:
    version = more.pop("version", 12)
    values = fetch_request(topic, max_wait=0, session_id=session, session_epoch=epoch)
    return wire.call("fetch", version, {**values, **more})


def test_a_session_by_names_does_not_go_on_by_ids(wire: Wire, topic: str) -> None:
    session = session_fetch(wire, topic, 0, 0).session_id
    assert session != 0
    asked = fetch_request("", topic_id=topic_id(wire, topic))["topics"]
    answer = session_fetch(wire, topic, session, 1, version=13, topics=asked)
    assert (answer.error_code.name, answer.responses) == ("fetch_session_topic_id_error", ())


def test_a_session_by_ids_does_not_go_on_by_names(wire: Wire, topic: str) -> None:
    asked = fetch_request("", topic_id=topic_id(wire, topic))["topics"]
    session = session_fetch(wire, topic, 0, 0, version=13, topics=asked).session_id
    answer = session_fetch(wire, topic, session, 1)
    assert (answer.error_code.name, answer.responses) == ("fetch_session_topic_id_error", ())


def test_a_session_that_has_forgotten_everything_is_over(wire: Wire, topic: str) -> None:
    session = session_fetch(wire, topic, 0, 0).session_id
    forgotten = [{"topic": topic, "partitions": [0]}]
    last = session_fetch(wire, topic, session, 1, topics=[], forgotten_topics_data=forgotten)
    assert (last.error_code.name, last.session_id) == ("none", 0)
    after = session_fetch(wire, topic, session, 2)
    assert after.error_code.name == "fetch_session_id_not_found"


def test_a_reader_past_the_end_of_its_epoch_learns_where_it_parts_from_the_log(
    wire: Wire, topic: str
) -> None:
    produced(wire, topic, batch([b"x"] * 3))
    values = fetch_request(topic, 9, max_wait=0)
    values["topics"][0]["partitions"][0]["last_fetched_epoch"] = 0
    (partition,) = wire.call("fetch", 12, values).responses[0].partitions
    assert partition.error_code.name == "none"
    assert (partition.diverging_epoch.epoch, partition.diverging_epoch.end_offset) == (0, 3)


# --- the log --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 7, 11])
def test_a_special_timestamp_that_nobody_knows_is_refused(
    wire: Wire, topic: str, version: int
) -> None:
    asked = {"partition_index": 0, "timestamp": -7, "current_leader_epoch": -1}
    values = {"replica_id": -1, "topics": [{"name": topic, "partitions": [asked]}]}
    (partition,) = wire.call("list_offsets", version, values).topics[0].partitions
    assert partition.error_code.name == "unsupported_version"


def test_offsets_of_a_partition_asked_for_twice_are_refused_once(wire: Wire, topic: str) -> None:
    both = [{"partition_index": 0, "timestamp": special} for special in (-1, -2)]
    for asked in (
        [{"name": topic, "partitions": both}],
        [{"name": topic, "partitions": [one]} for one in both],
    ):
        (row,) = wire.call("list_offsets", 7, {"replica_id": -1, "topics": asked}).topics
        assert [part.error_code.name for part in row.partitions] == ["invalid_request"]


def test_records_of_the_brokers_own_topics_are_not_deleted(wire: Wire) -> None:
    eventually(lambda: _coordinator(wire), what="a coordinator")
    partition = {"partition_index": 0, "offset": 0}
    values = {
        "topics": [{"name": "__consumer_offsets", "partitions": [partition]}],
        "timeout": 5_000,
    }
    (answer,) = wire.call("delete_records", 2, values).topics[0].partitions
    assert answer.error_code.name == "invalid_topic_exception"


def _coordinator(wire: Wire) -> bool:
    answer = wire.call("find_coordinator", 2, {"key": "any", "key_type": 0})
    return bool(answer.error_code.value == 0)


# --- topics ---------------------------------------------------------------------------------------


def deleted(wire: Wire, *wanted: tuple[str | None, uuid.UUID | None]) -> list[str]:
    topics = [{"name": name, "topic_id": each} for name, each in wanted]
    answer = wire.call("delete_topics", 6, {"topics": topics, "timeout": 10_000})
    return [row.error_code.name for row in answer.responses]


def test_a_topic_named_twice_is_not_deleted(wire: Wire, topic: str) -> None:
    known = topic_id(wire, topic)
    assert deleted(wire, (topic, None), (topic, None)) == ["invalid_request"]
    assert deleted(wire, (topic, None), (None, known)) == ["invalid_request"]
    ghost = unique("ghost")
    assert deleted(wire, (ghost, None), (ghost, None)) == ["invalid_request"]
    assert deleted(wire, (None, known)) == ["none"]


def test_nobody_gets_a_topic_with_the_name_of_the_controllers_log(wire: Wire) -> None:
    wanted = {"name": "__cluster_metadata", "num_partitions": 1, "replication_factor": 1}
    (row,) = wire.call("create_topics", 7, {"topics": [wanted], "timeout": 10_000}).topics
    assert row.error_code.name == "invalid_request"


# --- groups ---------------------------------------------------------------------------------------


def test_since_version_5_a_member_says_by_which_protocol_it_syncs(wire: Wire) -> None:
    group = unique("group")
    joining = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "group_instance_id": "one",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    joined = eventually(lambda: _answered(wire.call("join_group", 7, joining)))
    syncing = {
        "group_id": group,
        "generation_id": joined.generation_id,
        "member_id": joined.member_id,
        "group_instance_id": "one",
        "assignments": [{"member_id": joined.member_id, "assignment": b"mine"}],
    }
    assert wire.call("sync_group", 5, syncing).error_code.name == "inconsistent_group_protocol"
    assert wire.call("sync_group", 4, syncing).error_code.name == "none"


def _answered(answer: Any) -> Any:
    """The answer of a coordinator, once there is one."""
    wait = ("coordinator_not_available", "not_coordinator", "coordinator_load_in_progress")
    return None if answer.error_code.name in wait else answer


def test_offsets_of_partitions_that_do_not_exist_cannot_be_deleted(wire: Wire, topic: str) -> None:
    group = unique("group")
    commit = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 0}]}],
    }

    def committed() -> bool:
        answer = wire.call("offset_commit", 8, commit)
        return bool(answer.topics[0].partitions[0].error_code.value == 0)

    eventually(committed, what="a commit")
    values = {"topics": [{"name": topic, "partitions": [{"partition_index": 9}]}]}
    answer = wire.call("offset_delete", 0, {"group_id": group, **values})
    assert answer.topics[0].partitions[0].error_code.name == "unknown_topic_or_partition"
    assert wire.call("offset_delete", 0, {"group_id": "", **values}).error_code.name == (
        "invalid_group_id"
    )


def heartbeat(wire: Wire, group: str, topic: str, **changes: Any) -> Any:
    values = {
        "group_id": group,
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 5_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
        **changes,
    }
    return eventually(lambda: _answered(wire.call("consumer_group_heartbeat", 1, values)))


def test_a_member_that_joins_says_that_it_owns_nothing(wire: Wire, topic: str) -> None:
    refused = heartbeat(wire, unique("group"), topic, topic_partitions=None)
    assert refused.error_code.name == "invalid_request"
    assert heartbeat(wire, "", topic).error_code.name == "invalid_request"


def test_a_refused_reader_of_offsets_is_told_once_and_not_for_each_partition(
    wire: Wire, topic: str
) -> None:
    group = unique("group")
    assert heartbeat(wire, group, topic).error_code.name == "none"
    asked = {
        "group_id": group,
        "member_id": "stranger",
        "member_epoch": 1,
        "topics": [{"name": topic, "partition_indexes": [0]}],
    }
    (answer,) = wire.call("offset_fetch", 9, {"groups": [asked], "require_stable": True}).groups
    assert (answer.error_code.name, answer.topics) == ("unknown_member_id", ())


def test_a_group_without_a_name_is_not_described(wire: Wire) -> None:
    (group,) = wire.call("consumer_group_describe", 1, {"group_ids": [""]}).groups
    assert group.error_code.name == "invalid_group_id"


def test_a_classic_member_keeps_its_generation_when_the_last_modern_one_leaves(
    wire: Wire, topic: str
) -> None:
    """Told that its generation is over it would take its partitions for lost."""
    group = unique("group")
    said = struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">i", -1)
    joining = {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 30_000,
        "member_id": "",
        "group_instance_id": "classic",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": said}],
    }
    joined = eventually(lambda: _answered(wire.call("join_group", 7, joining)))
    member = {"group_id": group, "member_id": joined.member_id, "group_instance_id": "classic"}
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    mine = struct.pack(">hih", 0, 1, len(topic)) + topic.encode() + struct.pack(">iii", 1, 0, -1)
    assigned = [{"member_id": joined.member_id, "assignment": mine}]
    syncing = {**member, **protocol, "generation_id": joined.generation_id}
    wire.call("sync_group", 5, {**syncing, "assignments": assigned})
    assert heartbeat(wire, group, topic).error_code.name == "none"
    again = wire.call("join_group", 7, {**joining, "member_id": joined.member_id})
    wire.call("sync_group", 5, {**syncing, "generation_id": again.generation_id})
    heartbeat(wire, group, topic, member_epoch=-1)
    told = wire.call("heartbeat", 4, {**member, "generation_id": again.generation_id})
    assert told.error_code.name == "rebalance_in_progress"


# --- the connection -------------------------------------------------------------------------------


def test_a_client_that_does_not_say_what_it_is_learns_no_versions(wire: Wire) -> None:
    answer = wire.call(
        "api_versions", 3, {"client_software_name": "", "client_software_version": ""}
    )
    assert (answer.error_code.name, answer.api_keys) == ("invalid_request", ())
