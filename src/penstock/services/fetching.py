"""Taking a single message from a queue (AMQP's basic.get): no consumer, no waiting."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.services.live_queue import LiveQueue
from penstock.services.subscription import Delivery


class Fetched:
    """Holds what a single get took; it counts against no prefetch."""

    __slots__ = ("_live",)

    def __init__(self, live: LiveQueue) -> None:
        self._live = live

    def ack(self, offsets: Sequence[int]) -> None:
        self._live.ack(offsets, None)

    def requeue(self, offsets: Sequence[int]) -> None:
        self._live.requeue(offsets, None)

    def reject(self, offsets: Sequence[int]) -> None:
        self._live.reject(offsets, None)


async def fetch(live: LiveQueue, *, no_ack: bool) -> tuple[Delivery, int, Fetched] | None:
    """The next message, how many are left, and who is told what became of it."""
    holder = Fetched(live)
    while (offset := live.take_one(holder)) is not None:
        if not await live.reader.bring(offset):
            live.forget_missing([offset], None)
            continue
        taken, _ = live.open([(offset, offset + 1)], 1, 1, None)
        if taken:
            if no_ack:
                live.ack([offset], None)
            return taken[0], live.machine.ready, holder
    return None
