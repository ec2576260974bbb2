"""Consumer groups with aiokafka: its assignors, rebalances, commits and time-outs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, OffsetAndMetadata, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import IllegalStateError

Name = Callable[[str], str]
MakeTopic = Callable[..., str]
ASSIGNORS = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]


@asynccontextmanager
async def member(
    bootstrap: str, group: str, topic: str, **options: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    settings = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 300,
        "fetch_max_wait_ms": 100,
    }
    source = AIOKafkaConsumer(topic, **{**settings, **options})
    await source.start()
    try:
        yield source
    finally:
        await source.stop()


async def owned_evenly(members: list[AIOKafkaConsumer], each: int) -> None:
    async with asyncio.timeout(20):
        while any(len(one.assignment()) != each for one in members):
            for one in members:
                await one.getmany(timeout_ms=50)


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda one: one.name)
def test_two_members_share_the_partitions(
    bootstrap: str, make_topic: MakeTopic, name: Name, assignor: type
) -> None:
    topic, group = make_topic(partitions=4), name("group")

    async def run() -> None:
        options = {"partition_assignment_strategy": [assignor]}
        async with (
            member(bootstrap, group, topic, **options) as one,
            member(bootstrap, group, topic, **options) as two,
        ):
            await owned_evenly([one, two], 2)
            assert not one.assignment() & two.assignment()

    asyncio.run(run())


def test_a_member_that_leaves_gives_its_partitions_to_the_others(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    topic, group = make_topic(partitions=4), name("group")

    async def run() -> None:
        async with member(bootstrap, group, topic) as one:
            async with member(bootstrap, group, topic) as two:
                await owned_evenly([one, two], 2)
            await owned_evenly([one], 4)

    asyncio.run(run())


def test_records_flow_through_rebalances_without_loss(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    topic, group = make_topic(partitions=4), name("group")
    seen: list[tuple[int, int]] = []
    stop = asyncio.Event()

    async def drain(source: AIOKafkaConsumer, done: asyncio.Event) -> None:
        while not done.is_set():
            for messages in (await source.getmany(timeout_ms=50)).values():
                seen.extend((one.partition, one.offset) for one in messages)
        await source.commit()

    async def run() -> None:
        sender = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await sender.start()
        async with member(bootstrap, group, topic) as one:
            reading = asyncio.create_task(drain(one, stop))
            for number in range(1000):
                await sender.send(topic, b"x", partition=number % 4)
            async with member(bootstrap, group, topic) as two:
                left = asyncio.Event()
                reading_too = asyncio.create_task(drain(two, left))
                async with asyncio.timeout(20):
                    while len(one.assignment()) != 2 or len(two.assignment()) != 2:
                        await sender.send_and_wait(topic, b"x", partition=0)
                for number in range(1000):
                    await sender.send(topic, b"x", partition=number % 4)
                left.set()
                await reading_too
            await sender.flush()
            ends = await one.end_offsets([TopicPartition(topic, n) for n in range(4)])
            async with asyncio.timeout(20):
                while len(set(seen)) < sum(ends.values()):
                    await asyncio.sleep(0.05)
            stop.set()
            await reading
        await sender.stop()
        assert len(set(seen)) == sum(ends.values())

    asyncio.run(run())


def test_commits_carry_their_metadata_and_are_found_again(
    bootstrap: str, topic: str, name: Name
) -> None:
    group, place = name("group"), TopicPartition(topic, 0)

    async def run() -> None:
        async with member(bootstrap, group, topic) as one:
            await owned_evenly([one], 1)
            await one.commit({place: OffsetAndMetadata(5, "half way")})
            assert await one.committed(place) == 5
        async with member(bootstrap, group, topic) as again:
            await owned_evenly([again], 1)
            assert await again.committed(place) == 5
            assert await again.position(place) == 5

    asyncio.run(run())


def test_a_commit_for_a_partition_that_is_not_owned_is_refused(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    topic, group = make_topic(), name("group")

    async def run() -> None:
        async with member(bootstrap, group, topic) as one:
            await owned_evenly([one], 1)
            with pytest.raises(IllegalStateError):
                await one.commit({TopicPartition(topic, 9): 1})

    asyncio.run(run())


def test_a_static_member_keeps_its_partitions_over_a_restart(
    bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    topic, group = make_topic(partitions=4), name("group")

    async def run() -> None:
        async with member(bootstrap, group, topic, group_instance_id="b") as two:
            async with member(bootstrap, group, topic, group_instance_id="a") as one:
                await owned_evenly([one, two], 2)
                kept = set(one.assignment())
            async with member(bootstrap, group, topic, group_instance_id="a") as again:
                await owned_evenly([again, two], 2)
                assert set(again.assignment()) == kept

    asyncio.run(run())
