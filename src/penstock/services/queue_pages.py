"""The messages of a queue, found by offset: those just published in memory, others from the log.

A page is what one batch of the log holds. Pages of new messages are kept while consumers are there
to take them, so that a consumer that keeps up never reads the disk; pages that were read are kept
while their messages are being taken. Both within a budget of bytes: what was taken goes first, then
what will be needed last.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

from penstock.model.queue_record import Message, StoredMessage

BUDGET_BYTES = 4 << 20

Entry = Message | StoredMessage


class Page:
    """The messages of offsets [base, end); None where the log has a gap."""

    __slots__ = ("base", "end", "entries", "size")

    def __init__(self, base: int, entries: Sequence[Entry | None], size: int) -> None:
        self.base = base
        self.end = base + len(entries)
        self.entries = entries
        self.size = size

    def __repr__(self) -> str:
        return f"Page({self.base}..{self.end}, {self.size} bytes)"


class Pages:
    """Pages by offset."""

    __slots__ = ("_bases", "_by_base", "_last", "size", "taken_to")

    def __init__(self) -> None:
        self.taken_to = 0  # messages below were given out, and are needed only if they come back
        self._bases: list[int] = []
        self._by_base: dict[int, Page] = {}
        self._last: Page | None = None
        self.size = 0

    def __len__(self) -> int:
        return len(self._by_base)

    def add(self, page: Page) -> None:
        if page.base in self._by_base:
            return
        if not self._bases or page.base > self._bases[-1]:
            self._bases.append(page.base)
        else:
            insort(self._bases, page.base)
        self._by_base[page.base] = page
        self.size += page.size
        while self.size > BUDGET_BYTES and len(self._bases) > 1:
            first = self._by_base[self._bases[0]]
            self._drop(first.base if first.end <= self.taken_to else self._bases[-1])

    def use(self, page: Page) -> None:
        """Keep this page at hand, whatever the budget says, until another is used."""
        self._last = page

    def find(self, offset: int) -> Page | None:
        """The page that has the offset, if it is in memory."""
        page = self._last
        if page is not None and page.base <= offset < page.end:
            return page
        at = bisect_right(self._bases, offset) - 1
        if at < 0:
            return None
        page = self._by_base[self._bases[at]]
        if offset >= page.end:
            return None
        self._last = page
        return page

    def drop_below(self, offset: int) -> None:
        """Pages wholly below the offset are not needed."""
        while self._bases and self._by_base[self._bases[0]].end <= offset:
            self._drop(self._bases[0])

    def clear(self) -> None:
        self._bases.clear()
        self._by_base.clear()
        self._last = None
        self.size = 0

    def _drop(self, base: int) -> None:
        page = self._by_base.pop(base)
        self._bases.remove(base)
        self.size -= page.size
