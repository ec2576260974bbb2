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
        self._live.ack(self._mine(offsets), None)

    def requeue(self, offsets: Sequence[int]) -> None:
        self._live.requeue(self._mine(offsets), None)

    def reject(self, offsets: Sequence[int]) -> None:
        self._live.reject(self._mine(offsets), None)

    def renew(self, offsets: Sequence[int]) -> None:
        """These take longer: the time after which they come back begins anew."""
        live = self._live
        live.machine.renew(offsets, self, live.queue.host.clock.now_ms())

    def _mine(self, offsets: Sequence[int]) -> Sequence[int]:
        """What came back by itself meanwhile may be somebody else's."""
        machine = self._live.machine
        if machine.settings.lock_ms is None:
            return offsets
        return [offset for offset in offsets if machine.holds(offset, self)]


async def fetch(live: LiveQueue, *, no_ack: bool) -> tuple[Delivery, int, Fetched] | None:
    """The next message, how many are left, and who is told what became of it."""
    holder = Fetched(live)
    while (offset := live.take_one(holder)) is not None:
        try:
            is_there = await live.reader.bring(offset)
        except BaseException:  # the client is gone, or the disk fails: nobody has it
            live.give_back_unseen(None, [(offset, offset + 1)])
            raise
        if not is_there:
            live.forget_missing([offset], None)
            continue
        taken, _ = live.open([(offset, offset + 1)], 1, 1, None)
        if taken:
            if no_ack:
                live.ack([offset], None)
            return taken[0], live.machine.ready, holder
    return None
