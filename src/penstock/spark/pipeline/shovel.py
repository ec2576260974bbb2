"""Queues of one AMQP broker to another, message by message, with all their properties.

A message is acknowledged at the source after the target has it for good (a transaction of a few
hundred), so nothing is lost whatever dies; what was sent and not acknowledged then comes again.
With `every`, a broker that goes away is waited for. The target's queue is declared durable when it
is not there; one that is there is taken as it is. Exchanges and bindings are not copied: AMQP has
no way to ask for them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from penstock.spark.errors import BrokerUnreachable, SparkConnectorError
from penstock.spark.pipeline.building import seconds_of
from penstock.spark.pipeline.figures import Figures
from penstock.spark.pipeline.state import Running

if TYPE_CHECKING:
    from penstock.spark.pipeline.mirror import Mirror, Mirrored

AT_ONCE = 500
SILENCE_S = 0.5  # a queue that gives nothing for so long is empty
PATIENCE_S = 60.0  # so long a mirror that goes on waits for a broker that is gone
NOT_FOUND = 404


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
        moving = Moving(said)
        try:
            running.begun()
            while True:
                _one_pass(moving, running)
                if not said.every or moving.rest(running.stop, seconds_of(said.every)):
                    break
        finally:
            moving.close()
    return Mirrored(list(said.queues), running.rows, {}, {})


def _one_pass(moving: Moving, running: Running) -> None:
    """All queues, each until it is empty."""
    for queue in moving.queues:
        begun = time.monotonic()
        while not running.stop.is_set() and (count := moving.some(queue)):
            took = time.monotonic() - begun
            running.add(Figures(moving.batch, count, count / took, took))
            moving.batch += 1
            begun = time.monotonic()


class Moving:
    """One channel to take from, one to give to."""

    def __init__(self, said: Mirror) -> None:
        self.queues = list(said.queues)
        self.batch = 0
        self._said = said
        self._connections: list[Any] = []
        self._connect()

    def _connect(self) -> None:
        self.close()
        for side in (self._said.source, self._said.target):
            self._connections.append(_connect(side.amqp))
        source, target = self._connections
        self._user = _user(self._said.target.amqp)
        with _reached(self._said.target.amqp):
            for queue in self.queues:
                _declare(target, queue)
            self._target = target.channel()
            self._target.tx_select()
        with _reached(self._said.source.amqp):
            self._source = source.channel()
            self._source.basic_qos(prefetch_count=AT_ONCE)

    def close(self) -> None:
        from pika.exceptions import AMQPError

        for connection in self._connections:
            with suppress(AMQPError):  # of a broker that has just gone away
                if connection.is_open:
                    connection.close()
        self._connections.clear()

    def some(self, queue: str) -> int:
        """Move up to a batch; how many there were."""
        from pika.exceptions import AMQPError, ChannelClosedByBroker

        try:
            return self._some(queue)
        except ChannelClosedByBroker as refusal:
            raise SparkConnectorError(f"queue {queue}: {refusal.reply_text}") from None
        except AMQPError as failure:
            self._again(failure)
            return self._some(queue)

    def _some(self, queue: str) -> int:
        tag = None
        count = 0
        for method, properties, body in self._source.consume(queue, inactivity_timeout=SILENCE_S):
            if method is None:
                break
            if properties.user_id != self._user:
                properties.user_id = None  # brokers refuse a name that is not the sender's own
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

    def rest(self, stop: Any, seconds: float) -> bool:
        """Wait, and let the brokers see that we live; whether to stop meanwhile."""
        from pika.exceptions import AMQPError

        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if stop.wait(min(left, 1.0)):
                return True
            try:
                for connection in self._connections:
                    connection.process_data_events(0)
            except AMQPError as failure:
                self._again(failure)
        return bool(stop.is_set())

    def _again(self, failure: Exception) -> None:
        """A broker went away: what it did not acknowledge will come again."""
        if not self._said.every:
            raise BrokerUnreachable(f"a broker went away: {failure!r}") from None
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._connect()
            except BrokerUnreachable:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)


def _declare(connection: Any, queue: str) -> None:
    """The queue is there, whatever its settings; a new one is durable."""
    from pika.exceptions import ChannelClosedByBroker

    try:
        channel = connection.channel()
        channel.queue_declare(queue, passive=True)
    except ChannelClosedByBroker as refusal:
        if refusal.reply_code != NOT_FOUND:
            raise SparkConnectorError(f"queue {queue}: {refusal.reply_text}") from None
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
    channel.close()


def waiting(said: Mirror) -> dict[str, int]:
    """How many messages wait in each queue of the source."""
    connection = _connect(said.source.amqp)
    try:
        channel = connection.channel()
        return {q: channel.queue_declare(q, passive=True).method.message_count for q in said.queues}
    finally:
        connection.close()


def _parameters(address: str) -> Any:
    try:
        import pika
    except ImportError:
        raise SparkConnectorError("queues are mirrored through pika: pip install pika") from None
    return pika.URLParameters(address)


def _user(address: str) -> str:
    return str(_parameters(address).credentials.username)


def _connect(address: str) -> Any:
    parameters = _parameters(address)
    import pika

    with _reached(address):
        return pika.BlockingConnection(parameters)


@contextmanager
def _reached(address: str) -> Iterator[None]:
    """What goes wrong in between is that broker's, named without its password."""
    from pika.exceptions import AMQPError

    try:
        yield
    except (AMQPError, OSError) as failure:
        place = address.rpartition("@")[2]
        raise BrokerUnreachable(f"{place}: {failure!r}") from None
