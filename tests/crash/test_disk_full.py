"""A full disk, seen by clients: producers are refused, consumers go on, and room heals it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from support.batches import batch, records
from support.broker import BrokerProcess
from support.clients.confluent import consumer, producer, take
from support.fetching import fetch_bytes
from support.waiting import eventually
from support.wire import Wire, create_topic

pytestmark = pytest.mark.own_broker

SIZE = 24 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of a few megabytes, partly taken by a ballast that a test may remove."""
    if os.geteuid() != 0:
        pytest.skip("disk full: only root can mount a small tmpfs")
    where = tmp_path / "small"
    where.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(where)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"disk full: no tmpfs here ({done.stderr.strip()[:100]})")
    (where / "ballast").write_bytes(b"b" * (8 << 20))
    yield where
    subprocess.run(["umount", "--lazy", str(where)], check=False)


@pytest.fixture
def broker(small_disk: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(small_disk / "data").start()
    yield process
    process.kill()
    print(process.last_words())


def produce(wire: Wire, topic: str, data: bytes) -> tuple[str, int]:
    partition = {"index": 0, "records": data}
    values = {
        "transactional_id": None,
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [partition]}],
    }
    answer = wire.call("produce", 9, values).responses[0].partition_responses[0]
    return str(answer.error_code.name), int(answer.base_offset)


def fill(wire: Wire, topic: str) -> int:
    """Write until the broker refuses; how many records it took."""
    for taken in range(200):
        error, offset = produce(wire, topic, batch([b"%d:" % taken + b"x" * 300_000]))
        if error != "none":
            assert error == "kafka_storage_error"
            return taken
        assert offset == taken
    raise AssertionError("the disk was never full")


def read_numbers(wire: Wire, topic: str, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        data = fetch_bytes(wire, topic, len(found), max_wait=100)
        fresh = [int(one.value.split(b":")[0]) for one in records(data)]
        assert fresh, f"only {len(found)} of {count} records can be read"
        found += fresh
    return found


def test_producers_are_refused_consumers_go_on_and_room_heals_it(
    broker: BrokerProcess, small_disk: Path
) -> None:
    with Wire(broker.host, broker.port) as wire:
        create_topic(wire, "orders")
        taken = fill(wire, "orders")
        assert taken > 10
        for _ in range(5):
            assert produce(wire, "orders", batch([b"y" * 300_000]))[0] == "kafka_storage_error"
        assert read_numbers(wire, "orders", taken) == list(range(taken))
        source = consumer(broker.bootstrap)
        source.assign([TopicPartition("orders", 0, 0)])
        assert len(take(source, taken)) == taken
        source.close()
        (small_disk / "ballast").unlink()
        eventually(lambda: produce(wire, "orders", batch([b"%d:z" % taken]))[0] == "none")
        assert read_numbers(wire, "orders", taken + 1) == list(range(taken + 1))
    broker.stop()
    broker.start()
    with Wire(broker.host, broker.port) as wire:
        assert read_numbers(wire, "orders", taken + 1) == list(range(taken + 1))


def test_a_broker_killed_on_a_full_disk_starts_again_with_everything(
    broker: BrokerProcess, small_disk: Path
) -> None:
    with Wire(broker.host, broker.port) as wire:
        create_topic(wire, "orders")
        taken = fill(wire, "orders")
    broker.kill()
    (small_disk / "ballast").unlink()
    broker.start()
    with Wire(broker.host, broker.port) as wire:
        assert read_numbers(wire, "orders", taken) == list(range(taken))
        assert produce(wire, "orders", batch([b"%d:z" % taken])) == ("none", taken)


def test_an_idempotent_producer_gets_through_once_there_is_room(
    broker: BrokerProcess, small_disk: Path
) -> None:
    """KAFKA_STORAGE_ERROR is an error to try again, and the sequence has no gap and no double."""
    with Wire(broker.host, broker.port) as wire:
        create_topic(wire, "orders")
        taken = fill(wire, "orders")
        sender = producer(
            broker.bootstrap, enable_idempotence=True, linger_ms=0, delivery_timeout_ms=60_000
        )
        refused: list[object] = []
        for number in range(taken, taken + 3):
            sender.produce(
                "orders",
                b"%d:" % number + b"w" * 300_000,
                partition=0,
                on_delivery=lambda error, _: refused.append(error) if error else None,
            )
        assert sender.flush(1) > 0, "there was still room"
        (small_disk / "ballast").unlink()
        assert sender.flush(30) == 0
        assert refused == []
        assert read_numbers(wire, "orders", taken + 3) == list(range(taken + 3))
