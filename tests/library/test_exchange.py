"""Exchanges and bindings, in both homes."""

from __future__ import annotations

import pytest

import penstock
from penstock import Client, Queue
from support.naming import unique

pytestmark = pytest.mark.own_broker


def received(queue: Queue) -> list[str]:
    """Everything that is in the queue: publishing has waited until it is there."""
    with queue.consume(idle_timeout=0.3, auto_ack=True) as messages:
        return [message.text for message in messages]


def test_a_topic_exchange_knows_stars_and_hashes(mq: Client) -> None:
    events = mq.exchange(unique("events"), "topic")
    one, any_, exact = (mq.queue(unique(name)) for name in ("one", "any", "exact"))
    one.bind(events.name, "order.*")
    any_.bind(events.name, "order.#")
    exact.bind(events.name, "order.created.eu")
    for key in ("order.created", "order.created.eu", "order"):
        events.publish(key, key)
    assert received(one) == ["order.created"]
    assert received(any_) == ["order.created", "order.created.eu", "order"]
    assert received(exact) == ["order.created.eu"]


def test_a_direct_exchange_wants_the_very_key(mq: Client) -> None:
    exchange = mq.exchange(unique("direct"), "direct")
    queue = mq.queue(unique("queue"))
    queue.bind(exchange.name, "red")
    exchange.publish("red", "a")
    with pytest.raises(penstock.NotFound):
        exchange.publish("blue", "b")
    assert received(queue) == ["a"]


def test_a_fanout_exchange_gives_everybody_a_copy(mq: Client) -> None:
    exchange = mq.exchange(unique("fanout"), "fanout")
    queues = [mq.queue(unique("queue")) for _ in range(3)]
    for queue in queues:
        queue.bind(exchange.name)
    exchange.publish("whatever", "a", headers={"h": "1"}, key="k")
    for queue in queues:
        message = queue.get(timeout=20)
        assert message is not None
        assert (message.text, message.headers, message.key) == ("a", {"h": "1"}, b"k")
        assert (message.exchange, message.routing_key) == (exchange.name, "whatever")
        message.ack()


def test_a_headers_exchange_looks_at_headers(mq: Client) -> None:
    exchange = mq.exchange(unique("headers"), "headers")
    both, either = mq.queue(unique("both")), mq.queue(unique("either"))
    wanted = {"format": "pdf", "country": "fr"}
    both.bind(exchange.name, headers=wanted, match="all")
    either.bind(exchange.name, headers=wanted, match="any")
    exchange.publish("", "1", headers={"format": "pdf", "country": "fr"})
    exchange.publish("", "2", headers={"format": "pdf", "country": "de"})
    assert received(both) == ["1"]
    assert received(either) == ["1", "2"]
    with pytest.raises(penstock.InvalidArgument, match="match"):
        both.bind(exchange.name, headers=wanted, match="some")


def test_unbinding_ends_it(mq: Client) -> None:
    exchange = mq.exchange(unique("topic"))
    queue = mq.queue(unique("queue"))
    queue.bind(exchange.name, "a.#")
    exchange.publish("a.b", "1")
    queue.unbind(exchange.name, "a.#")
    with pytest.raises(penstock.NotFound):
        exchange.publish("a.b", "2")
    assert received(queue) == ["1"]


def test_many_that_nobody_takes_are_each_told(mq: Client) -> None:
    exchange = mq.exchange(unique("topic"))
    queue = mq.queue(unique("queue"))
    queue.bind(exchange.name, "good.*")
    keys = [f"{'good' if n % 3 else 'bad'}.{n}" for n in range(60)]
    futures = [exchange.send(key, key) for key in keys]
    for key, future in zip(keys, futures, strict=True):
        failure = future.exception(20)
        assert isinstance(failure, penstock.NotFound) == key.startswith("bad"), (key, failure)
    assert received(queue) == [key for key in keys if key.startswith("good")]


def test_exchanges_are_listed_and_deleted(mq: Client) -> None:
    name = unique("events")
    exchange = mq.exchange(name, "fanout")
    assert name in mq.exchanges()
    assert mq.exchange(name, "fanout").name == name  # as it is
    with pytest.raises(penstock.Conflict):
        mq.exchange(name, "direct")
    exchange.delete()
    assert name not in mq.exchanges()
    with pytest.raises(penstock.NotFound):
        exchange.publish("a", "b")
    with pytest.raises(penstock.NotFound):
        mq.queue(unique("queue")).bind(name, "a")


def test_what_is_wrong_is_said(mq: Client) -> None:
    with pytest.raises(penstock.InvalidArgument, match="direct, topic, fanout, headers"):
        mq.exchange(unique("events"), "magic")
    with pytest.raises(penstock.InvalidArgument, match="name"):
        mq.exchange("")
    with pytest.raises(penstock.InvalidArgument, match="delay"):
        mq.exchange(unique("events")).publish("a", "b", delay=1)
