"""A producer and a consumer written for RabbitMQ run unmodified with pika."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pika

from support.broker import BrokerProcess
from support.waiting import eventually

DOCUMENT = Path(__file__).with_name("rabbitmq_document.py")
# The document connects to the usual port, which may be taken here: pika is told of another one.
RUN = (
    "import pika, runpy, sys, time\n"
    "pika.connection.Parameters.DEFAULT_PORT = int(sys.argv[2])\n"
    "document = runpy.run_path(sys.argv[1])\n"
    "document['consumer_thread'].join()\n"  # the document ends here; its consumer has only begun
)


def _run(broker: BrokerProcess) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "-c", RUN, str(DOCUMENT), str(broker.amqp_port)],
        stdout=subprocess.PIPE,
        text=True,
    )


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_the_document_runs_as_it_is(broker: BrokerProcess) -> None:
    # Its producer speaks before its consumer has declared a queue: nobody hears the first run,
    # at RabbitMQ too. The second finds the queue that the first has left.
    first = _run(broker)
    address = pika.ConnectionParameters("127.0.0.1", broker.amqp_port)
    with pika.BlockingConnection(address) as connection:
        eventually(lambda: _consumers(connection) == 1, within=60, what="the first consumer")
        _end(first)
        eventually(lambda: _consumers(connection) == 0, within=60, what="the first one's end")
    second = _run(broker)
    try:
        assert second.stdout is not None
        assert [second.stdout.readline() for _ in range(2)] == [
            "Received order: {'order_id': 123, 'amount': 99.99}\n",
            "Received order: {'order_id': 123, 'tracking': 'ABC123'}\n",
        ]
    finally:
        _end(second)


def _consumers(connection: pika.BlockingConnection) -> int:
    channel = connection.channel()
    try:
        found = channel.queue_declare("order_processing", passive=True)
        channel.close()
        return int(found.method.consumer_count)
    except pika.exceptions.ChannelClosedByBroker:
        return -1
