"""Queues of one AMQP broker to another, message by message, with all their properties.

A message is acknowledged at the source after the target has it for good (a transaction of a few
hundred), so nothing is lost whatever dies; what was sent and not acknowledged then comes again.
The target's queue is declared durable when it is not there.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import BrokerUnreachable, SparkConnectorError
from penstock.spark.pipeline.building import seconds_of
from penstock.spark.pipeline.figures import Figures
from penstock.spark.pipeline.state import Running

if TYPE_CHECKING:
    from penstock.spark.pipeline.mirror import Mirror, Mirrored

AT_ONCE = 500
SILENCE_S = 0.5  # a queue that gives nothing for so long is empty


def run_shovel(
    said: Mirror,
    *,
    show: Any = lambda figures: None,
    stop: Any = None,
    metrics: Any = None,
    **spark: Any,
) -> Mirrored:
    """Move what is there; with `every`, go on. Spark has no part in it."""
    from penstock.spark.pipeline.mirror import Mirrored

    with Running(said.name, show, stop, metrics) as running:
        source, target = _connect(said.source.amqp), _connect(said.target.amqp)
        try:
            running.begun()
            moving = Moving(source.channel(), target.channel())
            for queue in said.queues:
                moving.declare(queue)
            batch = 0
            while True:
                for queue in said.queues:
                    begun = time.monotonic()
                    while count := moving.some(queue):
                        took = time.monotonic() - begun
                        running.add(Figures(batch, count, count / took, took))
                        batch, begun = batch + 1, time.monotonic()
                        if running.stop.is_set():
                            break
                if not said.every or running.stop.wait(seconds_of(said.every)):
                    break
        finally:
            for connection in (source, target):
                if connection.is_open:
                    connection.close()
    return Mirrored(list(said.queues), running.rows, {}, {})


class Moving:
    """One channel to take from, one to give to."""

    def __init__(self, source: Any, target: Any) -> None:
        self._source = source
        self._target = target
        source.basic_qos(prefetch_count=AT_ONCE)
        target.tx_select()

    def declare(self, queue: str) -> None:
        self._target.queue_declare(queue, durable=True)

    def some(self, queue: str) -> int:
        """Move up to a batch; how many there were."""
        tag = None
        count = 0
        for method, properties, body in self._source.consume(queue, inactivity_timeout=SILENCE_S):
            if method is None:
                break
            self._target.basic_publish("", queue, body, properties)
            tag = method.delivery_tag
            count += 1
            if count >= AT_ONCE:
                break
        if tag is not None:
            self._target.tx_commit()  # safe in the target here
            self._source.basic_ack(tag, multiple=True)
        self._source.cancel()  # what was delivered and not taken goes back
        return count


def waiting(said: Mirror) -> dict[str, int]:
    """How many messages wait in each queue of the source."""
    connection = _connect(said.source.amqp)
    try:
        channel = connection.channel()
        return {q: channel.queue_declare(q, passive=True).method.message_count for q in said.queues}
    finally:
        connection.close()


def _connect(address: str) -> Any:
    try:
        import pika
    except ImportError:
        raise SparkConnectorError("queues are mirrored through pika: pip install pika") from None
    try:
        return pika.BlockingConnection(pika.URLParameters(address))
    except (pika.exceptions.AMQPError, OSError) as failure:
        place = address.rpartition("@")[2]
        raise BrokerUnreachable(f"{place}: {failure!r}") from None
