"""The fixtures, the clock and the faults that Penstock ships for the tests of others."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
import tomllib
import unittest
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pika
import pika.exceptions
import pytest
from confluent_kafka import Consumer, KafkaException, Producer

import penstock
import penstock.testing
from penstock.testing import BrokerForTests
from support.broker import SOURCES
from support.naming import unique
from support.waiting import eventually

PATIENCE = 20.0


# --- fixtures -------------------------------------------------------------------------------------


def test_the_broker_of_a_test_has_every_door(penstock_broker: BrokerForTests) -> None:
    assert penstock_broker.kafka.startswith("127.0.0.1:")
    assert penstock_broker.amqp_url.startswith("amqp://guest:guest@127.0.0.1:")
    assert penstock_broker.client.admin.topics() == []
    penstock_broker.client.publish("orders", "mine alone", partition=0)
    assert [m.text for m in penstock_broker.connect().read("orders")] == ["mine alone"]


def test_the_next_test_finds_nothing_of_it(penstock_broker: BrokerForTests) -> None:
    assert penstock_broker.client.admin.topics() == []


@pytest.mark.parametrize("turn", [1, 2])
def test_the_broker_of_the_session_is_one(
    penstock_session_broker: BrokerForTests, turn: int
) -> None:
    mq = penstock_session_broker.client
    mq.publish("turns", str(turn), partition=0)
    assert [message.text for message in mq.read("turns")][-1] == str(turn)
    if turn == 2 and mq.admin.topic("turns").message_count > 1:  # both ran in this worker
        assert [message.text for message in mq.read("turns")] == ["1", "2"]


class TestOfUnittest(unittest.TestCase):
    def setUp(self) -> None:
        self.broker = self.enterContext(penstock.testing.broker(num_partitions=1))

    def test_it_serves_unittest_too(self) -> None:
        self.broker.client.publish("orders", "a")
        assert self.broker.client.admin.topic("orders").partition_count == 1

    def test_each_has_its_own(self) -> None:
        assert self.broker.client.admin.topics() == []


def test_pytest_finds_the_fixtures_by_itself(tmp_path: Path) -> None:
    declared = tomllib.loads((SOURCES.parent / "pyproject.toml").read_text())
    [module] = declared["project"]["entry-points"]["pytest11"].values()
    (tmp_path / "test_mine.py").write_text(
        textwrap.dedent(
            """
            import pytest

            @pytest.fixture
            def penstock_broker_options():
                return {"num_partitions": 7}

            def test_mine(penstock_broker, penstock_session_broker):
                penstock_broker.client.publish("orders", "a")
                assert penstock_broker.client.admin.topic("orders").partition_count == 7
                assert penstock_session_broker.client.admin.topics() == []
            """
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", module, "-W", "error", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_closing_twice_is_fine() -> None:
    broker = BrokerForTests()
    client = broker.connect()
    broker.close()
    broker.close()
    assert client.is_closed


# --- time -----------------------------------------------------------------------------------------


@pytest.fixture(params=["in-process", "network"])
def mq(request: pytest.FixtureRequest, penstock_broker: BrokerForTests) -> penstock.Client:
    return penstock_broker.client if request.param == "in-process" else penstock_broker.connect()


def test_delays_come_due_when_the_clock_is_moved(
    penstock_broker: BrokerForTests, mq: penstock.Client
) -> None:
    mq.publish("orders", "tomorrow", delay=timedelta(days=1))
    with mq.subscribe("orders", group="g") as messages:
        assert messages.get(0.3) is None
        penstock_broker.advance(timedelta(days=1, seconds=1))
        message = messages.get(PATIENCE)
        assert message is not None
        assert message.text == "tomorrow"


def test_a_delayed_message_survives_the_subscriber(
    penstock_broker: BrokerForTests, mq: penstock.Client
) -> None:
    mq.admin.create_topic("orders", 1)
    mq.publish("orders", "later", delay=3600)
    mq.publish("orders", "now")
    with mq.subscribe("orders", group="g") as messages:
        assert next(messages).text == "now"
    penstock_broker.advance(3601)
    with mq.subscribe("orders", group="g") as messages:
        # It was not done with, so its partition is read again from there.
        assert sorted([next(messages).text, next(messages).text]) == ["later", "now"]


def test_messages_expire_when_the_clock_is_moved(
    penstock_broker: BrokerForTests, mq: penstock.Client
) -> None:
    mq.publish("orders", "short", ttl=60, partition=0)
    mq.publish("orders", "long", ttl=3600, partition=0)
    penstock_broker.advance(61)
    with mq.subscribe("orders") as messages:
        message = messages.get(PATIENCE)
        assert message is not None
        assert message.text == "long"


def test_queues_follow_the_clock(penstock_broker: BrokerForTests, mq: penstock.Client) -> None:
    queue = mq.queue("work", visibility_timeout=300)
    queue.publish("later", delay=3600)
    assert queue.get() is None
    penstock_broker.advance(3601)
    message = queue.get(PATIENCE)
    assert message is not None
    penstock_broker.advance(301)  # nobody settled it
    again = queue.get(PATIENCE)
    assert again is not None
    assert again.delivery_count == 1
    again.ack()
    queue.publish("short", ttl=60)
    penstock_broker.advance(61)
    dead = queue.dead_letters.get(PATIENCE)
    assert dead is not None
    assert dead.deaths[0]["reason"] == "expired"


def test_renewing_keeps_a_message(penstock_broker: BrokerForTests, mq: penstock.Client) -> None:
    queue = mq.queue("work", visibility_timeout=300)
    queue.publish("a")
    with queue.consume() as messages:
        message = next(messages)
        for _ in range(3):
            penstock_broker.advance(200)
            message.extend()
            assert mq.queue("work").stats().in_flight == 1  # the server has heard of it
        penstock_broker.advance(299)
        assert queue.stats().in_flight == 1
        assert messages.get(0.2) is None  # it did not come again, not even to us
        message.ack()
        eventually(lambda: queue.stats().in_flight == 0)
        queue.publish("b")
        held = next(messages)
        penstock_broker.advance(301)
        eventually(lambda: queue.stats().ready == 1 or messages.get(0.1) is not None)
        held.ack()  # too late: it is somebody else's


def test_the_twin_renews_too(penstock_broker: BrokerForTests) -> None:
    async def scenario() -> None:
        async with penstock.aio.connect(penstock_broker.kafka, amqp=penstock_broker.amqp) as mq:
            queue = await mq.queue("work", visibility_timeout=300)
            await queue.publish("a")
            async with queue.consume() as messages:
                message = await anext(messages)
                for _ in range(3):
                    await asyncio.to_thread(penstock_broker.advance, 200)
                    await message.extend()
                    await mq.queue("work")  # the server has heard of it
                assert penstock_broker.client.queue("work").stats().in_flight == 1
                assert await messages.get(0.2) is None
                await message.ack()

    asyncio.run(scenario())


def test_retries_need_no_waiting(penstock_broker: BrokerForTests, mq: penstock.Client) -> None:
    tries: list[int] = []

    @mq.worker("work", max_retries=2, backoff=600)
    def handle(message: penstock.QueueMessage) -> None:
        tries.append(message.retry_count)
        raise ValueError("no")

    mq.queue("work").publish("a")

    def advance() -> bool:
        penstock_broker.advance(3600)
        return len(tries) == 3

    eventually(advance)
    assert tries == [0, 1, 2]
    handle.stop()


# --- faults ---------------------------------------------------------------------------------------


def test_clients_get_over_lost_connections(penstock_broker: BrokerForTests) -> None:
    mq = penstock_broker.connect()
    mq.publish("orders", "a", partition=0)
    assert penstock_broker.faults.drop_connections() > 0
    mq.publish("orders", "b", partition=0)
    assert [message.text for message in mq.read("orders")] == ["a", "b"]


def test_a_consumer_of_a_queue_gets_over_a_lost_connection(penstock_broker: BrokerForTests) -> None:
    queue = penstock_broker.connect().queue("work")
    queue.publish_many(["a", "b"])
    with queue.consume() as messages:
        assert next(messages).text == "a"
        penstock_broker.faults.drop_connections()
        found = {message.text: message for message in (next(messages), next(messages))}
        assert set(found) == {"a", "b"}  # what was not settled came again
        assert found["a"].delivery_count == 1


def test_workers_and_requests_get_over_lost_connections(penstock_broker: BrokerForTests) -> None:
    mq = penstock_broker.connect()

    @mq.reply("rpc")
    def echo(message: penstock.QueueMessage) -> bytes:
        return message.payload

    assert mq.request("rpc", "before", timeout=PATIENCE).text == "before"
    penstock_broker.faults.drop_connections()

    def asked() -> str | None:
        try:
            return mq.request("rpc", "after", timeout=2).text
        except penstock.PenstockError:  # what was on its way when the connection broke
            return None

    assert eventually(asked, within=40) == "after"
    echo.stop()


def test_a_broker_that_is_down(penstock_broker: BrokerForTests) -> None:
    mq = penstock_broker.connect(timeout=2)
    mq.publish("orders", "a", partition=0)
    with penstock_broker.faults.refuse():
        with pytest.raises(penstock.PenstockError):
            mq.publish("orders", "lost", partition=0)
        with pytest.raises(penstock.Unavailable):
            penstock.connect(penstock_broker.kafka, timeout=2)
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            pika.BlockingConnection(pika.URLParameters(penstock_broker.amqp_url))
    eventually(lambda: mq.publish("orders", "back", partition=0))
    assert [message.text for message in mq.read("orders")][-1] == "back"


def test_a_broker_that_is_slow(penstock_broker: BrokerForTests) -> None:
    mq = penstock_broker.connect()
    mq.publish("orders", "a")
    with penstock_broker.faults.delay(0.5):
        started = time.monotonic()
        mq.publish("orders", "b")
        assert time.monotonic() - started >= 0.4
        with pytest.raises(penstock.TimedOut):
            mq.publish("orders", "c", timeout=0.1)


def test_a_disk_that_is_full(penstock_broker: BrokerForTests) -> None:
    mq = penstock_broker.client
    mq.publish("orders", "a", partition=0)
    mq.queue("work").publish("a")
    with penstock_broker.faults.disk_full():
        with pytest.raises(penstock.Unavailable):
            mq.publish("orders", b"x" * 1000, partition=0)
        with pytest.raises(penstock.PenstockError):
            mq.queue("work").publish(b"x" * 1000)
        failed: list[object] = []
        producer = Producer(
            {"bootstrap.servers": penstock_broker.kafka, "message.timeout.ms": 1500}
        )
        producer.produce("orders", b"x" * 1000, on_delivery=lambda error, _: failed.append(error))
        producer.flush(10)
        assert failed
        assert failed[0] is not None  # an error of confluent-kafka cannot be compared with None
        assert [message.text for message in mq.read("orders")] == ["a"]
    mq.publish("orders", "again", partition=0)
    assert mq.queue("work").get(PATIENCE) is not None


def test_confluent_kafka_sees_the_faults(penstock_broker: BrokerForTests) -> None:
    """How somebody tests their own error handling."""
    consumer = Consumer(
        {
            "bootstrap.servers": penstock_broker.kafka,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    penstock_broker.client.publish("orders", "a", partition=0)
    consumer.subscribe(["orders"])
    message = consumer.poll(PATIENCE)
    assert message is not None
    assert message.value() == b"a"
    with penstock_broker.faults.refuse(), pytest.raises(KafkaException):
        consumer.list_topics(timeout=1)
    consumer.close()


def test_tests_at_the_same_time_do_not_meet() -> None:
    found: list[list[str]] = []

    def one(name: str) -> None:
        with penstock.testing.broker() as broker:
            broker.client.publish(name, "x")
            found.append(broker.client.admin.topics())

    names = [unique("topic") for _ in range(4)]
    threads = [threading.Thread(target=one, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(found) == sorted([name] for name in names)


def test_it_is_told_in_words(penstock_broker: BrokerForTests) -> None:
    ask: Callable[[object], str] = repr
    assert penstock_broker.kafka in ask(penstock_broker)


@pytest.mark.parametrize("span", [-1, timedelta(days=-1), "soon", float("nan")])
def test_time_runs_forwards_only(penstock_broker: BrokerForTests, span: object) -> None:
    with pytest.raises(penstock.InvalidArgument, match="time passes by seconds, 0 or more"):
        penstock_broker.advance(span)  # type: ignore[arg-type]
