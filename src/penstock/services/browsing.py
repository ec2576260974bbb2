"""Looking into a queue without taking anything out of it.

What is shown is what the queue still owes somebody: ready messages, those a consumer holds, and
those that wait for their time; in the order of the log, whatever their priorities. It is a look at
a moment: a message may be gone when the answer arrives.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import NamedTuple

from penstock.machines.queue_order import DYING, HELD
from penstock.machines.queue_state import QueueState
from penstock.model.queue_record import StoredMessage
from penstock.services.live_queue import LiveQueue
from penstock.services.queue_pages import Entry

READY, UNACKNOWLEDGED, SCHEDULED = "ready", "unacknowledged", "scheduled"
_WINDOW = 1024  # offsets looked at between two turns of the loop


class Browsed(NamedTuple):
    """A message that was looked at."""

    offset: int
    state: str  # ready, unacknowledged or scheduled
    delivery_count: int
    timestamp_ms: int | None
    exchange: str
    routing_key: str
    properties: bytes
    body: bytes | bytearray | memoryview


async def browse(live: LiveQueue, start: int = 0) -> AsyncIterator[Browsed]:
    """The messages of a queue from an offset on, as long as somebody asks for more."""
    machine = live.machine
    state, end = machine.state, machine.state.end
    low = max(start, state.floor)
    while low < end and not live.is_closed:
        high = min(low + _WINDOW, end)
        for first, last in state.unsettled_among([(low, high)]):
            for offset in range(first, last):
                condition = _condition(state, offset)
                if condition is None:
                    continue
                entry = await live.log.entry_or_wait(state.place_of(offset))
                if entry is not None:
                    count = machine.delivery_count(offset)
                    yield _browsed(offset, condition, count, entry)
        low = high


async def oldest_age(live: LiveQueue, now_ms: int) -> float | None:
    """For how many seconds the message that has waited longest has waited; None without one."""
    async for seen in browse(live):
        if seen.timestamp_ms is not None:
            return max(0.0, (now_ms - seen.timestamp_ms) / 1000)
    return None


def _condition(state: QueueState, offset: int) -> str | None:
    """How it stands with a message; None when it is gone, or going."""
    if not state.unsettled_among([(offset, offset + 1)]):
        return None
    known = state.states.get(offset)
    if known == DYING:
        return None
    if known == HELD:
        return SCHEDULED
    held = any(state.order.delivered_runs(offset, offset + 1))
    return UNACKNOWLEDGED if held else READY


def _browsed(offset: int, condition: str, count: int, entry: Entry) -> Browsed:
    timestamp_ms = entry.timestamp_ms if isinstance(entry, StoredMessage) else None
    return Browsed(
        offset,
        condition,
        count,
        timestamp_ms,
        entry.exchange,
        entry.routing_key,
        entry.properties,
        entry.body,
    )
