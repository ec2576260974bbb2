"""Bringing a queue back to work: the journal is replayed, then the messages are looked at.

How much of the log must be read depends on what the queue has to know of its messages. First in,
first out needs nothing: however many millions wait, only what was appended since the journal last
noted how far it had looked is read. Priorities and limits in bytes need every waiting message, a
time-to-live their times, expirations and schedules those from the first such message on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.log import layout
from penstock.machines.queue import Queue as Machine
from penstock.machines.queue_outcome import Marks
from penstock.model.queue_journal import NOTHING_MARKED, Acked
from penstock.model.queue_record import StoredMessage
from penstock.model.queue_settings import QueueSettings
from penstock.model.topic import topic_id_text
from penstock.services.live_queue import LiveQueue
from penstock.services.queue_admission import Admission
from penstock.services.queue_journal import JOURNAL_SETTINGS, QueueJournal
from penstock.services.queue_log import Arrival, QueueLog, marks_of_stored

if TYPE_CHECKING:
    from penstock.services.queue import Queue

PURPOSE = "queue"  # the journal of a queue lies beside its topic under this name


async def load_queue(queue: Queue) -> LiveQueue:
    """The queue as its log and journal say it is."""
    host = queue.host
    topic = host.topics.get(queue.topic)
    replica = await host.partitions.replica(queue.topic, 0)
    name = layout.journal_name(topic_id_text(topic.id), PURPOSE)
    machine = Machine(queue.rules.settings)
    journal = QueueJournal(
        host.store.get(name, topic.id, 0, JOURNAL_SETTINGS),
        host.flusher,
        host.clock,
        machine.handed,
    )
    await journal.replay(machine.apply)
    end = replica.last_stable_offset
    orphans = machine.state.orphans(replica.log.end_offset)
    if orphans is not None:
        machine.apply(orphans)
        journal.add(orphans)
        await journal.write_safely()
    machine.recovered()
    log = QueueLog(replica, queue.name)
    await _look_at_messages(machine, log, journal, end, host.clock.now_ms())
    admission = Admission(machine, log, queue.rules)
    await admission.recall(host.clock.now_ms())
    return LiveQueue(queue, machine, log, journal, admission, host.clock)


async def _look_at_messages(
    machine: Machine, log: QueueLog, journal: QueueJournal, end: int, now_ms: int
) -> None:
    state, settings = machine.state, machine.settings
    first = max(state.floor, log.replica.log.start_offset)
    low = min(end, _look_from(machine, settings, first))
    if state.floor < low:
        # Nothing needs to be known of these. Should a time-to-live come, it counts from now.
        machine.extend(low, now_ms, await _moved_marks(machine, log, low))
    async for arrival in log.scan(low, end, settings):
        machine.extend(arrival.high, arrival.time_ms, arrival.marks)
        _settle(machine, journal, arrival)
    missing = machine.state.missing_below(log.replica.log.start_offset)
    if missing is not None:
        machine.apply(missing)
        journal.add(missing)


def _look_from(machine: Machine, settings: QueueSettings, first: int) -> int:
    state = machine.state
    if settings.max_priority or settings.max_length_bytes is not None:
        return first
    if settings.message_ttl_ms is not None:
        return first
    if state.marked != NOTHING_MARKED:
        return max(first, min(state.marked, state.seen))
    return max(first, state.seen)


async def _moved_marks(machine: Machine, log: QueueLog, high: int) -> Marks:
    """Of messages whose place the log has given up, the marks are in their copies."""
    state = machine.state
    low = state.end
    found: list[StoredMessage] = []
    for offset, place in sorted(state.moved.items()):
        if low <= offset < high:
            entry = await log.entry_or_wait(place)
            if isinstance(entry, StoredMessage):
                found.append(entry._replace(offset=offset))
    return marks_of_stored(low, high, found, machine.settings)


def _settle(machine: Machine, journal: QueueJournal, arrival: Arrival) -> None:
    """Records that are no messages are done with."""
    unsettled = machine.state.unsettled_among(arrival.skipped)
    if unsettled:
        record = Acked(tuple(unsettled))
        machine.apply(record)
        journal.add(record)
