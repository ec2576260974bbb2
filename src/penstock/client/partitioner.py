"""Which partition a message goes to.

With a key: by the key's murmur2 hash, as Java clients and librdkafka's `murmur2` do, so that a key
is in the same partition whoever writes it. Without: the default stays with one partition for a
batch and then moves on (sticky, KIP-480), round-robin moves on with each message. A message that
names its partition is not asked about.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol, runtime_checkable

from penstock.client.errors import InvalidArgument


@runtime_checkable
class Partitioner(Protocol):
    """Chooses a partition. It is called from any thread."""

    def partition(self, topic: str, key: bytes | None, count: int) -> int:
        """A number from 0 to `count` - 1.

        >>> Sticky().partition("orders", b"user-1", 4)
        0
        """
        ...

    def new_batch(self, topic: str) -> None:
        """A batch was cut off: the next messages may go elsewhere at no cost.

        >>> Sticky().new_batch("orders")
        """


PartitionFunction = Callable[[str, bytes | None, int], int]


@lru_cache(maxsize=8192)
def murmur2(data: bytes) -> int:
    """The hash of Java's clients (`Utils.murmur2`), as an unsigned number.

    >>> murmur2(b"21") & 0x7FFFFFFF
    1173551340
    """
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def partition_of_key(key: bytes, count: int) -> int:
    """Where every Kafka client puts a key.

    >>> partition_of_key(b"user-1", 4)
    0
    """
    return (murmur2(key) & 0x7FFFFFFF) % count


class Sticky:
    """The default: by key, or else one partition for a batch and the next for the next."""

    def __init__(self) -> None:
        self._chosen: dict[str, int] = {}

    def partition(self, topic: str, key: bytes | None, count: int) -> int:
        if key is not None:
            return (murmur2(key) & 0x7FFFFFFF) % count
        chosen = self._chosen.get(topic)
        if chosen is None:
            chosen = self._chosen[topic] = random.randrange(count)
        return chosen % count

    def new_batch(self, topic: str) -> None:
        chosen = self._chosen.get(topic)
        if chosen is not None:
            self._chosen[topic] = chosen + 1


class RoundRobin:
    """By key, or else one after the other, from 0."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._lock = threading.Lock()

    def partition(self, topic: str, key: bytes | None, count: int) -> int:
        if key is not None:
            return (murmur2(key) & 0x7FFFFFFF) % count
        with self._lock:
            number = self._next.get(topic, 0)
            self._next[topic] = number + 1
        return number % count

    def new_batch(self, topic: str) -> None:
        """It moves on with each message anyhow."""


class Function:
    """A user's own function of (topic, key, count)."""

    def __init__(self, choose: PartitionFunction) -> None:
        self._choose = choose

    def partition(self, topic: str, key: bytes | None, count: int) -> int:
        return self._choose(topic, key, count)

    def new_batch(self, topic: str) -> None:
        """A function does not know of batches."""


def find_partitioner(wanted: Partitioner | PartitionFunction | str) -> Partitioner:
    """The partitioner that is meant: "sticky", "round-robin", a function or an object."""
    if isinstance(wanted, str):
        match wanted:
            case "sticky" | "default":
                return Sticky()
            case "round-robin":
                return RoundRobin()
        raise InvalidArgument(
            f'there is no partitioner {wanted!r}: give "sticky", "round-robin" or a function of '
            "(topic, key, partition count)"
        )
    if isinstance(wanted, Partitioner):
        return wanted
    return Function(wanted)


def checked(partition: object, topic: str, count: int) -> int:
    """A partition that somebody chose, if the topic has it."""
    if not isinstance(partition, int) or not 0 <= partition < count:
        raise InvalidArgument(
            f"topic {topic!r} has the partitions 0 to {count - 1}, there is no {partition!r}"
        )
    return partition
