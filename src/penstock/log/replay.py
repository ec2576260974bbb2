"""Reading a log from an offset to its end, batch by batch: how state is rebuilt from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from penstock.errors import CorruptRecord
from penstock.model.batch import whole_batches

if TYPE_CHECKING:
    from penstock.log.partition_log import PartitionLog

_READ_BYTES = 4 << 20


async def replay(log: PartitionLog, from_offset: int) -> AsyncIterator[memoryview]:
    """Every sound batch from the one that holds `from_offset` on.

    Damaged ones are left out: whoever rebuilds state from a log must be able to go on.
    """
    offset = max(from_offset, log.start_offset)
    while offset < log.end_offset:
        try:
            chunk = await log.read(offset, _READ_BYTES, upper_offset=log.end_offset)
        except CorruptRecord:
            offset = await log.offset_behind_damage(offset)
            continue
        if not chunk.data:
            return
        view = memoryview(chunk.data)
        at = 0
        for header in whole_batches(view):
            yield view[at : at + header.size]
            at += header.size
        offset = chunk.next_offset
