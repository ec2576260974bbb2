"""Who may take from a queue next: consumer priorities, prefetch, exclusive and single active ones.

A consumer that has room asks for messages (`want`); `next_taker` says whose turn it is. Those of
the highest priority come first while they want; among equals, whoever was served longest ago. With
a single active consumer only that one is ever chosen. When a consumer of higher priority joins such
a queue, the active one gets nothing more, and hands over when all it holds is settled.

Nothing here knows of messages, tasks or sockets.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.errors import AccessRefused

_UNLIMITED = 1 << 62


class Consumer:
    """One consumer of one queue."""

    __slots__ = ("exclusive", "name", "prefetch", "priority", "unsettled", "wanted")

    def __init__(
        self, name: str, *, priority: int = 0, exclusive: bool = False, prefetch: int = 0
    ) -> None:
        self.name = name
        self.priority = priority
        self.exclusive = exclusive
        self.prefetch = prefetch  # how many it may hold; 0 is any number
        self.unsettled = 0  # how many it holds
        self.wanted = 0  # how many it asks for

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

    __slots__ = ("_all", "_asking", "active", "single_active")

    def __init__(self, *, single_active: bool = False) -> None:
        self.single_active = single_active
        self.active: Consumer | None = None  # only in a queue with a single active consumer
        self._all: dict[Consumer, None] = {}  # in order of arrival
        self._asking: dict[int, dict[Consumer, None]] = {}  # by priority; first one is next

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Consumer]:
        return iter(list(self._all))

    def add(self, consumer: Consumer) -> None:
        """Raises AccessRefused where one of the two wants the queue for itself."""
        if self._all and (consumer.exclusive or next(iter(self._all)).exclusive):
            raise AccessRefused("in exclusive use")
        self._all[consumer] = None
        self._maybe_hand_over()

    def remove(self, consumer: Consumer) -> None:
        if consumer not in self._all:
            return
        self.want(consumer, 0)
        del self._all[consumer]
        if consumer is self.active:
            self.active = None
            self._maybe_hand_over()

    def want(self, consumer: Consumer, count: int) -> None:
        """The consumer could do with `count` messages from now on; 0 takes that back."""
        consumer.wanted = count
        asking = self._asking.setdefault(consumer.priority, {})
        if count:
            asking.setdefault(consumer)
        else:
            asking.pop(consumer, None)
            if not asking:
                del self._asking[consumer.priority]

    def next_taker(self) -> Consumer | None:
        """Whose turn it is, if anybody wants messages and has room."""
        if self.single_active:
            active = self.active
            if active is None or not active.room or self._rival() is not active:
                return None
            return active
        for priority in sorted(self._asking, reverse=True):
            for consumer in self._asking[priority]:
                if consumer.room:
                    return consumer
        return None

    def gave(self, consumer: Consumer, count: int, *, settled: bool = False) -> None:
        """`count` messages were delivered to the consumer; `settled` if it need not ack them."""
        consumer.wanted -= count
        if not settled:
            consumer.unsettled += count
        asking = self._asking[consumer.priority]
        del asking[consumer]
        if consumer.wanted > 0:
            asking[consumer] = None  # behind the others
        elif not asking:
            del self._asking[consumer.priority]

    def settled(self, consumer: Consumer, count: int) -> None:
        """The consumer is done with `count` of the messages it holds."""
        consumer.unsettled -= count
        if self.single_active:
            self._maybe_hand_over()

    def peers(self, consumer: Consumer) -> int:
        """How many consumers of its priority, itself included, want messages now."""
        if self.single_active:
            return 1
        return sum(1 for one in self._asking.get(consumer.priority, ()) if one.room) or 1

    def demand(self) -> int:
        """How many messages could be delivered at once."""
        if self.single_active:
            taker = self.next_taker()
            return taker.room if taker is not None else 0
        return min(_UNLIMITED, sum(one.room for asking in self._asking.values() for one in asking))

    def _rival(self) -> Consumer | None:
        """The consumer that should be active: the highest priority, then the first to come."""
        return min(self._all, key=lambda one: -one.priority, default=None)

    def _maybe_hand_over(self) -> None:
        if not self.single_active:
            return
        rival, active = self._rival(), self.active
        if active is None or rival is None or _may_replace(active, rival):
            self.active = rival


def _may_replace(active: Consumer, rival: Consumer) -> bool:
    return active.unsettled == 0 and rival.priority > active.priority
