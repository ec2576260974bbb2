"""Partitions that are deleted while somebody opens them, waits for them or reads them."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from penstock.errors import UnknownTopicOrPartition
from penstock.model.records import build_batch
from penstock.runtime.disk import Buffer
from penstock.runtime.memory_disk import MemoryFile
from support.queue_world import SlowDisk, World, in_world

slowly = partial(in_world, disk=SlowDisk)


@slowly
async def test_what_waits_for_the_disk_ends_when_its_queue_is_deleted(world: World) -> None:
    assert isinstance(world.disk, SlowDisk)
    await world.declare("q")
    await world.publish("q", "warm")
    world.disk.gate.clear()
    publishing = asyncio.create_task(world.publish("q", "a"))
    await world.settle()
    await world.session.delete_queue("q")
    world.disk.gate.set()
    assert await asyncio.wait_for(publishing, 10) == [], "there is nothing left to keep"


@slowly
async def test_a_marker_does_not_wait_for_a_topic_that_was_deleted(world: World) -> None:
    assert isinstance(world.disk, SlowDisk)
    await world.topics.create("orders", partitions=1)
    await world.partitions.replica("orders", 0)
    world.disk.gate.clear()
    marking = asyncio.create_task(
        world.partitions.write_marker(
            "orders", 0, producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0
        )
    )
    await world.settle()
    await world.topics.delete("orders")
    world.disk.gate.set()
    await asyncio.wait_for(marking, 10)


@slowly
async def test_a_partition_deleted_while_it_is_opened_is_not_there_under_its_name(
    world: World,
) -> None:
    await world.topics.create("orders", partitions=1)
    replica = await world.partitions.replica("orders", 0)
    now_ms = world.clock.now_ms()
    batch = build_batch([(b"k", b"v", ())], timestamp_ms=now_ms, producer_id=1, producer_epoch=0)
    await replica.safe(replica.append_own(batch, now_ms).end_offset)
    await world.kill()
    gate = threading.Event()

    class ColdFile(MemoryFile):
        __slots__ = ()

        def read_now(self, length: int, position: int) -> Buffer | None:
            return None

        def duplicate(self) -> ColdFile:
            return ColdFile(self._inode, self._disk, self._path)

        def read(self, length: int, position: int) -> Buffer:
            if threading.current_thread() is not threading.main_thread():
                assert gate.wait(30)
            return super().read(length, position)

    log = world.store.get("orders", world.topics.get("orders").id, 0, replica.log.settings)
    file = log.segments[0].file()
    assert isinstance(file, MemoryFile)
    log.segments[0]._file = ColdFile(file._inode, world.disk, file._path)
    opening = asyncio.create_task(world.partitions.replica("orders", 0))
    await world.settle()
    await world.topics.delete("orders")
    await world.topics.create("orders", partitions=1)
    gate.set()
    with pytest.raises(UnknownTopicOrPartition):
        await asyncio.wait_for(opening, 10)
    again = await world.partitions.replica("orders", 0)
    assert not again.log.retired
    assert again.log.topic_id == world.topics.get("orders").id
