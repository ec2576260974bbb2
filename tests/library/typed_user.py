"""What a user may write: every public call, sync and async, for mypy's strict mode. Never run."""

from __future__ import annotations

from concurrent.futures import Future
from datetime import UTC, datetime, timedelta

import penstock
from penstock import (
    Client,
    ClusterInfo,
    Consumption,
    Exchange,
    Filter,
    GroupInfo,
    Message,
    Queue,
    QueueMessage,
    QueueStats,
    Receipt,
    Redriven,
    Subscription,
    TopicInfo,
    TopicPartition,
    Worker,
    partition_of_key,
)
from penstock.aio import (
    AsyncClient,
    AsyncConsumption,
    AsyncExchange,
    AsyncQueue,
    AsyncQueueMessage,
    AsyncSubscription,
    AsyncWorker,
)

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
PLACE = TopicPartition("orders", 0)


def publishing(mq: Client) -> None:
    one: Receipt = mq.publish("orders", "x", key=b"k", headers={"a": 1}, deliver_at=NOON, timeout=5)
    later: Future[Receipt] = mq.send("orders", b"x", on_delivery=lambda receipt, error: None)
    many = mq.publish_many("orders", [Message(b"x", message_id="1"), "y"], ttl=timedelta(days=1))
    kept = mq.send_ordered("orders", "user-1", [{"a": 1}], serializer="json")
    mq.flush(timeout=1)
    print(one.offset, later.result().message_id, many[0].partition, len(kept))
    print(partition_of_key(b"k", 3), Filter('key == "k"').matches(Message(b"x")))


def streams(mq: Client) -> None:
    with mq.subscribe(["orders"], group="g", auto_commit=False, filter="priority > 3") as messages:
        found: list[TopicPartition] = messages.wait_assigned()
        message: Message | None = messages.get(timeout=1)
        if message is not None:
            messages.commit(message)
            print(message.json(), message.is_expired(0), message.timestamp, message.priority)
        messages.commit({PLACE: 5})
        remembered: dict[TopicPartition, int] = messages.committed()
        lag, at = messages.lag(), messages.positions()
        messages.seek("orders", 0, 3)
        messages.seek_to_time(NOON)
        messages.seek_to_beginning()
        messages.seek_to_end()
        messages.replay(NOON)
        messages.pause([("orders", 0)])
        messages.resume()
        for batch in messages.batches(100):
            print([one.text for one in batch])
        with mq.transaction("id", timeout=10) as tx:
            tx.publish("out", "x")
            tx.publish_many("out", ["x", "y"])
            tx.send("out", "x")
            tx.commit_offsets(messages)
        by_hand = mq.transaction("id")
        by_hand.begin()
        by_hand.commit()
        by_hand.abort()
        print(found, remembered, lag, at, messages.batch(5, timeout=1))
    messages.close()
    texts: list[str] = [each.text for each in mq.read("orders", 0, NOON, limit=3)]
    print(texts)


def queues(mq: Client) -> None:
    queue: Queue = mq.queue("work", max_length=10, overflow="reject", visibility_timeout=30)
    queue.publish("a", priority=1)
    queue.send("a").result()
    queue.publish_many(["a", "b"], delay=1.5)
    message: QueueMessage | None = queue.get(timeout=1)
    if message is not None:
        message.extend()
        message.nack(delay=timedelta(seconds=1))
        message.reject(ValueError("no"))
        message.ack()
    peeked: list[Message] = queue.peek(3)
    stats: QueueStats = queue.stats()
    redriven: Redriven = queue.redrive(to="other", limit=5)
    exchange: Exchange = mq.exchange("events", "topic")
    queue.bind("events", "order.*")
    queue.unbind("events", "order.*")
    exchange.publish("order.new", "x")
    exchange.send("order.new", "x").result()
    exchange.delete()
    with queue.consume(prefetch=5, auto_ack=True, idle_timeout=1) as consumption:
        kind: Consumption = consumption
        print(kind.get(timeout=1), [each.text for each in consumption])
    kind.close()
    print(peeked, stats.ready, redriven.moved, queue.purge(), queue.delete())
    print(mq.queues(), mq.exchanges())


def work(mq: Client) -> None:
    @mq.worker("work", concurrency=8, max_retries=3, backoff=0.5)
    def handle(message: QueueMessage) -> None:
        print(message.text)

    @mq.reply("rpc", serializer="json")
    def answer(message: QueueMessage) -> dict[str, int]:
        return {"price": 42}

    worker: Worker = handle
    print(mq.request("rpc", "x", timeout=1).json(), worker.is_running, answer.handled)
    worker.stop(timeout=5)
    mq.run()
    mq.close()


def administration(mq: Client) -> None:
    admin = mq.admin
    admin.create_topic("orders", 3, config={"retention.ms": 1000})
    admin.add_partitions("orders", 6)
    admin.alter_topic("orders", {"retention.ms": None})
    settings: dict[str, str] = admin.topic_config("orders")
    topic: TopicInfo = admin.topic("orders")
    admin.delete_records("orders", 0, 5)
    group: GroupInfo = admin.group("g")
    admin.set_group_offsets("g", {PLACE: 1})
    admin.reset_group("g", "orders", NOON)
    admin.delete_group("g")
    cluster: ClusterInfo = admin.cluster()
    admin.delete_topic("orders")
    print(settings, topic, group, cluster, admin.topics(), admin.groups())


async def twin_publishing(mq: AsyncClient) -> None:
    receipt: Receipt = await mq.publish("orders", "x", key="k")
    sent = await mq.send("orders", "x")
    print(receipt, await sent, await mq.publish_many("orders", ["x"]))
    print(await mq.send_ordered("orders", "k", ["x"]))
    await mq.flush()


async def twin_streams(mq: AsyncClient) -> None:
    async with mq.subscribe("orders", group="g") as messages:
        subscription: AsyncSubscription = messages
        await subscription.wait_assigned()
        message: Message | None = await messages.get(timeout=1)
        await messages.commit(message)
        await messages.seek("orders", 0, 3)
        await messages.seek_to_time(NOON)
        await messages.seek_to_beginning()
        await messages.seek_to_end()
        await messages.replay()
        await messages.pause()
        await messages.resume()
        async for batch in messages.batches(100):
            print(len(batch))
        async with mq.transaction("id") as tx:
            await tx.publish("out", "x")
            await tx.publish_many("out", ["x"])
            await tx.commit_offsets(messages)
        by_hand = mq.transaction("id")
        await by_hand.begin()
        await by_hand.commit()
        await by_hand.abort()
        print(await messages.committed(), await messages.lag(), messages.positions())
        print(await messages.batch(5, timeout=1))
    await messages.close()
    print([each.text async for each in mq.read("orders", 0)])


async def twin_queues(mq: AsyncClient) -> None:
    queue: AsyncQueue = await mq.queue("work", max_priority=5)
    await queue.publish("a")
    await (await queue.send("a"))
    await queue.publish_many(["a", "b"])
    message: AsyncQueueMessage | None = await queue.get(timeout=1)
    if message is not None:
        await message.extend()
        await message.nack(delay=1)
        await message.reject("no")
        await message.ack()
    exchange: AsyncExchange = await mq.exchange("events", "fanout")
    await queue.bind("events")
    await queue.unbind("events")
    await exchange.publish("", "x")
    await (await exchange.send("", "x"))
    await exchange.delete()
    async with queue.consume() as consumption:
        kind: AsyncConsumption = consumption
        print(await kind.get(timeout=1))
    await kind.close()
    print(await queue.peek(3), await queue.stats(), await queue.redrive(), await queue.purge())
    print(await queue.delete(), await mq.queues(), await mq.exchanges())


async def twin_work(mq: AsyncClient) -> None:
    @mq.worker("work", concurrency=8)
    async def handle(message: AsyncQueueMessage) -> None:
        await message.ack()

    @mq.reply("rpc")
    async def answer(message: AsyncQueueMessage) -> str:
        return "42"

    worker: AsyncWorker = handle
    print((await mq.request("rpc", "x", timeout=1)).text, worker.is_running, answer.handled)
    await worker.stop()
    await mq.run()
    await mq.close()


async def twin_administration(mq: AsyncClient) -> None:
    admin = mq.admin
    await admin.create_topic("orders", 3)
    await admin.add_partitions("orders", 6)
    await admin.alter_topic("orders", {"retention.ms": 5})
    await admin.delete_records("orders", 0, 5)
    await admin.set_group_offsets("g", {PLACE: 1})
    await admin.reset_group("g", "orders", "earliest")
    await admin.delete_group("g")
    print(await admin.topic_config("orders"), await admin.topic("orders"), await admin.group("g"))
    print(await admin.cluster(), await admin.topics(), await admin.groups())
    await admin.delete_topic("orders")


async def ways_in() -> None:
    with penstock.open(None, kafka="127.0.0.1:0", num_partitions=3, tracing=False) as local:
        addresses: list[str | None] = [local.kafka, local.amqp, local.http]
        subscription: Subscription = local.subscribe(pattern="orders-.*")
        print(addresses, subscription.assignment, subscription.group)
    with penstock.connect(["a:9092", "b:9092"], ca="ca.pem", username="u", password="p") as far:
        print(far.is_closed)
    async with penstock.aio.open("data") as mine, penstock.aio.connect("a:9092", tls=True) as far2:
        print(mine.kafka, far2.is_closed)
