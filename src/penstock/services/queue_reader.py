"""Deliveries made of reserved messages: offsets in, messages with their properties out."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.machines.queue_state import QueueState
from penstock.model.field_table import encode_value
from penstock.model.message_properties import parse
from penstock.model.offset_ranges import Range
from penstock.services.queue_log import QueueLog
from penstock.services.subscription import Delivery

_OVERHEAD_BYTES = 64  # of a delivery, besides its body


class QueueReader:
    """Opens the messages of one queue."""

    __slots__ = ("_log", "_state", "shows_counts")

    def __init__(self, state: QueueState, log: QueueLog, shows_counts: bool) -> None:
        self._state = state
        self._log = log
        self.shows_counts = shows_counts

    def is_at_hand(self, offset: int) -> bool:
        """Whether the message is in memory, or can be without waiting."""
        return self._log.is_at_hand(self._state.place_of(offset))

    async def bring(self, offset: int) -> bool:
        """Have the message in memory; False when the log has none there (any more)."""
        return await self._log.entry_or_wait(self._state.place_of(offset)) is not None

    def open(
        self, reserved: Sequence[Range], limit: int, max_bytes: int
    ) -> tuple[list[Delivery], list[Range], list[int]]:
        """Deliveries of these messages as far as they are at hand; the rest; and no messages.

        It stops after `limit` deliveries or about `max_bytes`, but makes at least one.
        """
        taken: list[Delivery] = []
        rest: list[Range] = []
        missing: list[int] = []
        state, pages = self._state, self._log.pages
        moved = state.moved
        counts = state.counts if state.counts else None
        room = max_bytes
        for low, high in reserved:
            while low < high and len(taken) < limit and (room > 0 or not taken):
                place = moved.get(low, low) if moved else low
                page = pages.find(place)
                if page is None:
                    if not self._log.is_at_hand(place):
                        break
                    page = pages.find(place)
                    assert page is not None
                many = 1 if moved else min(high - low, page.end - place, limit - len(taken))
                start = place - page.base
                for entry in page.entries[start : start + many]:
                    if entry is None:
                        missing.append(low)
                    else:
                        body = entry.body
                        properties = entry.properties
                        count = 0
                        if counts is not None:
                            count = counts.get(low)
                            if count and self.shows_counts:
                                properties = with_header(properties, "x-delivery-count", count)
                        taken.append(
                            Delivery(
                                low, count, entry.exchange, entry.routing_key, properties, body
                            )
                        )
                        room -= len(body) + _OVERHEAD_BYTES
                    low += 1
                    if room <= 0:
                        break
                pages.taken_to = max(pages.taken_to, place + 1)
            if low < high:
                rest.append((low, high))
        return taken, rest, missing


def with_header(properties: bytes, name: str, value: object) -> bytes:
    """The properties with one header set, all else byte for byte."""
    parsed = parse(properties)
    entries = parsed.header_entries
    entries[name] = encode_value(value)
    return parsed.with_headers(entries)
