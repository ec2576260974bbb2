"""The library for code with an event loop, in both homes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

import penstock
from penstock import TopicPartition, aio
from penstock.aio import (
    AsyncClient,
    AsyncConsumption,
    AsyncExchange,
    AsyncQueue,
    AsyncQueueMessage,
    AsyncSubscription,
    AsyncTransaction,
    AsyncWorker,
)
from penstock.client.admin import Admin
from penstock.client.aio_admin import AsyncAdmin
from support.broker import BrokerProcess, ForeignBroker, doors
from support.naming import unique

Scenario = Callable[[AsyncClient], Awaitable[None]]
Play = Callable[..., None]


@pytest.fixture
def play(home: str, tmp_path: Path, request: pytest.FixtureRequest) -> Play:
    """play(scenario): run it with a client of this home."""

    async def run(scenario: Scenario, **options: object) -> None:
        if home == "in-process":
            opening = aio.open(tmp_path / "data", **options)  # type: ignore[arg-type]
        else:
            broker: BrokerProcess | ForeignBroker = request.getfixturevalue("broker")
            wanted = {**doors(broker), **options}
            opening = aio.connect(broker.bootstrap, **wanted)  # type: ignore[arg-type,assignment]
        async with opening as mq, asyncio.timeout(60):
            await scenario(mq)

    def play(scenario: Scenario, **options: object) -> None:
        asyncio.run(run(scenario, **options))

    return play


async def new_topic(mq: AsyncClient, partitions: int = 1) -> str:
    name = unique("topic")
    await mq.admin.create_topic(name, partitions, config={"retention.ms": -1})
    return name


async def texts(mq: AsyncClient, topic: str, partition: int = 0) -> list[str]:
    return [message.text async for message in mq.read(topic, partition)]


async def true_soon(question: Callable[[], Awaitable[object]], within: float = 15.0) -> None:
    async with asyncio.timeout(within):
        while not await question():
            await asyncio.sleep(0.02)


# --- the same calls -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sync", "asynchronous", "without"),
    [
        (penstock.Client, AsyncClient, set()),
        (penstock.LocalClient, aio.AsyncLocalClient, set()),
        (penstock.Subscription, AsyncSubscription, set()),
        (penstock.Transaction, AsyncTransaction, {"send"}),
        (penstock.Queue, AsyncQueue, set()),
        (penstock.QueueMessage, AsyncQueueMessage, set()),
        (penstock.Consumption, AsyncConsumption, set()),
        (penstock.Exchange, AsyncExchange, set()),
        (penstock.Worker, AsyncWorker, set()),
        (Admin, AsyncAdmin, set()),
    ],
)
def test_every_call_has_its_twin(
    sync: type[object], asynchronous: type[object], without: set[str]
) -> None:
    def calls(kind: type[object]) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert calls(sync) - calls(asynchronous) == without
    for name in calls(sync) & calls(asynchronous):
        one, other = getattr(sync, name), getattr(asynchronous, name)
        if inspect.isfunction(one) and inspect.isfunction(other):
            known = set(inspect.signature(other).parameters)
            missing = set(inspect.signature(one).parameters) - known - {"timeout", "on_delivery"}
            assert not missing or "options" in known, f"{name} lacks {missing}"


# --- publishing -----------------------------------------------------------------------------------


def test_publishing(play: Play) -> None:
    async def scenario(mq: AsyncClient) -> None:
        topic = await new_topic(mq)
        receipt = await mq.publish(topic, {"id": 1}, serializer="json", key="k", headers={"h": "1"})
        assert (receipt.topic, receipt.partition, receipt.offset) == (topic, 0, 0)
        futures = [await mq.send(topic, str(n)) for n in range(10)]
        assert [receipt.offset for receipt in await asyncio.gather(*futures)] == [*range(1, 11)]
        assert len(await mq.publish_many(topic, ["a", "b"])) == 2
        assert len(await mq.send_ordered(topic, "k", ["c", "d"])) == 2
        await mq.send(topic, "e")
        await mq.flush()
        assert len(await texts(mq, topic)) == 16
        first = [message async for message in mq.read(topic, limit=1)]
        assert (first[0].json(), first[0].key) == ({"id": 1}, b"k")
        again = await mq.publish(topic, "x", message_id="m-1")
        duplicate = await mq.publish(topic, "x", message_id="m-1")
        assert duplicate.duplicate
        assert duplicate.offset == again.offset

    play(scenario)


def test_backpressure_waits_without_stopping_the_loop(play: Play) -> None:
    async def scenario(mq: AsyncClient) -> None:
        topic = await new_topic(mq)
        futures = [await mq.send(topic, str(n)) for n in range(300)]
        await asyncio.gather(*futures)
        assert len(await texts(mq, topic)) == 300

    play(scenario, max_pending_messages=10)


def test_what_is_wrong_is_raised_where_it_is_awaited(play: Play) -> None:
    async def scenario(mq: AsyncClient) -> None:
        with pytest.raises(penstock.InvalidArgument):
            await mq.publish("no such name!", "x")
        with pytest.raises(penstock.NotFound):
            await mq.admin.topic(unique("nowhere"))
        topic = await new_topic(mq)
        with pytest.raises(penstock.InvalidArgument):
            await mq.publish(topic, object())

    play(scenario)


# --- streams --------------------------------------------------------------------------------------


def test_a_subscription_in_every_way(play: Play) -> None:
    async def scenario(mq: AsyncClient) -> None:
        topic, group = await new_topic(mq), unique("group")
        place = TopicPartition(topic, 0)
        assigned: list[object] = []

        async def on_assigned(_: AsyncSubscription, places: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            assigned.extend(places)

        await mq.publish_many(topic, [str(n) for n in range(10)])
        async with mq.subscribe(topic, group=group, on_assigned=on_assigned) as messages:
            assert await messages.wait_assigned() == [place]
            assert assigned == [place]
            assert (messages.assignment, messages.group) == ([place], group)
            first = await messages.get(20)
            assert first is not None
            assert first.text == "0"
            assert [m.text for m in await messages.batch(3, timeout=20)] == ["1", "2", "3"]
            assert messages.positions() == {place: 4}
            assert await messages.lag() == {place: 6}
            await messages.commit()
            assert await messages.committed() == {place: 4}
            await messages.seek(topic, 0, 8)
            assert [message.text async for message in take(messages, 2)] == ["8", "9"]
            await messages.seek_to_end()
            assert await messages.get(0.1) is None
            await messages.replay()
            assert [message.text async for message in take(messages, 1)] == ["0"]
            await messages.seek_to_beginning()
            await messages.pause()
            await messages.resume()
            assert [message.text async for message in take(messages, 1)] == ["0"]
        assert messages.is_closed

    play(scenario)


async def take(messages: AsyncSubscription, count: int):  # type: ignore[no-untyped-def]
    for _ in range(count):
        message = await messages.get(20)
        assert message is not None
        yield message


def test_batches_patterns_moments_and_filters(play: Play) -> None:
    async def scenario(mq: AsyncClient) -> None:
        prefix = unique("many")
        for n, name in enumerate(("a", "b")):
            await mq.admin.create_topic(f"{prefix}.{name}", 1, config={"retention.ms": -1})
            await mq.publish(
                f"{prefix}.{name}", name, timestamp=datetime(2024, n + 1, 1, tzinfo=UTC), priority=n
            )
        found: list[str] = []
        async with mq.subscribe(pattern=f"{prefix}\\..*", idle_timeout=1.5) as messages:
            async for batch in messages.batches(10):
                found += [message.text for message in batch]
        assert sorted(found) == ["a", "b"]
        start = datetime(2024, 1, 15, tzinfo=UTC)
        topics = [f"{prefix}.a", f"{prefix}.b"]
        async with mq.subscribe(topics, start=start, idle_timeout=1) as messages:
            assert [message.text async for message in messages] == ["b"]
        async with mq.subscribe(topics, filter="priority == 0", idle_timeout=1) as messages:
            assert [message.text async for message in messages] == ["a"]

    play(scenario)


def test_a_task_that_waits_can_be_cancelled_and_loses_nothing(play: Play) -> None:
    async def scenario(mq: AsyncClient) -> None:
        topic = await new_topic(mq)
        async with mq.subscribe(topic, group=unique("group")) as messages:
            await messages.wait_assigned()
            for n in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(messages.get(), 0.05)
                await mq.publish(topic, str(n))
                message = await messages.get(20)
                assert message is not None
                assert message.text == str(n)

    play(scenario)


def test_members_in_tasks_share_a_group(play: Play) -> None:
    async def scenario(mq: AsyncClient) -> None:
        topic, group = await new_topic(mq, 4), unique("group")
        found: list[str] = []
        members = [mq.subscribe(topic, group=group) for _ in range(2)]

        async def read(member: AsyncSubscription) -> None:
            async for message in member:
                found.append(message.text)

        tasks = [asyncio.create_task(read(member)) for member in members]
        async with asyncio.timeout(40):
            while any(len(member.assignment) != 2 for member in members):
                await asyncio.sleep(0.05)
        await mq.publish_many(topic, [str(n) for n in range(100)], key_of=lambda n: n)
        async with asyncio.timeout(20):
            while len(found) < 100:
                await asyncio.sleep(0.02)
        for member in members:
            await member.close()
        await asyncio.gather(*tasks)
        assert sorted(map(int, found)) == list(range(100))

    play(scenario)


# --- transactions and administration --------------------------------------------------------------


def test_transactions(play: Play) -> None:
    async def scenario(mq: AsyncClient) -> None:
        source, sink, tid = await new_topic(mq), await new_topic(mq), unique("tx")
        await mq.publish_many(source, ["1", "2"])
        group = unique("group")
        async with mq.subscribe(source, group=group, auto_commit=False) as messages:
            async with mq.transaction(tid) as tx:
                for message in await messages.batch(2, timeout=20):
                    await tx.publish(sink, message.payload * 2)
                await tx.commit_offsets(messages)
            assert len(tx.receipts) >= 1
        assert await texts(mq, sink) == ["11", "22"]
        assert (await mq.admin.group(group)).total_lag == 0

        async def fail() -> None:
            async with mq.transaction(tid) as tx:
                await tx.publish_many(sink, ["never"])
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        by_hand = mq.transaction(tid)
        await by_hand.begin()
        await by_hand.publish(sink, "3")
        await by_hand.commit()
        await by_hand.begin()
        await by_hand.publish(sink, "nor this")
        await by_hand.abort()
        assert await texts(mq, sink) == ["11", "22", "3"]

    play(scenario)


def test_administration(play: Play) -> None:
    async def scenario(mq: AsyncClient) -> None:
        admin, topic, group = mq.admin, await new_topic(mq), unique("group")
        assert topic in await admin.topics()
        await mq.publish_many(topic, ["a", "b", "c"])
        await admin.add_partitions(topic, 2)
        await admin.alter_topic(topic, {"max.message.bytes": 5000})
        assert (await admin.topic_config(topic))["max.message.bytes"] == "5000"
        await admin.delete_records(topic, 0, before=1)
        info = await admin.topic(topic)
        assert (info.partition_count, info.message_count) == (2, 2)
        async with mq.subscribe(topic, group=group) as messages:
            await messages.batch(2, timeout=20)
        assert group in await admin.groups()
        await true_soon(lambda: _is_empty(mq, group))
        await admin.reset_group(group, topic)
        assert (await admin.group(group)).total_lag == 2
        await admin.set_group_offsets(group, {(topic, 0): 2})
        assert (await admin.group(group)).total_lag == 1
        await admin.delete_group(group)
        assert (await admin.cluster()).brokers is not None
        await admin.delete_topic(topic)
        assert topic not in await admin.topics()

    play(scenario)


async def _is_empty(mq: AsyncClient, group: str) -> bool:
    return not (await mq.admin.group(group)).members


# --- queues ---------------------------------------------------------------------------------------


@pytest.mark.own_broker
def test_a_queue_in_every_way(play: Play) -> None:
    async def scenario(mq: AsyncClient) -> None:
        queue = await mq.queue(unique("queue"), max_priority=5)
        assert queue.name in await mq.queues()
        receipt = await queue.publish("a", message_id="m-1", headers={"h": "1"})
        assert receipt.message_id == "m-1"
        await queue.publish_many(["b", "c"])
        await (await queue.send("d", priority=5))
        assert [message.text for message in await queue.peek()] == ["a", "b", "c", "d"]
        first = await queue.get(20)
        assert first is not None
        assert first.text == "d"
        await first.ack()
        async with queue.consume(prefetch=10) as messages:
            message = await anext(messages)
            assert (message.text, message.headers) == ("a", {"h": "1"})
            assert (await queue.stats()).consumers == 1
            await message.nack()
            message = await again(messages, "a")
            await message.nack(delay=0.1)
            message = await again(messages, "a")
            await message.reject("no")
        dead_letters = await queue.dead_letters()
        dead = await dead_letters.get(20)
        assert dead is not None
        assert (dead.text, dead.error) == ("a", "no")
        await dead.nack()
        await true_soon(lambda: _ready(dead_letters, 1))
        assert (await queue.redrive()).moved == 1
        await true_soon(lambda: _ready(queue, 3))
        assert await queue.purge() == 3
        await queue.delete()
        assert queue.name not in await mq.queues()

    play(scenario)


async def again(messages: AsyncConsumption, text: str) -> AsyncQueueMessage:
    """The next message with that text; the others stay with this consumer."""
    while True:
        message = await messages.get(20)
        assert message is not None
        if message.text == text:
            return message


async def _ready(queue: AsyncQueue, count: int) -> bool:
    return (await queue.stats()).ready == count


@pytest.mark.own_broker
def test_exchanges(play: Play) -> None:
    async def scenario(mq: AsyncClient) -> None:
        events = await mq.exchange(unique("events"), "topic")
        assert events.name in await mq.exchanges()
        queue = await mq.queue(unique("queue"))
        await queue.bind(events.name, "order.*")
        await events.publish("order.created", "a")
        with pytest.raises(penstock.NotFound):
            await events.publish("other", "b")
        message = await queue.get(20)
        assert message is not None
        assert message.routing_key == "order.created"
        await message.ack()
        await queue.unbind(events.name, "order.*")
        await events.delete()
        assert events.name not in await mq.exchanges()

    play(scenario)


@pytest.mark.own_broker
def test_workers(play: Play) -> None:
    async def scenario(mq: AsyncClient) -> None:
        name = unique("work")
        found: list[str] = []
        together = asyncio.Barrier(2)

        @mq.worker(name, concurrency=2, max_retries=1, backoff=0.05)
        async def handle(message: AsyncQueueMessage) -> None:
            if message.text == "bad":
                raise ValueError("no")
            await together.wait()
            found.append(message.text)

        queue = await mq.queue(name)
        await queue.publish_many(["a", "b", "bad"])
        dead = await (await queue.dead_letters()).get(20)
        assert dead is not None
        assert (dead.text, dead.error) == ("bad", "no")
        await true_soon(lambda: asyncio.sleep(0, handle.handled == 2))
        assert sorted(found) == ["a", "b"]
        assert handle.failed == 2
        await handle.stop()
        await handle.stop()

    play(scenario)


@pytest.mark.own_broker
def test_request_and_reply(play: Play) -> None:
    async def scenario(mq: AsyncClient) -> None:
        name = unique("rpc")

        @mq.reply(name, concurrency=8)
        async def double(message: AsyncQueueMessage) -> str:
            return str(2 * int(message.text))

        answers = await asyncio.gather(*[mq.request(name, str(n), timeout=30) for n in range(30)])
        assert [answer.text for answer in answers] == [str(2 * n) for n in range(30)]
        with pytest.raises(penstock.RequestFailed, match="ValueError"):
            await mq.request(name, "x", timeout=20)
        with pytest.raises(penstock.TimedOut):
            await mq.request(unique("rpc"), "x", timeout=0.2)
        await double.stop()

    play(scenario)


# --- opening and closing --------------------------------------------------------------------------


def test_it_can_be_awaited_and_closed_by_hand() -> None:
    async def run() -> None:
        mq = await aio.open(None, kafka="127.0.0.1:0", num_partitions=1)
        await mq.publish("log", "a")
        assert mq.kafka is not None
        assert (mq.amqp, mq.http) == (None, None)
        other = await aio.connect(mq.kafka)
        assert await texts(other, "log") == ["a"]
        await other.close()
        await mq.close()
        await mq.close()
        assert mq.is_closed
        with pytest.raises(penstock.Closed):
            await mq.publish("log", "b")

    asyncio.run(run())


def test_what_cannot_be_opened_says_so() -> None:
    async def run() -> None:
        with pytest.raises(penstock.Unavailable):
            await aio.connect("127.0.0.1:1", timeout=5)
        with pytest.raises(penstock.ConfigurationError):
            async with aio.open(None, num_partitons=1):
                pass

    asyncio.run(run())
