"""The broker as a whole: what it refuses to start on, and what it stops for."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from penstock.app import Broker
from penstock.config import BrokerConfig
from penstock.errors import DataDirectoryDamaged
from penstock.runtime.memory_disk import MemoryDisk
from support.batches import batch

DOORLESS = {"kafka": None, "amqp": None, "http": None}


async def with_one_record(data: Path) -> None:
    """A data directory in which a broker has left a topic with a record."""
    broker = Broker(BrokerConfig(data=data, **DOORLESS))
    await broker.open()
    await broker.services.topics.create("orders", partitions=1)
    replica = await broker.services.partitions.replica("orders", 0)
    appended = replica.append(memoryview(bytearray(batch([b"a"]))), broker.clock.now_ms())
    await replica.safe(appended.end_offset)
    await broker.close()


def test_data_without_its_catalogue_is_left_alone(tmp_path: Path) -> None:
    async def check() -> None:
        await with_one_record(tmp_path)
        kept = (tmp_path / "catalogue.sqlite").read_bytes()
        (tmp_path / "catalogue.sqlite").unlink()
        with pytest.raises(DataDirectoryDamaged, match="no catalogue"):
            await Broker(BrokerConfig(data=tmp_path, **DOORLESS)).open()
        (tmp_path / "catalogue.sqlite").write_bytes(kept)
        broker = Broker(BrokerConfig(data=tmp_path, **DOORLESS))
        await broker.open()
        replica = await broker.services.partitions.replica("orders", 0)
        assert replica.high_watermark == 1
        await broker.close()

    asyncio.run(check())


def test_directories_that_are_no_partitions_are_left_alone(tmp_path: Path) -> None:
    async def check() -> None:
        await with_one_record(tmp_path)
        for name in ("backup-2024", "please-delete"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "letter.txt").write_text("dear all")
        broker = Broker(BrokerConfig(data=tmp_path, **DOORLESS))
        await broker.open()
        await broker.close()
        for name in ("backup-2024", "please-delete"):
            assert (tmp_path / name / "letter.txt").read_text() == "dear all"

    asyncio.run(check())


def test_a_checkpoint_that_cannot_be_synced_stops_the_broker() -> None:
    async def check() -> None:
        disk = MemoryDisk()
        stopped = asyncio.Event()
        config = BrokerConfig(memory=True, log_flush_offset_checkpoint_interval_ms=20, **DOORLESS)
        broker = Broker(config, disk=disk, on_fatal=lambda failure: stopped.set())
        await broker.open()
        disk.fail("sync", errno.EIO, path="-checkpoint")
        await broker.services.topics.create("orders", partitions=1)
        replica = await broker.services.partitions.replica("orders", 0)
        replica.append(memoryview(bytearray(batch([b"a"]))), broker.clock.now_ms())
        await asyncio.wait_for(stopped.wait(), 10)
        await broker.close()

    asyncio.run(check())
