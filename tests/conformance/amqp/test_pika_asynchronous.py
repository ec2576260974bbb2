"""pika's callback client: many confirms and deliveries under way at once, errors, cancellation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.channel import Channel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

from support.naming import unique

Script = Callable[["Session"], None]


class Session:
    """A SelectConnection with one channel; the script starts things, callbacks go on from there."""

    def __init__(self, parameters: pika.ConnectionParameters, script: Script) -> None:
        self.script = script
        self.seen: dict[str, list[Any]] = {}
        self.closed: BaseException | None = None
        self.channel_closed: BaseException | None = None
        self.channel: Channel
        self.connection = pika.SelectConnection(
            parameters,
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_open_error_callback=self._failed,
            on_close_callback=self._failed,
        )

    def _opened(self, channel: Channel) -> None:
        self.channel = channel
        channel.add_on_close_callback(self._channel_failed)
        self.script(self)

    def _channel_failed(self, _: Channel, reason: BaseException) -> None:
        self.channel_closed = reason
        if self.connection.is_open:
            self.finish()

    def _failed(self, _: Any, reason: BaseException | str) -> None:
        self.closed = reason if isinstance(reason, BaseException) else RuntimeError(reason)
        self.connection.ioloop.stop()

    def see(self, what: str, thing: Any) -> int:
        self.seen.setdefault(what, []).append(thing)
        return len(self.seen[what])

    def finish(self) -> None:
        self.connection.close()

    def run(self, within: float = 20.0) -> Session:
        self.connection.ioloop.call_later(within, self.connection.ioloop.stop)
        self.connection.ioloop.start()
        assert self.closed is not None, f"not done within {within} s: {self.seen}"
        return self


@pytest.fixture
def run(amqp: Any) -> Callable[[Script], Session]:
    return lambda script: Session(amqp.parameters(), script).run()


def test_a_thousand_messages_are_confirmed_and_delivered(run: Callable[[Script], Session]) -> None:
    queue, count = unique("many"), 1000

    def script(session: Session) -> None:
        channel = session.channel

        def declared(_: Any) -> None:
            channel.confirm_delivery(confirmed, callback=selected)

        def selected(_: Any) -> None:
            channel.basic_qos(prefetch_count=50, callback=limited)

        def limited(_: Any) -> None:
            channel.basic_consume(queue, delivered)
            for number in range(count):
                properties = pika.BasicProperties(delivery_mode=2, message_id=str(number))
                channel.basic_publish("", queue, b"%d" % number, properties)

        def confirmed(frame: Any) -> None:
            assert isinstance(frame.method, pika.spec.Basic.Ack)
            session.see("confirm", frame.method.delivery_tag)
            maybe_done()

        def delivered(_: Any, method: Any, properties: Any, body: bytes) -> None:
            seen = session.see("body", body)
            assert properties.message_id == body.decode()
            if seen % 25 == 0:
                channel.basic_ack(method.delivery_tag, multiple=True)
            maybe_done()

        def maybe_done() -> None:
            if len(session.seen.get("body", ())) == count and max(session.seen["confirm"]) == count:
                channel.queue_delete(queue, callback=lambda _: session.finish())

        channel.queue_declare(queue, durable=True, callback=declared)

    session = run(script)
    assert session.seen["body"] == [b"%d" % number for number in range(count)]
    assert session.seen["confirm"] == sorted(session.seen["confirm"])


def test_a_returned_message_arrives_before_its_confirm(run: Callable[[Script], Session]) -> None:
    def script(session: Session) -> None:
        channel = session.channel
        channel.add_on_return_callback(lambda c, m, p, b: session.see("event", ("return", b)))

        def confirmed(frame: Any) -> None:
            session.see("event", ("ack", frame.method.delivery_tag))
            session.finish()

        channel.confirm_delivery(confirmed)
        channel.basic_publish("", unique("nowhere"), b"x", mandatory=True)

    assert run(script).seen["event"] == [("return", b"x"), ("ack", 1)]


def test_a_channel_error_reaches_its_callback(run: Callable[[Script], Session]) -> None:
    session = run(lambda s: s.channel.queue_declare("nope", passive=True))
    assert isinstance(session.channel_closed, ChannelClosedByBroker)
    assert session.channel_closed.reply_code == 404


def test_a_connection_error_reaches_its_callback(run: Callable[[Script], Session]) -> None:
    session = run(lambda s: s.channel.basic_qos(prefetch_size=9))
    assert isinstance(session.closed, ConnectionClosedByBroker)
    assert session.closed.reply_code == 540


def test_a_consumer_is_told_that_its_queue_is_gone(run: Callable[[Script], Session]) -> None:
    queue = unique("gone")

    def script(session: Session) -> None:
        channel = session.channel

        def cancelled(frame: Any) -> None:
            session.see("cancelled", frame.method.consumer_tag)
            session.finish()

        channel.add_on_cancel_callback(cancelled)
        channel.queue_declare(queue, callback=declared(channel))

    def declared(channel: Channel) -> Callable[[Any], None]:
        def consume(_: Any) -> None:
            channel.basic_consume(
                queue,
                lambda *_: None,
                consumer_tag="t",
                callback=lambda _: channel.queue_delete(queue),
            )

        return consume

    assert run(script).seen["cancelled"] == ["t"]


def test_many_channels_work_at_once(run: Callable[[Script], Session]) -> None:
    count = 50

    def script(session: Session) -> None:
        def opened(channel: Channel) -> None:
            channel.queue_declare("", exclusive=True, callback=lambda f: declared(channel, f))

        def declared(channel: Channel, frame: Any) -> None:
            queue = frame.method.queue
            channel.basic_consume(queue, lambda c, m, p, b: got(b), auto_ack=True)
            channel.basic_publish("", queue, str(channel.channel_number).encode())

        def got(body: bytes) -> None:
            if session.see("body", int(body)) == count:
                session.finish()

        for _ in range(count):
            session.connection.channel(on_open_callback=opened)

    assert sorted(run(script).seen["body"]) == list(range(2, count + 2))
