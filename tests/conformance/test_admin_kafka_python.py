"""kafka-python's admin client, the widest of the Python ones: log dirs, transactions, and more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, OffsetSpec
from kafka.admin import (
    ConfigResource,
    ConfigResourceType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    TransactionState,
)
from kafka.errors import (
    InvalidReplicationFactorError,
    InvalidTopicError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from support.clients import Record
from support.clients.confluent import Confluent
from support.clients.kafka_python import OffsetAndMetadata, TopicPartition
from support.clients.transactional import KafkaPythonTransactions
from support.members import Member, settled
from support.waiting import eventually

Name = Callable[[str], str]
MakeTopic = Callable[..., str]


@pytest.fixture
def kadmin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def test_the_broker_is_taken_for_a_recent_kafka(kadmin: KafkaAdminClient) -> None:
    """It guesses the version from what ApiVersions advertises, and then uses its features."""
    versions = kadmin.api_versions()
    assert versions
    node = kadmin.describe_cluster()["brokers"][0]["broker_id"]
    assert kadmin.get_broker_version_data(node).broker_version >= (4, 0)


def test_topics_are_made_listed_described_and_deleted(kadmin: KafkaAdminClient, name: Name) -> None:
    topic = name("made")
    kadmin.create_topics([NewTopic(topic, 2, 1)])
    eventually(lambda: topic in kadmin.list_topics())
    (described,) = kadmin.describe_topics([topic])
    assert len(described["partitions"]) == 2
    kadmin.create_partitions({topic: NewPartitions(3)})
    eventually(lambda: len(kadmin.describe_topics([topic])[0]["partitions"]) == 3)
    kadmin.delete_topics([topic])
    eventually(lambda: topic not in kadmin.list_topics())


def test_topic_errors_have_their_own_classes(
    kadmin: KafkaAdminClient, topic: str, name: Name
) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        kadmin.create_topics([NewTopic(topic, 1, 1)])
    with pytest.raises(InvalidReplicationFactorError):
        kadmin.create_topics([NewTopic(name("bad"), 1, 5)])
    with pytest.raises(InvalidTopicError):
        kadmin.create_topics([NewTopic("no spaces", 1, 1)])
    with pytest.raises(UnknownTopicOrPartitionError):
        kadmin.delete_topics([name("missing")])


def test_topic_partitions_are_described_page_by_page(
    kadmin: KafkaAdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=5)
    seen: list[int] = []
    cursor = None
    for _ in range(10):
        page = kadmin.describe_topic_partitions([topic], response_partition_limit=2, cursor=cursor)
        (found,) = page["topics"]
        assert len(found["partitions"]) <= 2
        seen += [one["partition_index"] for one in found["partitions"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(set(seen)) == [0, 1, 2, 3, 4]


def test_log_directories_tell_the_size_of_every_partition(
    kadmin: KafkaAdminClient, confluent: Confluent, topic: str
) -> None:
    confluent.produce(topic, [Record(b"x" * 1000)])
    described = kadmin.describe_log_dirs()
    sizes = [
        partition["partition_size"]
        for broker in described
        for directory in broker["log_dirs"]
        for each in directory["topics"]
        if each["name"] == topic
        for partition in each["partitions"]
    ]
    assert len(sizes) == 1
    assert sizes[0] >= 1000


def test_settings_are_described_and_changed(kadmin: KafkaAdminClient, topic: str) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "12345678"})
    kadmin.alter_configs([resource])

    def value() -> Any:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = kadmin.describe_configs([asked], config_filter="all")
        return str(found)

    eventually(lambda: "12345678" in value())


def test_the_resources_with_settings_of_their_own_are_listed(
    kadmin: KafkaAdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic(retention_ms=1_000_000)
    eventually(lambda: topic in str(kadmin.list_config_resources()))


def test_records_are_deleted(kadmin: KafkaAdminClient, confluent: Confluent, topic: str) -> None:
    confluent.produce(topic, [Record(b"%d" % n) for n in range(5)])
    kadmin.delete_records({TopicPartition(topic, 0): 3})
    assert confluent.watermarks(topic) == (3, 5)


def test_offsets_are_listed_by_every_kind_of_question(
    kadmin: KafkaAdminClient, confluent: Confluent, make_topic: MakeTopic
) -> None:
    topic = make_topic(retention_ms=-1)
    stamps = [1_600_000_000_000, 1_600_000_009_000, 1_600_000_003_000]
    confluent.produce(topic, [Record(b"v", timestamp=stamp) for stamp in stamps])
    place = TopicPartition(topic, 0)

    def ask(question: Any) -> int:
        return int(kadmin.list_partition_offsets({place: question})[place].offset)

    assert ask(OffsetSpec.EARLIEST) == 0
    assert ask(OffsetSpec.LATEST) == 3
    assert ask(OffsetSpec.MAX_TIMESTAMP) == 1
    assert ask(OffsetSpec.EARLIEST_LOCAL) == 0
    assert ask(stamps[0] + 1) == 1


def test_groups_are_listed_described_changed_and_deleted(
    kadmin: KafkaAdminClient, confluent: Confluent, topic: str, name: Name
) -> None:
    group, place = name("group"), TopicPartition(topic, 0)
    confluent.produce(topic, [Record(b"v")])
    confluent.read_group(topic, group, 1)
    assert group in {one["group_id"] for one in kadmin.list_groups()}
    assert kadmin.describe_groups([group])[group]["group_state"] == "Empty"
    kadmin.alter_group_offsets(group, {place: OffsetAndMetadata(0, "again", -1)})
    found = kadmin.list_group_offsets({group: [place]})
    assert found[group][place].offset == 0
    kadmin.reset_group_offsets(group, {place: OffsetSpec.LATEST})
    assert kadmin.list_group_offsets({group: [place]})[group][place].offset == 1
    kadmin.delete_group_offsets(group, [place])
    assert kadmin.list_group_offsets({group: [place]})[group][place].offset == -1
    kadmin.alter_group_offsets(group, {place: OffsetAndMetadata(0, "", -1)})
    kadmin.delete_groups([group])
    assert group not in {one["group_id"] for one in kadmin.list_groups()}


def test_open_transactions_and_their_producers_are_described(
    kadmin: KafkaAdminClient, bootstrap: str, topic: str, name: Name
) -> None:
    transactional_id, place = name("tx"), TopicPartition(topic, 0)
    producer = KafkaPythonTransactions(bootstrap, transactional_id)
    producer.begin()
    producer.send(topic, b"open")
    described = kadmin.describe_transactions([transactional_id])[transactional_id]
    assert described.state == TransactionState.ONGOING
    assert described.topic_partitions == {place}
    assert transactional_id in str(kadmin.list_transactions())
    assert transactional_id in str(kadmin.list_transactions(state_filters=["Ongoing"]))
    assert transactional_id not in str(kadmin.list_transactions(state_filters=["Empty"]))
    (found,) = kadmin.describe_producers([place])[place].active_producers
    assert found.producer_id == described.producer_id
    assert found.last_sequence == 0
    assert found.current_transaction_start_offset == 0
    producer.commit()

    def state() -> TransactionState:
        return kadmin.describe_transactions([transactional_id])[transactional_id].state

    eventually(lambda: state() == TransactionState.COMPLETE_COMMIT)
    (found,) = kadmin.describe_producers([place])[place].active_producers
    assert found.current_transaction_start_offset == -1
    producer.close()


def test_leaders_need_no_election(kadmin: KafkaAdminClient, topic: str) -> None:
    answer = kadmin.elect_leaders(0, {topic: [0]}, raise_errors=False)
    (result,) = answer.replica_election_results
    (partition,) = result.partition_result
    assert partition.error_code == 84, "ELECTION_NOT_NEEDED"


def test_the_features_of_the_broker_are_described(kadmin: KafkaAdminClient) -> None:
    described = str(kadmin.describe_features())
    assert "transaction.version" in described
    assert "group.version" in described


def test_members_can_be_removed_from_a_group(
    kadmin: KafkaAdminClient, bootstrap: str, topic: str, name: Name
) -> None:
    group = name("group")
    options = {"group_instance_id": "static"}
    with Member(bootstrap, group, [topic], **options) as member:
        settled([member], topic, 1)
        kadmin.remove_group_members(group, [MemberToRemove(group_instance_id="static")])
        eventually(lambda: member.errors or member.lost or len(member.assigned) > 1, within=20)


def test_a_group_that_does_not_exist_cannot_be_deleted(
    kadmin: KafkaAdminClient, name: Name
) -> None:
    missing = name("missing")
    assert kadmin.delete_groups([missing]) == {missing: "GroupIdNotFoundError"}
