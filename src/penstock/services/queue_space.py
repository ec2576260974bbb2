"""Giving disk space back: segments of a queue's log whose every message is settled go.

Whole segments only, so that readers of the topic (Kafka, Spark) still find what was acknowledged a
moment ago. A queue with `x-retention-ms`, a stream and an adopted topic keep to the topic's own
retention instead. Where a few old messages pin much space, the log being mostly of settled ones,
they are copied to its end: the message keeps its offset, its rank and its count, only its bytes lie
elsewhere. The copy is safe and the move is in the journal before the segment goes.
"""

from __future__ import annotations

from penstock.errors import BrokerError, StorageError
from penstock.log.partition_log import PartitionLog
from penstock.model.queue_arguments import STREAM
from penstock.model.queue_journal import Moved
from penstock.model.queue_record import COPY_OF, DUE, SOURCE, Message, StoredMessage
from penstock.model.records import Headers
from penstock.services.live_queue import LiveQueue
from penstock.services.queue import Queue

_GARBAGE_SHARE = 0.75  # of the log must be of settled messages before any are moved
_LEAST_SEGMENTS = 3
_MOST_MOVED = 1_000  # at a time


async def reclaim(queue: Queue, now_ms: int) -> int:
    """Let go of segments that nobody needs; how many."""
    live = queue.live
    if live is None or live.is_closed or queue.adopted:
        return 0
    if queue.rules.kind == STREAM or queue.rules.retention_ms is not None:
        return 0
    before = len(live.log.replica.log.segments)
    await _drop(queue, live, now_ms)
    if _is_pinned(live):
        await _move_oldest(live)
        await _drop(queue, live, now_ms)
    return before - len(live.log.replica.log.segments)


async def _drop(queue: Queue, live: LiveQueue, now_ms: int) -> None:
    """Move the start of the log up to the segment that holds the first message still needed."""
    log = live.log.replica.log
    state = live.machine.state
    needed = state.needed_from()
    if state.moved and not await _is_written(live):
        needed = min(needed, *state.moved)  # a crash would look for them where they were
    window_ms = queue.rules.deduplication_ms
    if queue.rules.deduplicates and window_ms is not None:
        needed = min(needed, await _first_since(log, now_ms - window_ms))
    bases = [segment.base_offset for segment in log.segments if segment.base_offset <= needed]
    if bases and bases[-1] > log.start_offset and not live.is_closed:
        live.log.replica.delete_before(bases[-1])


async def _is_written(live: LiveQueue) -> bool:
    """Whether the journal, with every move in it, is on the medium."""
    try:
        await live.journal.write_safely()
    except StorageError:
        return False
    return True


async def _first_since(log: PartitionLog, time_ms: int) -> int:
    found = await log.find_timestamp(time_ms, upper_offset=log.end_offset)
    return log.end_offset if found is None else found.offset


def _is_pinned(live: LiveQueue) -> bool:
    log, machine = live.log.replica.log, live.machine
    count = log.end_offset - log.start_offset
    if len(log.segments) < _LEAST_SEGMENTS or not count:
        return False
    return machine.unsettled < (1 - _GARBAGE_SHARE) * count


async def _move_oldest(live: LiveQueue) -> None:
    """Copy the unsettled messages of the oldest segment to the end of the log."""
    log = live.log.replica.log
    boundary = log.segments[1].base_offset
    state = live.machine.state
    moves: list[tuple[int, int]] = []
    end = 0
    for offset, place in state.unsettled_places(boundary)[:_MOST_MOVED]:
        entry = await live.log.entry_or_wait(place)
        if live.is_closed:
            return
        if isinstance(entry, StoredMessage):
            end, moved_to = _copy(live, entry, offset)
            moves.append((offset, moved_to))
    if not moves:
        return
    try:
        await live.log.replica.safe(end)
    except BrokerError:
        return
    if not live.is_closed:
        live.moved(Moved(tuple(sorted(moves))))
        await live.journal.write_safely()


def _copy(live: LiveQueue, entry: StoredMessage, offset: int) -> tuple[int, int]:
    headers: list[tuple[str, bytes | None]] = [(COPY_OF, b"%d" % offset)]
    if entry.due_ms is not None:
        headers.append((DUE, b"%d" % entry.due_ms))
    if entry.source is not None:
        headers.append((SOURCE, entry.source))
    extras: list[Headers | None] = [headers]
    message = Message(entry.exchange, entry.routing_key, entry.properties, entry.body)
    # The record keeps the time at which the message was published: its life goes on counting.
    appended = live.log.append(
        [message], entry.timestamp_ms, live.settings, extras=extras, copies=True, keep=False
    )
    return appended.end_offset, appended.base_offset
