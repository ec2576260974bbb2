"""Transactions with every client that has them: the classic flow, and V2 in the Java client.

confluent-kafka, aiokafka and kafka-python add each partition to the transaction by a request of
its own; the Java client, told of transaction.version 2, lets the broker do it (KIP-890).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from support.clients import Record, Refused
from support.clients.confluent import Confluent, consumer, take
from support.clients.kafka_python import KafkaAdminClient
from support.clients.transactional import (
    AioTransactions,
    ConfluentTransactions,
    Fenced,
    JavaTransactions,
    KafkaPythonTransactions,
    Transactions,
)
from support.waiting import eventually

Name = Callable[[str], str]
MakeTopic = Callable[..., str]
Open = Callable[..., Transactions]


@pytest.fixture(params=["confluent", "aiokafka", "kafka_python", "java"])
def producer(request: pytest.FixtureRequest, bootstrap: str) -> Iterator[Open]:
    """producer(transactional_id, timeout_ms) opens a transactional producer of each client."""
    opened: list[Transactions] = []

    def open_one(transactional_id: str, timeout_ms: int = 60_000) -> Transactions:
        made: Any
        match request.param:
            case "confluent":
                made = ConfluentTransactions(bootstrap, transactional_id, timeout_ms)
            case "aiokafka":
                made = AioTransactions(bootstrap, transactional_id, timeout_ms)
            case "kafka_python":
                made = KafkaPythonTransactions(bootstrap, transactional_id, timeout_ms)
            case _:
                jvm = request.getfixturevalue("jvm")
                made = JavaTransactions(bootstrap, transactional_id, timeout_ms, jvm=jvm)
        opened.append(made)
        return opened[-1]

    yield open_one
    for one in opened:
        with contextlib.suppress(Fenced, Refused):
            one.close()


def committed(
    confluent: Confluent, topic: str, count: int, partition: int = 0
) -> list[bytes | None]:
    read = confluent.read(topic, count, partition=partition, committed_only=True)
    return [record.value for record in read]


def stable_end(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The last stable offset, as a read_committed reader sees the end."""
    source = consumer(bootstrap, isolation_level="read_committed")
    _, high = source.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
    source.close()
    return int(high)


def test_a_committed_transaction_is_seen_whole_in_every_partition(
    producer: Open, confluent: Confluent, make_topic: MakeTopic, name: Name
) -> None:
    orders, payments = make_topic(partitions=2), make_topic()
    one = producer(name("tx"))
    one.begin()
    one.send(orders, b"a", b"b", partition=0)
    one.send(orders, b"c", partition=1)
    one.send(payments, b"d")
    one.commit()
    assert committed(confluent, orders, 2) == [b"a", b"b"]
    assert committed(confluent, orders, 1, partition=1) == [b"c"]
    assert committed(confluent, payments, 1) == [b"d"]
    assert confluent.watermarks(orders) == (0, 3), "the marker takes an offset"


def test_an_aborted_transaction_is_seen_only_by_those_who_read_uncommitted(
    producer: Open, confluent: Confluent, topic: str, name: Name
) -> None:
    one = producer(name("tx"))
    one.begin()
    one.send(topic, b"never", b"ever")
    one.abort()
    one.begin()
    one.send(topic, b"kept")
    one.commit()
    assert committed(confluent, topic, 1) == [b"kept"]
    assert [one.value for one in confluent.read(topic, 3)] == [b"never", b"ever", b"kept"]


def test_readers_of_committed_records_wait_for_the_open_transaction(
    producer: Open, bootstrap: str, confluent: Confluent, topic: str, name: Name
) -> None:
    """Records behind an open transaction stay back, committed or not, so that order holds."""
    confluent.produce(topic, [Record(b"before")])
    one = producer(name("tx"))
    one.begin()
    one.send(topic, b"inside")
    confluent.produce(topic, [Record(b"after")])
    source = consumer(bootstrap, isolation_level="read_committed")
    source.assign([TopicPartition(topic, 0, 0)])
    assert [message.value() for message in take(source, 1)] == [b"before"]
    assert source.poll(0.5) is None
    assert stable_end(bootstrap, topic) == 1
    one.commit()
    assert [message.value() for message in take(source, 2)] == [b"inside", b"after"]
    source.close()


def test_many_transactions_in_a_row(
    producer: Open, confluent: Confluent, topic: str, name: Name
) -> None:
    one = producer(name("tx"))
    for number in range(20):
        one.begin()
        one.send(topic, b"%d" % number, b"%d" % number)
        if number % 3:
            one.commit()
        else:
            one.abort()
    expected = [b"%d" % number for number in range(20) if number % 3 for _ in range(2)]
    assert committed(confluent, topic, len(expected)) == expected


def test_the_java_client_uses_the_second_flow_and_the_others_the_first(
    producer: Open, bootstrap: str, topic: str, name: Name
) -> None:
    """In the second flow every transaction has an epoch of its own (KIP-890)."""
    transactional_id = name("tx")
    one = producer(transactional_id)
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def epoch() -> int:
        found = admin.describe_transactions([transactional_id])[transactional_id]
        return int(found.producer_epoch)

    before = epoch()
    for _ in range(3):
        one.begin()
        one.send(topic, b"v")
        one.commit()
    expected = before + (3 if isinstance(one, JavaTransactions) else 0)
    eventually(lambda: epoch() == expected)
    admin.close()


def test_an_empty_transaction_can_be_committed_and_aborted(producer: Open, name: Name) -> None:
    one = producer(name("tx"))
    for end in (one.commit, one.abort):
        one.begin()
        end()


def test_a_new_producer_fences_the_one_before_and_aborts_its_transaction(
    producer: Open, confluent: Confluent, topic: str, name: Name
) -> None:
    transactional_id = name("tx")
    zombie = producer(transactional_id)
    zombie.begin()
    zombie.send(topic, b"of the zombie")
    successor = producer(transactional_id)
    successor.begin()
    successor.send(topic, b"of the successor")
    successor.commit()

    def go_on() -> None:
        zombie.send(topic, b"too late")
        zombie.commit()

    with pytest.raises((Fenced, Refused)):
        go_on()
    assert committed(confluent, topic, 1) == [b"of the successor"]
    values = [record.value for record in confluent.read(topic, 2)]
    assert values == [b"of the zombie", b"of the successor"]


def test_a_fenced_producer_cannot_commit(
    producer: Open, confluent: Confluent, topic: str, name: Name
) -> None:
    transactional_id = name("tx")
    zombie = producer(transactional_id)
    zombie.begin()
    zombie.send(topic, b"of the zombie")
    producer(transactional_id)
    with pytest.raises(Fenced):
        zombie.commit()
    confluent.produce(topic, [Record(b"plain")])
    assert committed(confluent, topic, 1) == [b"plain"]


def test_a_transaction_left_open_is_aborted_after_its_time_out(
    producer: Open, bootstrap: str, confluent: Confluent, topic: str, name: Name
) -> None:
    one = producer(name("tx"), 1000)
    one.begin()
    one.send(topic, b"forgotten")
    started = time.monotonic()
    eventually(lambda: stable_end(bootstrap, topic) == 2, within=20, every=0.2)
    assert time.monotonic() - started > 0.3
    confluent.produce(topic, [Record(b"plain")])
    assert committed(confluent, topic, 1) == [b"plain"]
    with pytest.raises((Fenced, Refused)):
        one.commit()


def test_a_time_out_over_the_brokers_limit_is_refused(producer: Open, name: Name) -> None:
    with pytest.raises(
        Refused,
        match=r"(?i)invalid.?transaction.?timeout|InvalidTxnTimeout|transaction timeout is larger",
    ):
        producer(name("tx"), 1_000_000)


def test_offsets_sent_to_a_transaction_count_when_it_commits(
    producer: Open, bootstrap: str, topic: str, name: Name
) -> None:
    group = name("group")
    reader = consumer(bootstrap, group)

    def offset() -> int:
        return int(reader.committed([TopicPartition(topic, 0)], timeout=10)[0].offset)

    one = producer(name("tx"))
    one.begin()
    one.send(topic, b"x")
    one.send_offset(group, topic, 5)
    one.abort()
    assert offset() == -1001
    one.begin()
    one.send_offset(group, topic, 7)
    one.send(topic, b"y")
    one.commit()
    assert offset() == 7
    reader.close()


def test_consume_transform_produce_happens_exactly_once(
    producer: Open, bootstrap: str, confluent: Confluent, make_topic: MakeTopic, name: Name
) -> None:
    """Every third transaction is aborted and its input read again; the output has each once."""
    source_topic, target, group = make_topic(), make_topic(), name("group")
    confluent.produce(source_topic, [Record(b"%d" % n) for n in range(60)])
    one = producer(name("tx"))
    done, attempt = 0, 0
    while done < 60:
        attempt += 1
        batch = confluent.read(source_topic, 10, start=done)
        one.begin()
        one.send(target, *((record.value or b"") + b"!" for record in batch))
        one.send_offset(group, source_topic, done + 10)
        if attempt % 3 == 0:
            one.abort()
            continue
        one.commit()
        reader = consumer(bootstrap, group)
        (found,) = reader.committed([TopicPartition(source_topic, 0)], timeout=10)
        reader.close()
        assert found.offset == done + 10
        done = found.offset
    assert committed(confluent, target, 60) == [b"%d!" % n for n in range(60)]
    assert attempt > 6
