"""Exchanges: every type and how it routes, bindings between them, alternates, their lives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from support.amqp_pika import drain, get, is_empty, put, waiting
from support.naming import unique

Declare = Callable[..., str]


@pytest.fixture
def bound(channel: BlockingChannel) -> Callable[..., str]:
    """bound(exchange, key, ...) is a new queue with those bindings."""

    def bind(exchange: str, *keys: str, **arguments: Any) -> str:
        queue = str(channel.queue_declare("", exclusive=True).method.queue)
        for key in keys or ("",):
            channel.queue_bind(queue, exchange, key, arguments or None)
        return queue

    return bind


def test_direct_goes_by_the_whole_key(
    channel: BlockingChannel, exchange: Declare, bound: Declare
) -> None:
    name = exchange("direct")
    both, one = bound(name, "a", "b"), bound(name, "a")
    put(channel, "a", b"a", exchange=name)
    put(channel, "b", b"b", exchange=name)
    put(channel, "c", b"c", exchange=name)
    assert [got.body for got in drain(channel, both, 2)] == [b"a", b"b"]
    assert get(channel, one).body == b"a"
    assert is_empty(channel, both)
    assert is_empty(channel, one)


def test_fanout_goes_everywhere_once(
    channel: BlockingChannel, exchange: Declare, bound: Declare
) -> None:
    name = exchange("fanout")
    queues = [bound(name, "x", "y"), bound(name)]
    put(channel, "whatever", b"1", exchange=name)
    for queue in queues:
        assert get(channel, queue).body == b"1"
        assert is_empty(channel, queue)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a.b", ["a.b"], ["a", "a.b.c", "A.b"]),
        ("a.*", ["a.b", "a."], ["a", "a.b.c"]),
        ("*.b.*", ["a.b.c"], ["b.c", "a.b"]),
        ("a.#", ["a", "a.b", "a.b.c"], ["b.a"]),
        ("#", ["", "a", "a.b.c"], []),
        ("#.c", ["c", "a.c", "a.b.c"], ["a.c.b"]),
        ("a.#.z", ["a.z", "a.b.z", "a.b.c.z"], ["a", "z"]),
        ("*.#", ["a", "a.b"], []),
        ("#.#.#.#.x", ["x", "a.x"], ["x.a"]),
    ],
)
def test_topic_goes_by_patterns_of_words(
    channel: BlockingChannel, exchange: Declare, bound: Declare,
    pattern: str, yes: list[str], no: list[str],
) -> None:  # fmt: skip
    name = exchange("topic")
    queue = bound(name, pattern)
    for key in [*yes, *no]:
        put(channel, key, key.encode(), exchange=name)
    assert [got.body.decode() for got in drain(channel, queue, len(yes))] == yes
    assert is_empty(channel, queue)


def test_topic_with_overlapping_bindings_delivers_once(
    channel: BlockingChannel, exchange: Declare, bound: Declare
) -> None:
    name = exchange("topic")
    queue = bound(name, "a.*", "#", "a.b")
    put(channel, "a.b", b"1", exchange=name)
    assert get(channel, queue).body == b"1"
    assert is_empty(channel, queue)


@pytest.mark.parametrize(
    ("match", "headers", "routed"),
    [
        ("all", {"a": 1, "b": "x"}, True),
        ("all", {"a": 1, "b": "x", "c": True}, True),
        ("all", {"a": 1}, False),
        ("all", {"a": 2, "b": "x"}, False),
        ("any", {"a": 1}, True),
        ("any", {"b": "x", "a": 9}, True),
        ("any", {"c": 1}, False),
        ("any", {}, False),
    ],
)
def test_headers_go_by_all_or_any(
    channel: BlockingChannel, exchange: Declare, bound: Declare,
    match: str, headers: dict[str, Any], routed: bool,
) -> None:  # fmt: skip
    name = exchange("headers")
    queue = bound(name, "", **{"x-match": match, "a": 1, "b": "x"})
    put(channel, "", b"1", exchange=name, headers=headers)
    assert is_empty(channel, queue) is not routed


def test_headers_match_by_presence(
    channel: BlockingChannel, exchange: Declare, bound: Declare
) -> None:
    name = exchange("headers")
    queue = bound(name, "", **{"x-match": "all", "a": None})
    put(channel, "", b"1", exchange=name, headers={"a": "anything"})
    put(channel, "", b"2", exchange=name, headers={"b": "anything"})
    assert get(channel, queue).body == b"1"
    assert is_empty(channel, queue)


@pytest.mark.parametrize(("match", "routed"), [("all", False), ("all-with-x", True)])
def test_headers_that_begin_with_x_count_only_when_told(
    channel: BlockingChannel, exchange: Declare, bound: Declare, match: str, routed: bool
) -> None:
    name = exchange("headers")
    right = bound(name, "", **{"x-match": match, "x-kind": 1})
    wrong = bound(name, "", **{"x-match": match, "x-kind": 2})
    put(channel, "", b"1", exchange=name, headers={"x-kind": 1})
    assert get(channel, right).body == b"1"
    assert is_empty(channel, wrong) is routed


def test_the_default_exchange_goes_by_queue_name(channel: BlockingChannel, queue: str) -> None:
    put(channel, queue, b"1")
    assert get(channel, queue).body == b"1"


@pytest.mark.parametrize(
    "name", ["amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"]
)
def test_the_exchanges_of_the_specification_are_there(channel: BlockingChannel, name: str) -> None:
    channel.exchange_declare(name, passive=True)


def test_exchanges_are_bound_to_exchanges(
    channel: BlockingChannel, exchange: Declare, bound: Declare
) -> None:
    source, middle, end = exchange("topic"), exchange("direct"), exchange("fanout")
    channel.exchange_bind(middle, source, "orders.#")
    channel.exchange_bind(end, middle, "orders.new")
    queue = bound(end)
    put(channel, "orders.new", b"1", exchange=source)
    put(channel, "orders.old", b"2", exchange=source)
    assert get(channel, queue).body == b"1"
    assert is_empty(channel, queue)
    channel.exchange_unbind(end, middle, "orders.new")
    put(channel, "orders.new", b"3", exchange=source)
    assert is_empty(channel, queue)


def test_exchanges_bound_in_a_circle_deliver_once(
    channel: BlockingChannel, exchange: Declare, bound: Declare
) -> None:
    one, two = exchange("fanout"), exchange("fanout")
    channel.exchange_bind(one, two)
    channel.exchange_bind(two, one)
    queue = bound(two)
    put(channel, "", b"1", exchange=one)
    assert get(channel, queue).body == b"1"
    assert is_empty(channel, queue)


def test_an_alternate_takes_what_nobody_wanted(
    channel: BlockingChannel, exchange: Declare, bound: Declare
) -> None:
    spare = exchange("fanout")
    name = exchange("direct", arguments={"alternate-exchange": spare})
    wanted, unwanted = bound(name, "a"), bound(spare)
    channel.confirm_delivery()
    channel.basic_publish(name, "a", b"1", mandatory=True)
    channel.basic_publish(name, "b", b"2", mandatory=True)
    assert get(channel, wanted).body == b"1"
    got = get(channel, unwanted)
    assert (got.body, got.method.exchange, got.method.routing_key) == (b"2", name, "b")


def test_unbinding_stops_the_flow(
    channel: BlockingChannel, exchange: Declare, bound: Declare
) -> None:
    name = exchange("direct")
    queue = bound(name, "a", "b")
    channel.queue_unbind(queue, name, "a")
    put(channel, "a", b"1", exchange=name)
    put(channel, "b", b"2", exchange=name)
    assert get(channel, queue).body == b"2"
    assert is_empty(channel, queue)


def test_binding_twice_is_binding_once(
    channel: BlockingChannel, exchange: Declare, bound: Declare
) -> None:
    name = exchange("direct")
    queue = bound(name, "a", "a")
    put(channel, "a", b"1", exchange=name)
    assert get(channel, queue).body == b"1"
    assert is_empty(channel, queue)


def test_an_exchange_that_deletes_itself_goes_with_its_last_binding(
    channel: BlockingChannel, bound: Declare
) -> None:
    name = unique("auto")
    channel.exchange_declare(name, "fanout", auto_delete=True)
    queue = bound(name)
    channel.queue_unbind(queue, name, "")
    with pytest.raises(ChannelClosedByBroker, match="no exchange"):
        channel.exchange_declare(name, passive=True)


@pytest.mark.own_broker  # RabbitMQ needs a plug-in for each of these
def test_a_consistent_hash_spreads_and_keeps_a_key_together(
    channel: BlockingChannel, exchange: Declare, bound: Declare
) -> None:
    name = exchange("x-consistent-hash")
    queues = [bound(name, "10"), bound(name, "10"), bound(name, "20")]
    for number in range(400):
        put(channel, f"key-{number}", b"1", exchange=name)
    counts = [waiting(channel, queue) for queue in queues]
    assert sum(counts) == 400
    assert min(counts) > 20
    for _ in range(20):
        put(channel, "key-7", b"again", exchange=name)
    grown = [waiting(channel, queue) - before for queue, before in zip(queues, counts, strict=True)]
    assert sorted(grown) == [0, 0, 20]


@pytest.mark.own_broker
def test_a_delayed_exchange_waits(
    channel: BlockingChannel, exchange: Declare, bound: Declare
) -> None:
    name = exchange("x-delayed-message", arguments={"x-delayed-type": "direct"})
    queue = bound(name, "k")
    started = time.monotonic()
    put(channel, "k", b"later", exchange=name, headers={"x-delay": 800})
    put(channel, "k", b"sooner", exchange=name, headers={"x-delay": 300})
    put(channel, "k", b"now", exchange=name)
    assert [got.body for got in drain(channel, queue, 3)] == [b"now", b"sooner", b"later"]
    assert time.monotonic() - started >= 0.8


@pytest.mark.own_broker
def test_a_deduplicating_exchange_takes_each_message_once(
    channel: BlockingChannel, exchange: Declare, bound: Declare
) -> None:
    name = exchange("x-message-deduplication", arguments={"x-cache-size": 100})
    queue = bound(name, "k")
    for identity in ("a", "b", "a", "a", "c"):
        header = {"x-deduplication-header": identity}
        put(channel, "k", identity.encode(), exchange=name, headers=header)
    assert [got.body for got in drain(channel, queue, 3)] == [b"a", b"b", b"c"]
    assert is_empty(channel, queue)


@pytest.mark.own_broker  # 406 on the channel as RabbitMQ 4 does; 3.x closes the connection
def test_an_unknown_type_of_exchange_is_refused(channel: BlockingChannel) -> None:
    with pytest.raises(ChannelClosedByBroker) as refused:
        channel.exchange_declare(unique("zork"), "zork")
    assert refused.value.reply_code == 406
