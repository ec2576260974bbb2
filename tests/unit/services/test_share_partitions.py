"""Partitions that share groups read, when topics go and logs are damaged."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest

from penstock.app import Broker
from penstock.config import BrokerConfig
from penstock.errors import UnknownTopicOrPartition
from penstock.machines.share_group_heartbeat import ShareHeartbeat
from penstock.model.config_change import ConfigChange, Operation
from penstock.model.topic import Topic
from penstock.runtime.memory_disk import MemoryDisk
from support.batches import batch
from support.queue_world import SlowDisk


def with_group(work: Callable[[Broker, Topic], Awaitable[None]], disk: MemoryDisk) -> None:
    """A broker with a share group `g` of one member, and a topic that it reads."""

    async def scenario() -> None:
        config = BrokerConfig(memory=True, kafka=None, amqp=None, http=None)
        broker = Broker(config, disk=disk)
        await broker.open()
        services = broker.services
        topic = await services.topics.create("orders", partitions=1)
        earliest = ConfigChange("share.auto.offset.reset", Operation.SET, "earliest")
        await services.configs.alter_group("g", [earliest])
        hello = ShareHeartbeat(str(uuid.uuid4()), 0, None, "client", "host", ("orders",))
        await services.groups.shares.heartbeat("g", hello)
        await work(broker, topic)
        await broker.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_a_topic_deleted_while_a_group_begins_it_does_not_stay_under_its_name() -> None:
    disk = SlowDisk()

    async def check(broker: Broker, topic: Topic) -> None:
        services = broker.services
        shared = services.share_partitions
        await services.partitions.replica("orders", 0)
        disk.gate.clear()
        loading = asyncio.create_task(shared.get("g", topic, 0))
        await asyncio.sleep(0.05)  # it waits for its journal to be synced
        deleting = asyncio.create_task(services.topics.delete("orders"))
        await asyncio.sleep(0.05)
        disk.gate.set()
        await deleting
        with pytest.raises(UnknownTopicOrPartition):
            await loading
        again = await services.topics.create("orders", partitions=1)
        found = await shared.get("g", again, 0)
        assert found.topic.id == again.id
        assert not found.replica.log.retired

    with_group(check, disk)


def test_a_damaged_batch_does_not_stop_a_group() -> None:
    disk = MemoryDisk()

    async def check(broker: Broker, topic: Topic) -> None:
        replica = await broker.services.partitions.replica("orders", 0)
        for value in (b"a", b"b", b"c"):
            appended = replica.append(memoryview(bytearray(batch([value]))), broker.clock.now_ms())
            await replica.safe(appended.end_offset)
        middle = replica.log.size_bytes // 2
        disk.open("orders-0/00000000000000000000.log").write([b"!!"], middle)
        partition = await broker.services.share_partitions.get("g", topic, 0)
        got: list[int] = []
        for _ in range(3):
            acquired = await partition.acquire("m", 10, 1 << 20)
            got += [one.first for one in acquired.ranges]
        assert got == [0, 2]

    with_group(check, disk)
