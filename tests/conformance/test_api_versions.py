"""ApiVersions, and that everything it advertises is answered (raw requests)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.schema.index import api_key_map, schema_name_map

from support.wire import KEYS, ConnectionClosed, Wire, ranges

Connect = Callable[[], Wire]
SOFTWARE = {"client_software_name": "raw", "client_software_version": "1.0"}

# What every client needs, with the lowest and highest version that one of them sends or checks.
NEEDED = {
    "produce": (0, 13),
    "fetch": (4, 18),
    "list_offsets": (1, 11),
    "metadata": (0, 13),
    "offset_commit": (2, 10),
    "offset_fetch": (1, 10),
    "find_coordinator": (0, 6),
    "join_group": (0, 9),
    "heartbeat": (0, 4),
    "leave_group": (0, 5),
    "sync_group": (0, 5),
    "describe_groups": (0, 6),
    "list_groups": (0, 5),
    "api_versions": (0, 4),
    "create_topics": (2, 7),
    "delete_topics": (1, 6),
    "delete_records": (0, 2),
    "init_producer_id": (0, 5),
    "offset_for_leader_epoch": (2, 4),
    "add_partitions_to_txn": (0, 5),
    "add_offsets_to_txn": (0, 4),
    "end_txn": (0, 5),
    "write_txn_markers": (1, 2),
    "txn_offset_commit": (0, 5),
    "describe_configs": (1, 4),
    "alter_configs": (0, 2),
    "describe_log_dirs": (1, 5),
    "create_partitions": (0, 3),
    "delete_groups": (0, 2),
    "elect_leaders": (0, 2),
    "incremental_alter_configs": (0, 1),
    "offset_delete": (0, 0),
    "describe_client_quotas": (0, 1),
    "alter_client_quotas": (0, 1),
    "describe_cluster": (0, 2),
    "describe_producers": (0, 0),
    "describe_transactions": (0, 0),
    "list_transactions": (0, 2),
    "consumer_group_heartbeat": (0, 1),
    "consumer_group_describe": (0, 1),
    "list_config_resources": (0, 1),
    "describe_topic_partitions": (0, 0),
}


def test_every_api_that_clients_need_is_advertised_in_its_whole_range(wire: Wire) -> None:
    advertised = ranges(wire)
    wrong = {
        api: advertised.get(KEYS[api])
        for api, needed in NEEDED.items()
        if advertised.get(KEYS[api]) != needed
    }
    assert wrong == {}


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_api_versions_is_answered_in_every_version(wire: Wire, version: int) -> None:
    answer = wire.call("api_versions", version, SOFTWARE)
    assert answer.error_code.value == 0
    found = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert found[KEYS["api_versions"]] == (0, 4)
    assert found[KEYS["metadata"]] == (0, 13)


@pytest.mark.parametrize("version", [3, 4])
def test_the_features_that_steer_clients_are_finalized(wire: Wire, version: int) -> None:
    answer = wire.call("api_versions", version, SOFTWARE)
    final = {one.name: one.max_version_level for one in answer.finalized_features}
    assert final["transaction.version"] == 2
    assert final["group.version"] == 1
    assert answer.finalized_features_epoch >= 0


def test_the_newest_version_tells_features_that_can_be_turned_off(wire: Wire) -> None:
    """Version 3 could not carry a lowest level of 0, so such features are only in version 4."""
    answer = wire.call("api_versions", 4, SOFTWARE)
    supported = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
    assert supported["transaction.version"] == (0, 2)
    assert supported["group.version"] == (0, 1)
    older = wire.call("api_versions", 3, SOFTWARE)
    assert all(one.min_version > 0 for one in older.supported_features)


def test_an_unknown_version_of_api_versions_is_answered_with_an_error_in_version_0(
    wire: Wire,
) -> None:
    """KIP-511: so that a newer client can try again with what the broker knows."""
    header = struct.pack(">hhih3s", 18, 99, 77, 3, b"new") + b"\0"
    wire.send_bytes(struct.pack(">i", len(header)) + header)
    frame = wire.receive_frame()
    correlation, error, count = struct.unpack_from(">ihi", frame)
    assert (correlation, error) == (77, 35)
    keys = [struct.unpack_from(">hhh", frame, 10 + 6 * n) for n in range(count)]
    assert (18, 0, 4) in keys
    assert len(frame) == 10 + 6 * count
    assert ranges(wire), "the connection goes on"


def test_a_client_may_not_call_itself_anything(wire: Wire) -> None:
    """Names of client software are checked, for they end up in metrics (KIP-511)."""
    named = {"client_software_name": "bad name!", "client_software_version": "1"}
    answer = wire.call("api_versions", 3, named)
    assert answer.error_code.name == "invalid_request"


# Values that make an otherwise empty request answerable at once. What a version lacks is left out.
GENTLE: dict[str, dict[str, Any]] = {
    "produce": {"acks": 1, "timeout": 1000, "topic_data": []},
    "fetch": {"max_wait": 0, "session_epoch": -1},
    "api_versions": SOFTWARE,
    "create_topics": {"topics": [], "timeout": 1000},
    "delete_topics": {"topics": [], "topic_names": [], "timeout": 1000},
    "delete_records": {"timeout": 1000},
    "create_partitions": {"timeout": 1000},
    "join_group": {"group_id": "gentle", "session_timeout": 6000, "protocol_type": "consumer"},
    "init_producer_id": {"transactional_id": None, "transaction_timeout": 1000},
    "elect_leaders": {"topic_partitions": [], "timeout": 1000},
    "list_offsets": {"replica_id": -1},
    "offset_for_leader_epoch": {"replica_id": -1},
    "find_coordinator": {"key": "gentle", "coordinator_keys": ["gentle"]},
    "offset_fetch": {"group_id": "gentle", "topics": [], "groups": []},
    "describe_topic_partitions": {"response_partition_limit": 100, "cursor": None},
    "consumer_group_heartbeat": {"group_id": "gentle", "member_id": "m", "member_epoch": 5},
    "share_fetch": {"max_wait": 0},
    "add_partitions_to_txn": {"transactions": [{"transactional_id": "gentle"}]},
    "describe_acls": {
        "resource_type_filter": 1,
        "pattern_type_filter": 1,
        "operation": 1,
        "permission_type": 1,
    },
}
# Advertised by the oracle only: they change its quorum, or have answers that kio cannot read.
APART = {
    "unregister_broker",
    "update_features",
    "add_raft_voter",
    "remove_raft_voter",
    "create_delegation_token",
    "renew_delegation_token",
    "expire_delegation_token",
}


def test_every_advertised_version_of_every_api_is_answered(connect: Connect) -> None:
    """An empty request may be refused by an error, but the connection must stay."""
    wire = connect()
    silent: list[str] = []
    for key, (low, high) in sorted(ranges(wire).items()):
        api = api_key_map[key]
        if api in APART:
            continue
        for version in range(low, high + 1):
            if version not in schema_name_map[api]:
                continue
            load_request_schema(key, version)
            try:
                wire.call(api, version, GENTLE.get(api, {}))
            except (ConnectionClosed, TimeoutError) as closed:
                silent.append(f"{api} v{version}: {closed}")
                wire = connect()
    assert silent == []


def test_an_unknown_api_closes_the_connection(connect: Connect) -> None:
    wire = connect()
    header = struct.pack(">hhih", 999, 0, 1, -1)
    wire.send_bytes(struct.pack(">i", len(header)) + header)
    assert wire.is_closed()


@pytest.mark.parametrize(("key", "version"), [(3, 99), (1, 3), (19, 1), (3, -1), (0, 0), (0, 2)])
def test_a_version_outside_the_range_closes_the_connection(
    connect: Connect, key: int, version: int
) -> None:
    """Produce 0 to 2 are advertised for old librdkafka's sake and not served (KAFKA-18659)."""
    wire = connect()
    header = struct.pack(">hhih", key, version, 1, -1)
    wire.send_bytes(struct.pack(">i", len(header)) + header)
    assert wire.is_closed()
