"""The same question in every version of its request, with the same answer (raw requests)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from support.batches import batch
from support.waiting import eventually
from support.wire import KEYS, Wire, create_topic, is_led, ranges, topic_id

Name = Callable[[str], str]


@pytest.fixture
def topic(wire: Wire, name: Name) -> str:
    """Three records at three moments in partition 0 of two."""
    made = name("versions")
    create_topic(wire, made, partitions=2, configs={"retention.ms": "-1"})
    stamps = [1_600_000_000_000, 1_600_000_009_000, 1_600_000_003_000]
    data = {"index": 0, "records": batch([b"a", b"b", b"c"], timestamps=stamps)}
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": made, "partition_data": [data]}],
    }
    answer = wire.call("produce", 9, values)
    assert answer.responses[0].partition_responses[0].error_code.value == 0
    return made


@pytest.mark.parametrize("version", range(14))
def test_metadata(wire: Wire, topic: str, version: int) -> None:
    answer = wire.call("metadata", version, {"topics": [{"name": topic}]})
    (broker,) = answer.brokers
    (found,) = answer.topics
    assert found.error_code.value == 0
    assert found.name == topic
    assert sorted(one.partition_index for one in found.partitions) == [0, 1]
    for partition in found.partitions:
        assert partition.leader_id == broker.node_id
        assert partition.replica_nodes == partition.isr_nodes == (broker.node_id,)
    if version >= 1:
        assert answer.controller_id == broker.node_id
    if version >= 2:
        assert answer.cluster_id
    if version >= 10:
        assert found.topic_id is not None


@pytest.mark.parametrize("version", [0, 1, 9, 13])
def test_metadata_of_all_topics(wire: Wire, topic: str, version: int) -> None:
    answer = wire.call("metadata", version, {"topics": [] if version == 0 else None})
    assert topic in {one.name for one in answer.topics}


@pytest.mark.parametrize("version", [12, 13])
def test_metadata_by_topic_id(wire: Wire, topic: str, version: int) -> None:
    asked = {"topics": [{"name": None, "topic_id": topic_id(wire, topic)}]}
    (found,) = wire.call("metadata", version, asked).topics
    assert found.name == topic


@pytest.mark.parametrize("version", range(14))
def test_metadata_makes_a_missing_topic_only_when_allowed(
    wire: Wire, name: Name, version: int
) -> None:
    missing = name("auto")
    if version >= 4:
        refused = {"topics": [{"name": missing}], "allow_auto_topic_creation": False}
        answer = wire.call("metadata", version, refused)
        assert answer.topics[0].error_code.name == "unknown_topic_or_partition"

    def made() -> bool:
        allowed = {"topics": [{"name": missing}], "allow_auto_topic_creation": True}
        (found,) = wire.call("metadata", version, allowed).topics
        return found.error_code.value == 0 and len(found.partitions) == 4

    eventually(made)


@pytest.mark.parametrize("version", range(1, 12))
def test_offsets_by_time(wire: Wire, topic: str, version: int) -> None:
    def ask(timestamp: int) -> int:
        asked = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
        values = {"replica_id": -1, "topics": [{"name": topic, "partitions": [asked]}]}
        one = wire.call("list_offsets", version, values).topics[0].partitions[0]
        assert one.error_code.value == 0
        return int(one.offset)

    assert ask(-2) == 0
    assert ask(-1) == 3
    assert ask(1_600_000_000_001) == 1
    assert ask(1_600_000_009_001) == -1
    if version >= 7:
        assert ask(-3) == 1
    if version >= 8:
        assert ask(-4) == 0


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_and_fetch_of_offsets(wire: Wire, topic: str, name: Name, version: int) -> None:
    group = name("group")
    identity = topic_id(wire, topic) if version >= 10 else None
    partition = {
        "partition_index": 0,
        "committed_offset": 2,
        "committed_leader_epoch": 0,
        "committed_metadata": "noted",
    }
    topics = [{"name": topic, "topic_id": identity, "partitions": [partition]}]
    values = {"group_id": group, "generation_id_or_member_epoch": -1, "topics": topics}
    answer = wire.call("offset_commit", version, values)
    assert answer.topics[0].partitions[0].error_code.value == 0
    for fetching in range(1, 11):
        found = fetched_offsets(wire, group, topic, fetching)
        assert found[0] == (2, "noted")
        assert found[1] == (-1, "")


def fetched_offsets(wire: Wire, group: str, topic: str, version: int) -> dict[int, Any]:
    asked = {
        "name": topic,
        "topic_id": topic_id(wire, topic) if version >= 10 else None,
        "partition_indexes": [0, 1],
    }
    groups = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": [asked]}]
    answer = wire.call(
        "offset_fetch", version, {"group_id": group, "topics": [asked], "groups": groups}
    )
    home = answer.groups[0] if version >= 8 else answer
    return {
        one.partition_index: (one.committed_offset, one.metadata)
        for one in home.topics[0].partitions
    }


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group(wire: Wire, topic: str, name: Name, version: int) -> None:
    group = name("group")
    partition = {"partition_index": 1, "committed_offset": 5, "committed_metadata": None}
    topics = [{"name": topic, "partitions": [partition]}]
    wire.call(
        "offset_commit",
        8,
        {"group_id": group, "generation_id_or_member_epoch": -1, "topics": topics},
    )
    groups = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}]
    values = {"group_id": group, "topics": None, "groups": groups}
    answer = wire.call("offset_fetch", version, values)
    home = answer.groups[0] if version >= 8 else answer
    (found,) = home.topics
    assert [(one.partition_index, one.committed_offset) for one in found.partitions] == [(1, 5)]


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_is_found(wire: Wire, name: Name, version: int) -> None:
    key = name("group")
    values = {"key": key, "key_type": 0, "coordinator_keys": [key]}

    def found() -> bool:
        answer = wire.call("find_coordinator", version, values)
        one = answer.coordinators[0] if version >= 4 else answer
        return one.error_code.value == 0 and one.port == wire.socket.getpeername()[1]

    eventually(found)


@pytest.mark.parametrize("version", range(2, 8))
def test_topics_are_made(wire: Wire, name: Name, version: int) -> None:
    topic = name("made")
    wanted = {"name": topic, "num_partitions": 2, "replication_factor": 1}
    answer = wire.call("create_topics", version, {"topics": [wanted], "timeout": 10_000})
    (made,) = answer.topics
    assert (made.name, made.error_code.value) == (topic, 0)
    if version >= 5:
        assert made.num_partitions == 2
        assert "retention.ms" in {one.name for one in made.configs}
    eventually(lambda: is_led(wire, topic, 1))
    deleting = min(version, 6)
    state = {"name": topic, "topic_id": None}
    request = {"topics": [state], "topic_names": [topic], "timeout": 10_000}
    gone = wire.call("delete_topics", deleting, request)
    assert gone.responses[0].error_code.value == 0


def test_topics_are_made_with_their_replicas_named(wire: Wire, name: Name) -> None:
    topic = name("made")
    node = wire.call("metadata", 9, {"topics": []}).brokers[0].node_id
    assignment = [{"partition_index": n, "broker_ids": [node]} for n in range(3)]
    wanted = {
        "name": topic,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assignment,
    }
    answer = wire.call("create_topics", 7, {"topics": [wanted], "timeout": 10_000})
    assert answer.topics[0].error_code.value == 0
    assert answer.topics[0].num_partitions == 3
    assignment[0]["broker_ids"] = [4711]
    wanted["name"] = name("made")
    answer = wire.call("create_topics", 7, {"topics": [wanted], "timeout": 10_000})
    assert answer.topics[0].error_code.name == "invalid_replica_assignment"


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added(wire: Wire, topic: str, version: int) -> None:
    wanted = {"name": topic, "count": 3, "assignments": None}
    answer = wire.call("create_partitions", version, {"topics": [wanted], "timeout": 10_000})
    assert answer.results[0].error_code.value == 0
    eventually(lambda: is_led(wire, topic, 2))


@pytest.mark.parametrize("version", range(1, 5))
def test_settings_are_described(wire: Wire, topic: str, version: int) -> None:
    asked = {"resource_type": 2, "resource_name": topic, "configuration_keys": ["retention.ms"]}
    values = {"resources": [asked], "include_synonyms": True, "include_documentation": True}
    (found,) = wire.call("describe_configs", version, values).results
    assert found.error_code.value == 0
    (entry,) = found.configs
    assert (entry.name, entry.value, entry.is_sensitive) == ("retention.ms", "-1", False)
    assert entry.synonyms[0].name == "retention.ms"


@pytest.mark.parametrize("version", range(3))
def test_records_are_deleted(wire: Wire, topic: str, version: int) -> None:
    partition = {"partition_index": 0, "offset": 2}
    values = {"topics": [{"name": topic, "partitions": [partition]}], "timeout": 10_000}
    answer = wire.call("delete_records", version, values)
    assert answer.topics[0].partitions[0].low_watermark == 2


@pytest.mark.parametrize("version", range(3))
def test_the_cluster_is_described(wire: Wire, version: int) -> None:
    answer = wire.call("describe_cluster", version, {"endpoint_type": 1})
    assert answer.error_code.value == 0
    assert [one.port for one in answer.brokers] == [wire.socket.getpeername()[1]]


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories_are_described(wire: Wire, topic: str, version: int) -> None:
    asked = {"topic": topic, "partitions": [0]}
    (found,) = wire.call("describe_log_dirs", version, {"topics": [asked]}).results
    assert found.error_code.value == 0
    (one,) = found.topics
    assert one.partitions[0].partition_size > 60


@pytest.mark.parametrize("version", range(6))
def test_groups_are_listed(wire: Wire, topic: str, name: Name, version: int) -> None:
    group = name("group")
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    topics = [{"name": topic, "partitions": [partition]}]
    values = {"group_id": group, "generation_id_or_member_epoch": -1, "topics": topics}
    wire.call("offset_commit", 8, values)
    listed = wire.call("list_groups", version).groups
    assert group in {one.group_id for one in listed}


@pytest.mark.parametrize("version", range(7))
def test_a_group_that_does_not_exist_is_described(wire: Wire, name: Name, version: int) -> None:
    (found,) = wire.call("describe_groups", version, {"groups": [name("missing")]}).groups
    assert found.group_state == "Dead"
    assert found.error_code.name == ("group_id_not_found" if version >= 6 else "none")


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_kept(wire: Wire, name: Name, version: int) -> None:
    client = name("client")
    entity = [{"entity_type": "client-id", "entity_name": client}]
    ops = [{"key": "consumer_byte_rate", "value": 12345.0, "remove": False}]
    altered = wire.call(
        "alter_client_quotas",
        version,
        {"entries": [{"entity": entity, "ops": ops}], "validate_only": False},
    )
    assert altered.entries[0].error_code.value == 0
    component = {"entity_type": "client-id", "match_type": 0, "match": client}

    def kept() -> Any:
        question = {"components": [component], "strict": True}
        answer = wire.call("describe_client_quotas", version, question)
        return [value.value for one in answer.entries or () for value in one.values]

    eventually(lambda: kept() == [12345.0])


def test_no_version_in_between_was_forgotten(wire: Wire) -> None:
    """This module counts on these ranges; when they grow, so must the tests."""
    advertised = ranges(wire)
    expected = {"metadata": 13, "list_offsets": 11, "offset_commit": 10, "offset_fetch": 10}
    assert {api: advertised[KEYS[api]][1] for api in expected} == expected
