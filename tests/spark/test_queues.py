"""AMQP queues as sources: read by offset, from any place, again, and nothing is taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.model import queue_names
from penstock.spark.queues import topic_of_queue

pytestmark = pytest.mark.own_broker


@pytest.fixture
def channel(broker: Any) -> Iterator[Any]:
    parameters = pika.ConnectionParameters(broker.host, broker.amqp_port)
    connection = pika.BlockingConnection(parameters)
    yield connection.channel()
    connection.close()


def _publish(channel: Any, queue: str, bodies: list[bytes]) -> None:
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))


def _numbers(low: int, high: int) -> list[bytes]:
    return [b"%04d" % at for at in range(low, high)]


def test_reading_a_queue_takes_nothing_from_it(
    channel: Any, name: Any, reading: Callable[..., Any]
) -> None:
    queue = f"{name('Füllung')} / 1"  # nothing that a topic could be called
    channel.queue_declare(queue, durable=True)
    _publish(channel, queue, _numbers(0, 20))
    for _ in range(2):
        rows = reading(queue=queue, includeHeaders="true").orderBy("offset").collect()
        assert [bytes(row.value) for row in rows] == _numbers(0, 20)
        assert "amqp.properties" in {header.key for header in rows[0].headers}
    taken = [channel.basic_get(queue, auto_ack=True)[2] for _ in range(20)]
    assert taken == _numbers(0, 20)
    (last,) = reading(
        queue=queue, startingOffsets=f'{{"{topic_of_queue("/", queue)}":{{"0":19}}}}'
    ).collect()
    assert bytes(last.value) == b"0019"  # acknowledged, and still there to be read


def test_a_stream_of_a_queue_goes_on_where_it_was(
    spark: Any,
    broker: Any,
    channel: Any,
    name: Any,
    checkpoint: str,
    tmp_path: Path,
) -> None:
    queue = name("work")
    channel.queue_declare(queue, durable=True)

    def run() -> list[str]:
        frame = (
            spark.readStream.format("penstock")
            .options(**{"kafka.bootstrap.servers": broker.bootstrap})
            .options(queue=queue, startingOffsets="earliest")
            .load()
        )
        query = (
            frame.selectExpr("CAST(value AS STRING) value")
            .writeStream.format("parquet")
            .options(path=str(tmp_path / "out"), checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(90)
        return sorted(row.value for row in spark.read.parquet(str(tmp_path / "out")).collect())

    _publish(channel, queue, _numbers(0, 5))
    assert run() == [f"{at:04d}" for at in range(5)]
    for _ in range(3):
        channel.basic_get(queue, auto_ack=True)
    _publish(channel, queue, _numbers(5, 9))
    assert run() == [f"{at:04d}" for at in range(9)]


def test_a_message_that_the_broker_moved_is_read_once(
    reading: Callable[..., Any], topic: Any, fill: Any
) -> None:
    name = topic("moved", 1)
    fill(name, [b"zero", b"one", b"two"])
    fill(name, [{"value": b"one", "headers": [("penstock.copy-of", b"1")]}])
    everything = reading(queue=name).collect()
    assert sorted(bytes(row.value) for row in everything) == [b"one", b"two", b"zero"]
    later = reading(queue=name, startingOffsets=f'{{"{name}":{{"0":2}}}}').collect()
    assert sorted(bytes(row.value) for row in later) == [b"one", b"two"]


@given(vhost=st.text(min_size=1), queue=st.text(min_size=1))
@example(vhost="/", queue="__x_x..")
@example(vhost="/", queue=".")
@example(vhost="staging", queue="a" * 300)
def test_a_queues_topic_is_the_one_the_broker_uses(vhost: str, queue: str) -> None:
    assert topic_of_queue(vhost, queue) == queue_names.topic_of_queue(vhost, queue)
