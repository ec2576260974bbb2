"""Power loss: only what was synced is on the disk, and everything acknowledged was synced.

The data directory is an ext4 file system in a file. The broker is stopped in its tracks, the file
is copied (what the file system had not written to its disk is not in it), and another broker
starts from the copy. A machine that cannot mount it says so at the end of the run.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from support.broker import BrokerProcess
from support.history import (
    Committer,
    Writer,
    assert_commits_kept,
    check,
    contents,
    make_topic,
)

pytestmark = [pytest.mark.own_broker, pytest.mark.timeout(240)]

Start = Callable[..., BrokerProcess]
ROUNDS = 5
PARTITIONS = 3
IMAGE_BYTES = 192 << 20


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def mount(image: Path, where: Path) -> None:
    """`commit=600`: the file system is not to sync by itself, as it would every five seconds."""
    where.mkdir(exist_ok=True)
    done = command("mount", "-o", "loop,commit=600", str(image), str(where))
    if done.returncode != 0:
        pytest.skip(f"power loss: no loop mount on this machine ({done.stderr.strip()[:100]})")


class Disk:
    """An ext4 image in a file, its mount, and how to lose power on it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.mounted: list[Path] = []
        self.copies = 0
        self.image = home / "disk.img"

    def create(self) -> Path:
        with self.image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        done = command("mkfs.ext4", "-q", "-E", "lazy_itable_init=0", str(self.image))
        if done.returncode != 0:
            pytest.skip(f"power loss: no mkfs.ext4 on this machine ({done.stderr.strip()[:100]})")
        return self.attach(self.image)

    def attach(self, image: Path) -> Path:
        where = self.home / f"mount-{len(self.mounted)}"
        mount(image, where)
        self.mounted.append(where)
        return where

    def copy(self) -> Path:
        """The disk as it is at this moment, as a new one."""
        self.copies += 1
        target = self.home / f"copy-{self.copies}.img"
        subprocess.run(["cp", "--sparse=always", str(self.image), str(target)], check=True)
        return target

    def detach_all(self) -> None:
        for where in self.mounted:
            command("umount", "--lazy", str(where))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("power loss: only root can mount a disk image")
    made = Disk(tmp_path)
    yield made
    made.detach_all()


def test_the_copy_of_the_image_holds_only_what_was_synced(disk: Disk) -> None:
    """The test of the test: a file that nobody synced is not on the copy, a synced one is."""
    where = disk.create()
    with (where / "synced").open("wb") as file:
        file.write(b"x" * 100_000)
        os.fsync(file.fileno())
    (where / "unsynced").write_bytes(b"x" * 100_000)
    again = disk.attach(disk.copy())
    assert (again / "synced").read_bytes() == b"x" * 100_000
    lost = again / "unsynced"
    assert not lost.exists() or lost.read_bytes() != b"x" * 100_000


def test_acknowledged_records_survive_power_loss(
    disk: Disk, start_broker: Start, dice: random.Random
) -> None:
    broker = start_broker(disk.create() / "data")
    make_topic(broker, "orders", PARTITIONS, segment_bytes="1048576")
    writers = [Writer(broker.bootstrap, "orders", PARTITIONS, number) for number in range(2)]
    committer = Committer(broker.bootstrap, "orders", PARTITIONS, "billing")
    for thread in (*writers, committer):
        thread.start()
    total = 0
    for _ in range(ROUNDS):
        time.sleep(dice.uniform(0.2, 1.0))
        broker.signal(signal.SIGSTOP)
        promised = [dict(writer.acknowledged) for writer in writers]
        commits = dict(committer.acknowledged)
        image = disk.copy()
        broker.signal(signal.SIGCONT)
        total = max(total, look_at(disk, image, start_broker, promised, commits))
        image.unlink()
    assert total > 1000
    for writer in writers:
        writer.finish()
    committer.done.set()
    committer.join(20)
    broker.stop()


class Promise:
    """What one writer had been told when the power failed, in the shape that `check` wants."""

    def __init__(self, acknowledged: dict[bytes, tuple[int, int]]) -> None:
        self.acknowledged = acknowledged


def look_at(
    disk: Disk,
    image: Path,
    start_broker: Start,
    promised: list[dict[bytes, tuple[int, int]]],
    commits: dict[int, int],
) -> int:
    """Start a broker on the copy; everything promised must be there. How much that was."""
    where = disk.attach(image)
    survivor = start_broker(where / "data")
    try:
        log = {
            partition: contents(survivor.bootstrap, "orders", partition)
            for partition in range(PARTITIONS)
        }
        assert_commits_kept(survivor, "billing", "orders", commits)
        return check([Promise(each) for each in promised], log)
    finally:
        survivor.kill()
        command("umount", str(where))
        with contextlib.suppress(OSError):
            where.rmdir()


def test_topics_and_settings_survive_power_loss(disk: Disk, start_broker: Start) -> None:
    broker = start_broker(disk.create() / "data")
    for number in range(5):
        make_topic(broker, f"topic-{number}", 2, retention_ms="123456789")
    broker.signal(signal.SIGSTOP)
    image = disk.copy()
    broker.kill()
    survivor = start_broker(disk.attach(image) / "data")
    admin = AdminClient({"bootstrap.servers": survivor.bootstrap})
    topics = admin.list_topics(timeout=10).topics
    assert {f"topic-{number}" for number in range(5)} <= set(topics)
    resource = ConfigResource(ResourceType.TOPIC, "topic-3")
    found = admin.describe_configs([resource])[resource].result(10)
    assert found["retention.ms"].value == "123456789"
    survivor.kill()
