"""The log files that are open now, so that their number stays bounded.

A partition may have hundreds of segments and a broker thousands of partitions, but only a few are
in use. A segment opens its file when it is needed and is put on this list; when the list is full,
the ones not used lately are closed and drop their indexes. Only the event loop's thread comes here.
"""

from __future__ import annotations

from typing import Protocol

from penstock.runtime.disk import Disk

DEFAULT_LIMIT = 512
_TRIES = 8


class Closeable(Protocol):
    """Something open: a segment."""

    recently_used: bool

    def maybe_close(self) -> bool:
        """Close if that loses nothing; False when it must stay open."""


class OpenFiles:
    """At most `limit` open segments, the least recently used closed first (second chance)."""

    __slots__ = ("_open", "disk", "limit")

    def __init__(self, disk: Disk, limit: int = DEFAULT_LIMIT) -> None:
        self.disk = disk
        self.limit = limit
        self._open: dict[Closeable, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def __repr__(self) -> str:
        return f"OpenFiles({len(self)} of {self.limit})"

    def add(self, segment: Closeable) -> None:
        self._open[segment] = None
        if len(self._open) > self.limit:
            self._close_idle(segment)

    def discard(self, segment: Closeable) -> None:
        self._open.pop(segment, None)

    def close_unused(self) -> None:
        """Close what was not used since the last call; for a slow timer."""
        for segment in list(self._open):
            if segment.recently_used:
                segment.recently_used = False
            elif segment.maybe_close():
                self._open.pop(segment, None)

    def _close_idle(self, newest: Closeable) -> None:
        # A few tries only: if everything is in use or unsynced, the limit is exceeded for a while
        # rather than every newcomer searching the whole list in vain.
        for _ in range(_TRIES):
            if len(self._open) <= self.limit:
                return
            segment = next(iter(self._open))
            del self._open[segment]
            if segment is newest or segment.recently_used or not segment.maybe_close():
                segment.recently_used = False
                self._open[segment] = None
