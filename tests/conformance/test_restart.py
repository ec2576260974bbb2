"""A clean stop and a new start, with clients that had no idea: nothing of theirs is forgotten."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from support.batches import batch
from support.broker import SOURCES, BrokerProcess, free_port
from support.clients import Record
from support.clients.confluent import Confluent, consumer, producer, take
from support.clients.transactional import ConfluentTransactions
from support.members import Member, settled
from support.waiting import eventually
from support.wire import Wire

pytestmark = pytest.mark.own_broker
Start = Callable[..., BrokerProcess]


@pytest.fixture
def own(start_broker: Start) -> BrokerProcess:
    return start_broker(port=free_port())


def admin_of(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


def create(broker: BrokerProcess, topic: str, partitions: int = 1, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = admin_of(broker)  # it must outlive its future
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(15)


def test_topics_records_and_settings_are_there_after_a_restart(own: BrokerProcess) -> None:
    create(own, "orders", 3, retention_ms="777777777")
    records = [Record(b"%d" % n, b"key", partition=n % 3) for n in range(30)]
    Confluent(own.bootstrap).produce("orders", records, codec="zstd")
    admin = admin_of(own)
    cluster = admin.describe_cluster().result(10).cluster_id
    own.restart()
    client = Confluent(own.bootstrap)
    for partition in range(3):
        read = client.read("orders", 10, partition=partition)
        assert [record.value for record in read] == [b"%d" % n for n in range(partition, 30, 3)]
    resource = ConfigResource(ResourceType.TOPIC, "orders")
    found = admin.describe_configs([resource])[resource].result(10)
    assert found["retention.ms"].value == "777777777"
    assert admin.describe_cluster().result(10).cluster_id == cluster


def test_committed_offsets_and_groups_are_there_after_a_restart(own: BrokerProcess) -> None:
    create(own, "orders")
    client = Confluent(own.bootstrap)
    client.produce("orders", [Record(b"%d" % n) for n in range(10)])
    client.read_group("orders", "billing", 10)
    own.restart()
    source = consumer(own.bootstrap, "billing")
    (place,) = source.committed([TopicPartition("orders", 0)], timeout=10)
    assert place.offset == 10
    source.close()
    admin = admin_of(own)
    listed = admin.list_consumer_groups().result(10).valid
    assert "billing" in {one.group_id for one in listed}
    client.produce("orders", [Record(b"10")])
    assert client.read_group("orders", "billing", 1)[0].offset == 10


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_of_a_group_stay_over_a_restart(own: BrokerProcess, protocol: str) -> None:
    create(own, "orders", 2)
    options = {"group_protocol": protocol, "reconnect_backoff_max_ms": 200}
    with Member(own.bootstrap, "billing", ["orders"], **options) as member:
        settled([member], "orders", 2)
        own.restart()
        Confluent(own.bootstrap).produce("orders", [Record(b"v")])
        eventually(lambda: len(member.seen) == 1, within=30)
        settled([member], "orders", 2)


def test_an_idempotent_producer_goes_on_over_a_restart(own: BrokerProcess) -> None:
    create(own, "orders")
    sender = producer(own.bootstrap, enable_idempotence=True, reconnect_backoff_max_ms=200)
    for number in range(500):
        sender.produce("orders", b"%d" % number, partition=0)
        sender.poll(0)
        if number == 250:
            own.restart()
    assert sender.flush(30) == 0
    read = Confluent(own.bootstrap).read("orders", 500)
    assert [record.value for record in read] == [b"%d" % n for n in range(500)]
    assert Confluent(own.bootstrap).watermarks("orders") == (0, 500)


def test_pipelined_requests_keep_their_order_while_partitions_open(own: BrokerProcess) -> None:
    """The second request opens hundreds of partitions; the third must not overtake it."""
    create(own, "orders", 300)
    own.restart()

    def numbered(sequence: int) -> dict[str, object]:
        return {"index": 0, "records": batch([b"v"], producer=(77, 0), sequence=sequence)}

    others = [{"index": number, "records": batch([b"v"])} for number in range(1, 300)]
    with Wire("127.0.0.1", own.port) as wire:
        for partitions in ([numbered(0)], [*others, numbered(1)], [numbered(2)]):
            topics = [{"name": "orders", "partition_data": partitions}]
            wire.send("produce", 9, {"acks": -1, "timeout": 20_000, "topic_data": topics})
        for offset in range(3):
            *_, last = wire.receive().responses[0].partition_responses
            assert (last.error_code.value, last.base_offset) == (0, offset)


@pytest.mark.parametrize(("count", "size"), [(1, 10), (3000, 10), (9, 100_000)])
def test_five_batches_sent_again_after_a_restart_are_recognised(
    own: BrokerProcess, count: int, size: int
) -> None:
    """As many as a producer has in flight, whose answers were lost with the connection."""
    create(own, "orders")

    def send(number: int) -> tuple[int, int]:
        data = batch([b"v" * size] * count, producer=(77, 0), sequence=number * count)
        topics = [{"name": "orders", "partition_data": [{"index": 0, "records": data}]}]
        request = {"acks": -1, "timeout": 20_000, "topic_data": topics}
        with Wire("127.0.0.1", own.port) as wire:
            answer = wire.call("produce", 9, request).responses[0].partition_responses[0]
        return answer.error_code.value, answer.base_offset

    assert [send(number) for number in range(8)] == [(0, n * count) for n in range(8)]
    own.restart()
    assert [send(number) for number in range(3, 9)] == [(0, n * count) for n in range(3, 9)]


def test_an_open_transaction_can_be_committed_after_a_restart(own: BrokerProcess) -> None:
    create(own, "orders")
    writer = ConfluentTransactions(own.bootstrap, "tx")
    writer.begin()
    writer.send("orders", b"before")
    own.restart()
    writer.send("orders", b"after")
    writer.commit()
    client = Confluent(own.bootstrap)
    read = client.read("orders", 2, committed_only=True)
    assert [record.value for record in read] == [b"before", b"after"]


def test_aborted_records_stay_hidden_after_a_restart(own: BrokerProcess) -> None:
    create(own, "orders")
    writer = ConfluentTransactions(own.bootstrap, "tx")
    writer.begin()
    writer.send("orders", b"never")
    writer.abort()
    writer.begin()
    writer.send("orders", b"kept")
    writer.commit()
    own.restart()
    read = Confluent(own.bootstrap).read("orders", 1, committed_only=True)
    assert read[0].value == b"kept"


def test_a_reader_that_waits_is_not_in_the_way_of_a_stop(own: BrokerProcess) -> None:
    create(own, "orders")
    source = consumer(own.bootstrap, fetch_wait_max_ms=60_000, socket_timeout_ms=70_000)
    source.assign([TopicPartition("orders", 0, 0)])
    assert source.poll(0.3) is None
    started = time.monotonic()
    own.stop()
    assert time.monotonic() - started < 8
    own.start()
    Confluent(own.bootstrap).produce("orders", [Record(b"v")])
    assert take(source, 1, within=20)[0].value() == b"v"
    source.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(own: BrokerProcess, number: signal.Signals) -> None:
    create(own, "orders")
    Confluent(own.bootstrap).produce("orders", [Record(b"v")])
    with Wire(own.host, own.port):
        own.signal(number)
        assert own.wait() == 0
    assert (own.data / ".kafka_cleanshutdown").exists()


def test_a_second_broker_on_the_same_data_is_refused(
    own: BrokerProcess, start_broker: Start
) -> None:
    second = BrokerProcess(own.data)
    done = subprocess.run(
        second.command(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert str(own.data) in done.stderr
    assert "Traceback" not in done.stderr
    create(own, "still-alive")


def test_a_broker_in_memory_writes_nothing(tmp_path: Path, start_broker: Start) -> None:
    own = start_broker(memory=True)
    create(own, "orders")
    client = Confluent(own.bootstrap)
    client.produce("orders", [Record(b"v")])
    assert client.read("orders", 1)[0].value == b"v"
    client.read_group("orders", "group", 1)
    own.stop()
    assert not own.data.exists()
