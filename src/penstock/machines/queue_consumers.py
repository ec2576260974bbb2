"""Who may take from a queue next: consumer priorities, prefetch, exclusive and single active ones.

A consumer that has room asks for messages (`want`); `next_taker` says whose turn it is. Those of
the highest priority come first while they want; among equals, whoever was served longest ago. With
a single active consumer only that one is ever chosen. When a consumer of higher priority joins such
a queue, the active one gets nothing more, and hands over when all it holds is settled.

Nothing here knows of messages, tasks or sockets.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from operator import attrgetter

from penstock.errors import AccessRefused

_turn = attrgetter("turn")


class Consumer:
    """One consumer of one queue."""

    __slots__ = (
        "exclusive", "is_asking", "name", "prefetch", "priority", "turn", "unsettled", "wanted",
    )  # fmt: skip

    def __init__(
        self, name: str, *, priority: int = 0, exclusive: bool = False, prefetch: int = 0
    ) -> None:
        self.name = name
        self.priority = priority
        self.exclusive = exclusive
        self.prefetch = prefetch  # how many it may hold; 0 is any number
        self.unsettled = 0  # how many it holds
        self.wanted = 0  # how many it asks for
        self.turn = 0  # when it was served last, or came
        self.is_asking = False  # it wants messages and has room

    def __repr__(self) -> str:
        return f"Consumer({self.name!r}, holds {self.unsettled}, wants {self.wanted})"

    @property
    def room(self) -> int:
        """How many messages it may be given now."""
        if not self.prefetch:
            return self.wanted
        return max(0, min(self.wanted, self.prefetch - self.unsettled))


class Consumers:
    """The consumers of one queue."""

    __slots__ = ("_all", "_asking", "_preferred", "_turns", "active", "single_active")

    def __init__(self, *, single_active: bool = False) -> None:
        self.single_active = single_active
        self.active: Consumer | None = None  # only in a queue with a single active consumer
        self._all: dict[Consumer, None] = {}  # in order of arrival
        # Those that want messages and have room, by priority, and in the order of their turns.
        self._asking: dict[int, list[Consumer]] = {}
        self._turns = 0
        self._preferred: Consumer | None = None  # who should be active

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(list(self._all))

    def add(self, consumer: Consumer) -> None:
        """Raises AccessRefused where one of the two wants the queue for itself."""
        if self._all and (consumer.exclusive or next(iter(self._all)).exclusive):
            raise AccessRefused("in exclusive use")
        self._all[consumer] = None
        self._turns += 1
        consumer.turn = self._turns
        self._choose()

    def remove(self, consumer: Consumer) -> None:
        if consumer not in self._all:
            return
        self.want(consumer, 0)
        del self._all[consumer]
        if consumer is self.active:
            self.active = None
        self._choose()

    def want(self, consumer: Consumer, count: int) -> None:
        """The consumer could do with `count` messages from now on; 0 takes that back."""
        consumer.wanted = count
        self._place(consumer)

    def limit(self, consumer: Consumer, prefetch: int) -> None:
        """The consumer may hold so many from now on; 0 is any number."""
        consumer.prefetch = prefetch
        self._place(consumer)

    def next_taker(self) -> Consumer | None:
        """Whose turn it is, if anybody wants messages and has room."""
        if self.single_active:
            active = self.active
            if active is None or active is not self._preferred or not active.room:
                return None
            return active
        if not self._asking:
            return None
        return self._asking[max(self._asking)][0]

    def gave(self, consumer: Consumer, count: int, *, settled: bool = False) -> None:
        """`count` messages were delivered to the consumer; `settled` if it need not ack them."""
        consumer.wanted -= count
        if not settled:
            consumer.unsettled += count
        self._stop_asking(consumer)
        self._turns += 1
        consumer.turn = self._turns  # behind the others, if it wants more
        self._place(consumer)

    def settled(self, consumer: Consumer, count: int) -> None:
        """The consumer is done with `count` of the messages it holds."""
        consumer.unsettled -= count
        if consumer.wanted:
            self._place(consumer)
        if self.single_active:
            self._hand_over()

    def peers(self, consumer: Consumer) -> int:
        """How many consumers of its priority, itself included, could be given messages now."""
        if self.single_active:
            return 1
        return len(self._asking.get(consumer.priority, ())) or 1

    def demand(self) -> int:
        """How many messages could be delivered at once."""
        if self.single_active:
            taker = self.next_taker()
            return taker.room if taker is not None else 0
        return sum(one.room for asking in self._asking.values() for one in asking)

    def _place(self, consumer: Consumer) -> None:
        """Have the consumer among those that ask, exactly if it wants messages and has room."""
        if not (consumer.room and consumer in self._all):
            self._stop_asking(consumer)
        elif not consumer.is_asking:
            consumer.is_asking = True
            asking = self._asking.setdefault(consumer.priority, [])
            insort(asking, consumer, key=_turn)

    def _stop_asking(self, consumer: Consumer) -> None:
        if consumer.is_asking:
            consumer.is_asking = False
            asking = self._asking[consumer.priority]
            del asking[bisect_left(asking, consumer.turn, key=_turn)]
            if not asking:
                del self._asking[consumer.priority]

    def _choose(self) -> None:
        """Who should be the single active one: the highest priority, then the first to come."""
        if self.single_active:
            self._preferred = min(self._all, key=lambda one: -one.priority, default=None)
            self._hand_over()

    def _hand_over(self) -> None:
        active, preferred = self.active, self._preferred
        if active is None or preferred is None or _may_replace(active, preferred):
            self.active = preferred


def _may_replace(active: Consumer, preferred: Consumer) -> bool:
    return active.unsettled == 0 and preferred.priority > active.priority
