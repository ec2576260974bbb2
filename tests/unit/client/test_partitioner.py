"""Partitions are chosen as Kafka's own clients choose them."""

from __future__ import annotations

import pytest

from penstock.client.errors import InvalidArgument
from penstock.client.partitioner import (
    RoundRobin,
    Sticky,
    find_partitioner,
    murmur2,
    partition_of_key,
)


@pytest.mark.parametrize(
    ("key", "expected"),
    [  # from the test of Java's `Utils.murmur2`
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_javas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_sticky_stays_for_a_batch_and_then_moves_on() -> None:
    sticky = Sticky()
    first = sticky.partition("t", None, 3)
    assert [sticky.partition("t", None, 3) for _ in range(5)] == [first] * 5
    sticky.new_batch("t")
    assert sticky.partition("t", None, 3) == (first + 1) % 3
    assert sticky.partition("t", b"user-1", 3) == partition_of_key(b"user-1", 3)
    sticky.new_batch("never seen")


def test_round_robin_counts_each_topic_by_itself() -> None:
    turns = RoundRobin()
    assert [turns.partition("a", None, 2) for _ in range(3)] == [0, 1, 0]
    assert turns.partition("b", None, 2) == 0
    assert turns.partition("b", b"user-1", 3) == partition_of_key(b"user-1", 3)


def test_a_partitioner_is_named_or_given() -> None:
    assert isinstance(find_partitioner("sticky"), Sticky)
    own = RoundRobin()
    assert find_partitioner(own) is own
    assert find_partitioner(lambda topic, key, count: 1).partition("t", None, 2) == 1
    with pytest.raises(InvalidArgument, match="round-robin"):
        find_partitioner("random")
