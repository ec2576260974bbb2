"""The broker, producer and consumer of the textbook, over the real log."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import pytest

from penstock import InvalidArgument
from penstock.embedded import Broker, Consumer, Producer
from support.broker import SOURCES


class TestMessageQueue(unittest.TestCase):
    """The three tests of the document, word for word; only the import is ours."""

    def test_round_robin_distribution(self):
        broker = Broker(partition_count=2)
        producer = Producer(broker)

        partitions = [producer.send(f"m{i}") for i in range(4)]
        self.assertEqual(partitions, [0, 1, 0, 1])  # noqa: PT009 - the document's words

    def test_consumer_reads_in_order(self):
        broker = Broker(partition_count=1)
        producer = Producer(broker)
        consumer = Consumer(broker, partition_index=0)

        producer.send("a")
        producer.send("b")
        producer.send("c")

        self.assertEqual(consumer.poll(), "a")  # noqa: PT009
        self.assertEqual(consumer.poll(), "b")  # noqa: PT009
        self.assertEqual(consumer.poll(), "c")  # noqa: PT009
        self.assertIsNone(consumer.poll())  # noqa: PT009

    def test_independent_offsets(self):
        broker = Broker(partition_count=1)
        producer = Producer(broker)

        c1 = Consumer(broker, 0)
        c2 = Consumer(broker, 0)

        producer.send("x")
        producer.send("y")

        self.assertEqual(c1.poll(), "x")  # noqa: PT009
        self.assertEqual(c1.poll(), "y")  # noqa: PT009

        # c2 has its own offset; it replays from the beginning
        self.assertEqual(c2.poll(), "x")  # noqa: PT009


def test_the_example_of_the_document_says_what_the_document_says() -> None:
    with Broker(partition_count=2) as broker:
        producer = Producer(broker)
        for number in range(6):
            assert producer.send(f"message-{number}") == number % 2
        a, b = Consumer(broker, 0), Consumer(broker, 1)
        read = [consumer.poll() for _ in range(3) for consumer in (a, b)]
        assert read == [f"message-{number}" for number in range(6)]
        assert [len(partition) for partition in broker.partitions] == [3, 3]
        assert list(broker.partitions[1].read(offset=1)) == ["message-3", "message-5"]


def test_bytes_come_out_as_bytes() -> None:
    with Broker(partition_count=1) as broker:
        Producer(broker).send(b"\xff\x00")
        Producer(broker).send("text")
        consumer = Consumer(broker)
        assert [consumer.poll(), consumer.poll()] == [b"\xff\x00", "text"]


def test_a_consumer_can_read_again() -> None:
    with Broker(partition_count=1) as broker:
        for letter in "abc":
            Producer(broker).send(letter)
        consumer = Consumer(broker)
        assert [consumer.poll() for _ in range(3)] == ["a", "b", "c"]
        consumer.seek(1)
        assert consumer.poll() == "b"
        assert Consumer(broker, offset=2).poll() == "c"


def test_threads_may_share_a_consumer_and_a_producer() -> None:
    with Broker(partition_count=1) as broker:
        producer, consumer = Producer(broker), Consumer(broker)
        senders = [
            threading.Thread(target=lambda n=n: [producer.send(f"{n}-{i}") for i in range(50)])
            for n in range(4)
        ]
        for thread in senders:
            thread.start()
        for thread in senders:
            thread.join()
        seen: list[str | bytes] = []

        def drain() -> None:
            while (message := consumer.poll()) is not None:
                seen.append(message)

        readers = [threading.Thread(target=drain) for _ in range(4)]
        for thread in readers:
            thread.start()
        for thread in readers:
            thread.join()
        assert sorted(seen) == sorted(f"{n}-{i}" for n in range(4) for i in range(50))


def test_with_a_path_messages_survive(tmp_path: Path) -> None:
    with Broker(partition_count=3, path=tmp_path / "data") as broker:
        assert Producer(broker).send("kept") == 0
    with Broker(path=tmp_path / "data") as broker:
        assert len(broker.partitions) == 3
        assert Consumer(broker, 0).poll() == "kept"


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(InvalidArgument, match="partition_count"):
        Broker(partition_count=0)
    with Broker(partition_count=2) as broker:
        with pytest.raises(InvalidArgument, match="0 to 1"):
            Consumer(broker, partition_index=2)
        with pytest.raises(InvalidArgument, match="text or bytes"):
            Producer(broker).send(7)  # type: ignore[arg-type]


def test_whoever_forgets_to_close_is_forgiven() -> None:
    script = (
        "import gc; from penstock.embedded import Broker, Producer\n"
        "Producer(Broker()).send('x'); gc.collect()\n"  # dropped while the process goes on
        "kept = Broker(); Producer(kept).send('y')\n"  # open when it ends
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
