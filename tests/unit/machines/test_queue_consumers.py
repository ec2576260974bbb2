"""Whose turn it is at a queue."""

from __future__ import annotations

import pytest

from penstock.errors import AccessRefused
from penstock.machines.queue_consumers import Consumer, Consumers


def joined(consumers: Consumers, *new: Consumer, wanted: int = 10) -> None:
    for consumer in new:
        consumers.add(consumer)
        consumers.want(consumer, wanted)


def test_equals_are_served_in_turn() -> None:
    consumers, a, b = Consumers(), Consumer("a"), Consumer("b")
    joined(consumers, a, b)
    order = []
    for _ in range(4):
        taker = consumers.next_taker()
        assert taker is not None
        order.append(taker.name)
        consumers.gave(taker, 1)
    assert order == ["a", "b", "a", "b"]


def test_a_higher_priority_is_served_until_it_has_no_room() -> None:
    low, high = Consumer("low"), Consumer("high", priority=5, prefetch=2)
    consumers = Consumers()
    joined(consumers, low, high)
    assert consumers.next_taker() is high
    consumers.gave(high, 2)
    assert consumers.next_taker() is low
    consumers.settled(high, 1)
    assert consumers.next_taker() is high
    assert high.room == 1


def test_demand_is_what_could_be_delivered_at_once() -> None:
    a, b = Consumer("a", prefetch=3), Consumer("b")
    consumers = Consumers()
    joined(consumers, a, b)
    assert consumers.demand() == 13
    consumers.want(b, 0)
    assert consumers.demand() == 3


def test_an_exclusive_consumer_tolerates_no_other() -> None:
    consumers = Consumers()
    consumers.add(Consumer("a", exclusive=True))
    with pytest.raises(AccessRefused, match="in exclusive use"):
        consumers.add(Consumer("b"))
    shared = Consumers()
    shared.add(Consumer("a"))
    with pytest.raises(AccessRefused):
        shared.add(Consumer("b", exclusive=True))


def test_with_a_single_active_consumer_the_next_takes_over_when_it_leaves() -> None:
    consumers = Consumers(single_active=True)
    a, b = Consumer("a"), Consumer("b")
    joined(consumers, a, b)
    consumers.gave(a, 3)
    assert consumers.next_taker() is a
    consumers.remove(a)
    assert consumers.active is b
    assert consumers.next_taker() is b


def test_a_higher_priority_becomes_the_single_active_one_when_the_other_has_finished() -> None:
    consumers = Consumers(single_active=True)
    a, b = Consumer("a"), Consumer("b", priority=1)
    joined(consumers, a)
    consumers.gave(a, 1)
    joined(consumers, b)
    assert consumers.active is a
    assert consumers.next_taker() is None, "the old one is drained first"
    consumers.settled(a, 1)
    assert consumers.active is b
    assert consumers.next_taker() is b


def test_a_consumer_that_takes_its_wish_back_is_passed_over() -> None:
    consumers, a, b = Consumers(), Consumer("a"), Consumer("b")
    joined(consumers, a, b)
    consumers.want(a, 0)
    assert consumers.next_taker() is b
    consumers.remove(b)
    assert consumers.next_taker() is None
    assert len(consumers) == 1
