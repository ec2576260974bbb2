"""The asynchronous producers and consumers of the textbook, in process and over the network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock import Conflict, Fenced, InvalidArgument, PenstockError
from penstock.embedded import (
    ConsumerConfig,
    ConsumerRecord,
    DeadLetterQueueHandler,
    Handled,
    HashPartitioner,
    MessageConsumer,
    MessageProducer,
    PartitionedProducer,
    ProducerConfig,
    TransactionalProducer,
    TransactionState,
)
from penstock.embedded.underneath import Where
from support.naming import unique


@pytest.fixture(params=["in-process", "network"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Where]:
    """A client in this process, or the addresses of a broker elsewhere."""
    if request.param == "in-process":
        with penstock.open(tmp_path / "data", group_initial_rebalance_delay_ms=0) as mq:
            yield mq
    else:
        yield [request.getfixturevalue("broker").bootstrap]


async def _poll_until(consumer: MessageConsumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.poll(timeout_ms=500)
    return found


async def test_what_a_producer_sends_a_consumer_polls(where: Where) -> None:
    topic, group = unique("topic"), unique("group")
    with MessageProducer(where, ProducerConfig(default_priority=4, default_ttl=3600)) as producer:
        sent = await producer.send(topic, b"hello", key="user-1", headers={"source": "web"})
        assert (sent.topic, sent.offset) == (topic, 0)
        await asyncio.gather(*(producer.send(topic, b"%d" % n) for n in range(20)))
    with MessageConsumer(group, where, ConsumerConfig(max_poll_records=5)) as consumer:
        await consumer.subscribe([topic])
        records = await _poll_until(consumer, 21)
        first = next(record for record in records if record.value == b"hello")
        assert (first.key, first.headers, first.partition) == (
            b"user-1", {"source": "web"}, sent.partition
        )  # fmt: skip
        assert first.timestamp > 0
        assert first.message.priority == 4
        assert first.message.ttl == 3600
        assert sum(len(held) for held in consumer.assignment.values()) == 4
        await consumer.commit()
        assert sum(consumer.offsets.values()) == 21
    with MessageConsumer(group, where) as again:
        await again.subscribe([topic])
        with MessageProducer(where) as producer:
            await producer.send(topic, b"new")
        assert [record.value for record in await _poll_until(again, 1)] == [b"new"]


async def test_offsets_that_are_given_are_committed(where: Where) -> None:
    topic, group = unique("topic"), unique("group")
    with PartitionedProducer(servers=where) as producer:
        (*_, last) = await producer.send_ordered(topic, "k", ["a", "b", "c"])
    with MessageConsumer(group, where) as consumer:
        await consumer.subscribe([topic])
        await _poll_until(consumer, 3)
        await consumer.commit({(topic, last.partition): 1})
    with MessageConsumer(group, where) as again:
        await again.subscribe([topic])
        assert [record.value for record in await _poll_until(again, 2)] == [b"b", b"c"]


async def test_a_second_subscribe_adds_topics(where: Where) -> None:
    one, two = unique("one"), unique("two")
    with MessageProducer(where) as producer, MessageConsumer(unique("group"), where) as consumer:
        await producer.send(one, b"1")
        await producer.send(two, b"2")
        await consumer.subscribe([one])
        await consumer.subscribe([two])
        assert sorted(record.value for record in await _poll_until(consumer, 2)) == [b"1", b"2"]
        assert set(consumer.assignment) == {one, two}


async def test_ordered_messages_are_in_one_partition_in_order(where: Where) -> None:
    topic = unique("topic")
    payloads = [b"%d" % number for number in range(100)]
    with PartitionedProducer(servers=where) as producer:
        sent = await producer.send_ordered(topic, "user-7", payloads)
    assert len({metadata.partition for metadata in sent}) == 1
    assert [metadata.offset for metadata in sent] == list(range(100))
    with PartitionedProducer(HashPartitioner(4), servers=where) as producer:
        more = await producer.send_ordered(topic, "user-7", [penstock.Message(b"100")])
    assert (more[0].partition, more[0].offset) == (sent[0].partition, 100)


async def test_a_transaction_counts_wholly_or_not_at_all(where: Where) -> None:
    source, target, group = unique("source"), unique("target"), unique("group")
    with MessageProducer(where) as producer:
        await producer.send(source, b"order")
    with (
        MessageConsumer(group, where) as consumer,
        TransactionalProducer(unique("tx"), servers=where) as producer,
    ):
        assert producer.transaction_state is TransactionState.NOT_STARTED
        await consumer.subscribe([source])
        await producer.begin_transaction()
        assert producer.transaction_state is TransactionState.IN_PROGRESS
        await producer.send(target, b"wrong")
        await producer.abort_transaction()
        assert producer.transaction_state is TransactionState.ABORTED
        (record,) = await _poll_until(consumer, 1)
        await producer.begin_transaction()
        await producer.send(target, record.value, key="k")
        await producer.send_offsets(consumer)
        await producer.commit_transaction()
        assert producer.transaction_state is TransactionState.COMMITTED
    with MessageConsumer(unique("group"), where) as reader:
        await reader.subscribe([target])
        assert [record.value for record in await _poll_until(reader, 1)] == [b"order"]
        assert await reader.poll(timeout_ms=300) == []
    with MessageConsumer(group, where) as again:
        await again.subscribe([source])
        assert await again.poll(timeout_ms=1000) == []


async def test_the_newer_of_two_with_one_id_fences_the_older(where: Where) -> None:
    topic, name = unique("topic"), unique("tx")
    with (
        TransactionalProducer(name, servers=where) as older,
        TransactionalProducer(name, servers=where) as newer,
    ):
        await older.begin_transaction()
        await older.send(topic, b"zombie")
        await newer.begin_transaction()
        with pytest.raises(PenstockError) as refused:
            await older.commit_transaction()
        assert isinstance(refused.value, Fenced)
        assert older.transaction_state is TransactionState.ABORTED
        await newer.send(topic, b"new")
        await newer.commit_transaction()


async def test_a_failed_message_comes_again_and_is_a_dead_letter_in_the_end(where: Where) -> None:
    topic, letters = unique("topic"), unique("dlq")
    with (
        MessageProducer(where) as producer,
        MessageConsumer(unique("group"), where) as consumer,
        DeadLetterQueueHandler(letters, 3, servers=where, backoff=0.05) as handler,
    ):
        await producer.send(topic, b"poison", key="k", headers={"source": "web"})
        await consumer.subscribe([topic])
        became = []
        for tried in range(3):
            (record,) = await _poll_until(consumer, 1)
            assert record.message.retry_count == tried
            assert (record.value, record.key) == (b"poison", b"k")
            became.append(await handler.handle_failed_message(record, ValueError("bad order")))
            await consumer.commit()
        assert became == [Handled.RETRY, Handled.RETRY, Handled.DEAD]
        assert await consumer.poll(timeout_ms=300) == []
        with MessageConsumer(unique("group"), where) as graves:
            await graves.subscribe([letters])
            (dead,) = await _poll_until(graves, 1)
    assert dead.value == b"poison"
    assert dead.headers["source"] == "web"
    assert dead.headers["penstock.error"] == "bad order"
    assert dead.headers["penstock.source-topic"] == topic
    assert dead.message.retry_count == 3


async def test_what_cannot_be_is_said() -> None:
    with penstock.open(None) as mq:
        with pytest.raises(InvalidArgument, match="subscribe"):
            await MessageConsumer("g", mq).poll()
        with pytest.raises(InvalidArgument, match="list of topics"):
            await MessageConsumer("g", mq).subscribe("orders")
        producer = TransactionalProducer("t", servers=mq)
        with pytest.raises(Conflict, match="begin_transaction"):
            await producer.send("orders", b"x")
        await producer.begin_transaction()
        with pytest.raises(Conflict, match="already"):
            await producer.begin_transaction()
        await producer.abort_transaction()
        assert not mq.is_closed  # it was lent
