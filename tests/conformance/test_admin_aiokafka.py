"""aiokafka's admin client, which speaks only old (non-flexible) versions of the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from support.clients import Record
from support.clients.confluent import Confluent
from support.waiting import eventually

Name = Callable[[str], str]
T = TypeVar("T")
Admin = Callable[[Callable[[AIOKafkaAdminClient], Awaitable[Any]]], Any]


@pytest.fixture
def aadmin(bootstrap: str) -> Admin:
    """aadmin(lambda admin: admin.list_topics()) runs one call with a client of its own."""

    def call(work: Callable[[AIOKafkaAdminClient], Awaitable[T]]) -> T:
        async def run() -> T:
            client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await client.start()
            try:
                return await work(client)
            finally:
                await client.close()

        return asyncio.run(run())

    return call


def test_topics_are_made_listed_described_and_deleted(aadmin: Admin, name: Name) -> None:
    topic = name("made")
    made = aadmin(lambda admin: admin.create_topics([NewTopic(topic, 2, 1)]))
    assert made.topic_errors[0][1] == 0
    eventually(lambda: topic in aadmin(lambda admin: admin.list_topics()))
    (described,) = aadmin(lambda admin: admin.describe_topics([topic]))
    assert len(described["partitions"]) == 2
    grown = aadmin(lambda admin: admin.create_partitions({topic: NewPartitions(3)}))
    assert grown.topic_errors[0][1] == 0
    deleted = aadmin(lambda admin: admin.delete_topics([topic]))
    assert deleted.topic_error_codes == [(topic, 0)]
    eventually(lambda: topic not in aadmin(lambda admin: admin.list_topics()))


def test_a_topic_that_exists_is_not_made_again(aadmin: Admin, topic: str) -> None:
    made = aadmin(lambda admin: admin.create_topics([NewTopic(topic, 1, 1)]))
    assert made.topic_errors[0][1] == 36


def test_settings_are_described_and_changed(aadmin: Admin, topic: str) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": "7654321"})
    aadmin(lambda admin: admin.alter_configs([resource]))

    def value() -> str:
        asked = ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": None})
        return str(aadmin(lambda admin: admin.describe_configs([asked])))

    eventually(lambda: "7654321" in value())


def test_the_cluster_is_described(aadmin: Admin, bootstrap: str) -> None:
    described = aadmin(lambda admin: admin.describe_cluster())
    (broker,) = described["brokers"]
    assert f"{broker['host']}:{broker['port']}" == bootstrap


def test_groups_are_listed_described_and_their_offsets_told(
    aadmin: Admin, confluent: Confluent, topic: str, name: Name
) -> None:
    group = name("group")
    confluent.produce(topic, [Record(b"v")])
    confluent.read_group(topic, group, 1)
    listed = aadmin(lambda admin: admin.list_consumer_groups())
    assert (group, "consumer") in [tuple(one) for one in listed]
    described = aadmin(lambda admin: admin.describe_consumer_groups([group]))
    assert "Empty" in str(described)
    offsets = aadmin(lambda admin: admin.list_consumer_group_offsets(group))
    assert offsets[TopicPartition(topic, 0)].offset == 1


def test_records_are_deleted(aadmin: Admin, confluent: Confluent, topic: str) -> None:
    confluent.produce(topic, [Record(b"%d" % n) for n in range(5)])
    place = TopicPartition(topic, 0)
    answer = aadmin(lambda admin: admin.delete_records({place: RecordsToDelete(before_offset=3)}))
    assert answer[place] == 3
    assert confluent.watermarks(topic) == (3, 5)
