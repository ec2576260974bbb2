"""The batches of a partition's producers from before its newest snapshot.

A snapshot keeps one batch of each producer, and a producer may send its last five again after a
restart. Without the other four it would be told that it lost its order, and give up for good. So
the end of the log before the snapshot is read, from a little to as much as five large batches take.
"""

from __future__ import annotations

from penstock.errors import CorruptRecord
from penstock.log.partition_log import PartitionLog
from penstock.machines.producers import ProducerStates
from penstock.model.batch import BatchHeader, whole_batches

_WINDOWS = (500, 8_000, 130_000)  # offsets; a window that shows too little is followed by the next
_MOST_BYTES = 8 * 1024 * 1024


async def recall_batches(
    log: PartitionLog, producers: ProducerStates, position: int, now_ms: int
) -> None:
    """Remind producers restored from the snapshot at `position` of what they wrote before it."""
    for window in _WINDOWS:
        offset = max(log.start_offset, position - window)
        wanted = producers.incomplete(offset)
        if not wanted or offset >= position:
            return
        headers = await _headers(log, offset, position)
        if headers is None:
            return
        for producer_id in wanted:
            producers.recall(producer_id, headers, now_ms)
        if offset == log.start_offset:
            return


async def _headers(log: PartitionLog, offset: int, position: int) -> list[BatchHeader] | None:
    """Of the batches in between; None when they are too large to be looked at, or damaged."""
    headers: list[BatchHeader] = []
    room = _MOST_BYTES
    while offset < position:
        try:
            chunk = await log.read(offset, room, upper_offset=position)
        except CorruptRecord:
            return None
        room -= len(chunk.data)
        if not chunk.data or (room <= 0 and chunk.next_offset < position):
            return None
        headers += [one for one in whole_batches(chunk.data) if not one.is_control]
        offset = chunk.next_offset
    return headers
