"""Publishers are held back when the disk is nearly full, and let go when it is not."""

from __future__ import annotations

from collections.abc import Callable

import pika
import pytest

from support.broker import BrokerProcess

pytestmark = pytest.mark.own_broker


def _connect(broker: BrokerProcess) -> pika.BlockingConnection:
    parameters = pika.ConnectionParameters(
        broker.host, broker.amqp_port, blocked_connection_timeout=2
    )
    return pika.BlockingConnection(parameters)


def test_a_publisher_is_told_that_the_disk_is_low(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(settings={"disk.free.limit.bytes": str(1 << 60)})
    connection = _connect(broker)
    told: list[str] = []
    connection.add_on_connection_blocked_callback(
        lambda _, method: told.append(method.method.reason)
    )
    channel = connection.channel()
    channel.queue_declare("low")
    for _ in range(40):
        channel.basic_publish("", "low", b"x")
        connection.process_data_events(0.1)
        if told:
            break
    assert told == ["low on disk"]
    reader = _connect(broker)  # one that does not publish is served as ever
    assert reader.channel().queue_declare("low", passive=True).method.queue == "low"
    reader.close()
    with pytest.raises(pika.exceptions.ConnectionBlockedTimeout):  # pika's patience, 2 seconds
        connection.process_data_events(10)
