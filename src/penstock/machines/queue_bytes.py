"""The bytes of the ready messages, for queues whose length is limited in bytes.

`MeasuredOrder` stands in front of another order and adds up what passes: 4 bytes a message, and
only in queues that have such a limit.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from penstock.machines.queue_order import Order
from penstock.model.offset_ranges import Range

_CHUNK = 1024
_SHIFT = 10
_MASK = _CHUNK - 1
_NO_SIZES = array("I", bytes(4 * _CHUNK))


class MeasuredOrder:
    """An order that knows how many bytes are ready."""

    __slots__ = ("_low", "_order", "_sizes", "ready_bytes")

    def __init__(self, order: Order) -> None:
        self._order = order
        self._sizes: dict[int, array[int]] = {}
        self._low = 0  # no chunk below this number exists
        self.ready_bytes = 0

    @property
    def ready(self) -> int:
        return self._order.ready

    @property
    def delivered(self) -> int:
        return self._order.delivered

    def measure(self, low: int, sizes: Sequence[int]) -> None:
        """The sizes of messages from `low` on, told before they are added."""
        self._low = min(self._low, low >> _SHIFT) if self._sizes else low >> _SHIFT
        for offset, size in enumerate(sizes, low):
            chunk = self._sizes.get(offset >> _SHIFT)
            if chunk is None:
                chunk = self._sizes[offset >> _SHIFT] = _NO_SIZES[:]
            chunk[offset & _MASK] = min(size, 0xFFFFFFFF)

    def count_ready(self, low: int, high: int) -> None:
        """Add up what is ready: for messages that were there before their sizes were known."""
        self.ready_bytes = self._sum_ready(low, high)

    def extend(self, low: int, high: int, priorities: bytes | None, held: Sequence[int]) -> int:
        count = self._order.extend(low, high, priorities, held)
        self.ready_bytes += self._sum_ready(low, high)
        return count

    def take(self, limit: int) -> list[Range]:
        taken = self._order.take(limit)
        self.ready_bytes -= sum(self._sum(low, high) for low, high in taken)
        return taken

    def restore(self, low: int, high: int) -> None:
        self._order.restore(low, high)
        self.ready_bytes += self._sum(low, high)

    def release(self, offset: int) -> None:
        self._order.release(offset)
        self.ready_bytes += self._sum(offset, offset + 1)

    def withdraw(self, low: int, high: int, state: int) -> None:
        self.ready_bytes -= self._sum(low, high)
        self._order.withdraw(low, high, state)

    def settle(self, low: int, high: int) -> None:
        self.ready_bytes -= self._sum_ready(low, high)
        self._order.settle(low, high)

    def ready_runs(self, low: int, high: int) -> Iterator[Range]:
        return self._order.ready_runs(low, high)

    def delivered_runs(self, low: int, high: int) -> Iterator[Range]:
        return self._order.delivered_runs(low, high)

    def delivered_among(self, ranges: Sequence[Range], floor: int) -> list[Range]:
        return self._order.delivered_among(ranges, floor)

    def floor_moved(self, floor: int) -> None:
        self._order.floor_moved(floor)
        if self._sizes:
            for number in range(self._low, floor >> _SHIFT):
                self._sizes.pop(number, None)
        self._low = max(self._low, floor >> _SHIFT)

    def _sum_ready(self, low: int, high: int) -> int:
        return sum(self._sum(start, stop) for start, stop in self._order.ready_runs(low, high))

    def _sum(self, low: int, high: int) -> int:
        total = 0
        while low < high:
            start = low & _MASK
            stop = min(_CHUNK, start + high - low)
            chunk = self._sizes.get(low >> _SHIFT)
            if chunk is not None:
                total += sum(chunk[start:stop])
            low += stop - start
        return total
