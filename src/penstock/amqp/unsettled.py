"""The deliveries of a channel that the client has not settled yet, by delivery tag.

Tags count up from 1, so the tag is an index into two lists, with the tags before `_first` gone:

    tag        _first             _first + _head                       next tag
    sources    None  None  ...    Consumer  None  Consumer  Consumer ...
    offsets    12    13           14        15    16        17

A settled place holds None until everything before it is settled too. A multiple acknowledgement is
a slice, so its cost for each message is that of copying two references.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol


class Holder(Protocol):
    """The queue's side of a delivery, where it is settled by offset."""

    def ack(self, offsets: Sequence[int]) -> None: ...
    def requeue(self, offsets: Sequence[int]) -> None: ...
    def reject(self, offsets: Sequence[int]) -> None: ...
    def renew(self, offsets: Sequence[int]) -> None: ...


class Source(Protocol):
    """Where a delivery came from: a consumer, or a single get."""

    @property
    def holder(self) -> Holder: ...

    def settled(self, count: int) -> None:
        """That many of its deliveries are settled."""


class Taken(NamedTuple):
    """Deliveries that were taken out to be settled: parallel lists, in the order of their tags."""

    tags: list[int]
    sources: list[Source]
    offsets: list[int]

    def by_source(self) -> Iterable[tuple[Source, list[int]]]:
        """The offsets of each source."""
        if not self.sources:
            return ()
        first = self.sources[0]
        if self.sources.count(first) == len(self.sources):
            return ((first, self.offsets),)
        groups: dict[int, tuple[Source, list[int]]] = {}
        for source, offset in zip(self.sources, self.offsets, strict=True):
            groups.setdefault(id(source), (source, []))[1].append(offset)
        return groups.values()


_NOTHING = Taken([], [], [])
_COMPACT_FROM = 1024


class Unsettled:
    """Hands out delivery tags and takes deliveries back by tag."""

    __slots__ = ("_first", "_head", "_offsets", "_sources")

    def __init__(self) -> None:
        self._first = 1
        self._head = 0
        self._sources: list[Source | None] = []
        self._offsets: list[int] = []

    def __len__(self) -> int:
        return len(self._sources) - self._head - self._sources[self._head :].count(None)

    @property
    def next_tag(self) -> int:
        return self._first + len(self._sources)

    def add(self, source: Source, offsets: Sequence[int]) -> int:
        """Deliveries go out; returns the tag of the first."""
        tag = self.next_tag
        self._sources.extend([source] * len(offsets))
        self._offsets.extend(offsets)
        return tag

    def skip(self, count: int) -> int:
        """Deliveries go out that need no settling; returns the tag of the first."""
        tag = self.next_tag
        if self._head == len(self._sources):
            self._first += self._head + count
            self._head = 0
            self._sources.clear()
            self._offsets.clear()
        else:
            self._sources.extend([None] * count)
            self._offsets.extend([-1] * count)
        return tag

    def take(self, tag: int, multiple: bool) -> Taken | None:
        """What an ack, nack or reject names; None when the tag is unknown or already settled.

        Tag 0 with `multiple` is everything (AMQP 0-9-1, basic.ack). Call `forget_settled` when
        the deliveries need not be put back.
        """
        if tag == 0 and multiple:
            return self.take_all()
        index = tag - self._first
        if index < self._head or index >= len(self._sources) or self._sources[index] is None:
            return None
        if multiple:
            return self._take_until(index + 1)
        source = self._sources[index]
        assert source is not None
        self._sources[index] = None
        return Taken([tag], [source], [self._offsets[index]])

    def find(self, tag: int) -> tuple[Source, int] | None:
        """Whose a delivery is, and its offset; None when it is settled, or was none."""
        index = tag - self._first
        if not self._head <= index < len(self._sources):
            return None
        source = self._sources[index]
        return None if source is None else (source, self._offsets[index])

    def take_all(self) -> Taken:
        return self._take_until(len(self._sources))

    def _take_until(self, end: int) -> Taken:
        start = self._head
        sources = self._sources[start:end]
        if None not in sources:
            taken = Taken(
                list(range(self._first + start, self._first + end)),
                sources,  # type: ignore[arg-type]  # there is no None in it
                self._offsets[start:end],
            )
        else:
            live = [index for index in range(start, end) if self._sources[index] is not None]
            taken = Taken(
                [self._first + index for index in live],
                [self._sources[index] for index in live],  # type: ignore[misc]
                [self._offsets[index] for index in live],
            )
        self._sources[start:end] = [None] * (end - start)
        return taken

    def put_back(self, taken: Taken) -> None:
        """Undo `take` (of which nothing has been forgotten): a transaction was rolled back."""
        for tag, source in zip(taken.tags, taken.sources, strict=True):
            self._sources[tag - self._first] = source

    def forget_settled(self) -> None:
        """Move past what is settled at the front, and give its room back now and then."""
        sources, head, end = self._sources, self._head, len(self._sources)
        while head < end and sources[head] is None:
            head += 1
        if head == end or (head >= _COMPACT_FROM and head * 2 > end):
            self._first += head
            del self._sources[:head]
            del self._offsets[:head]
            head = 0
        self._head = head
