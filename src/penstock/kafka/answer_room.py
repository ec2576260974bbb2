"""How much memory answers may hold, over all clients, so that slow readers cannot fill it.

An answer counts from the moment its records are read until the client has taken it. While much is
held, Fetch is granted little at a time; it is never refused, or a reader would stand still.
"""

from __future__ import annotations

_SMALL_ANSWER_BYTES = 64 * 1024


class AnswerRoom:
    """The bytes of `queued.max.response.bytes`, taken and given back."""

    __slots__ = ("_held", "_limit")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    def __repr__(self) -> str:
        return f"<AnswerRoom {self._held} of {self._limit} bytes held>"

    def reserve(self, wanted: int) -> int:
        """How many of the wanted bytes may be read now; give them back with `release`."""
        granted = min(wanted, max(self._limit - self._held, _SMALL_ANSWER_BYTES))
        self._held += granted
        return granted

    def release(self, size: int) -> None:
        self._held -= size

    def hold(self, change: int) -> None:
        """A client's answers hold `change` more bytes than before (or fewer)."""
        self._held += change
