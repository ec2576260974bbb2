"""One partition as one share group sees it: records are given out, and come back or are done with.

    acquire ─► locked by a member ─ accept, reject ─► settled
       ▲                │
       └─ release, lock over, session closed ─┘        (or dead, when that happened too often)

The rules are the queue machine's (`machines/queue.py`); what became of records lies in a journal
beside the partition, as a queue's does. The log is looked at only as far as records are wanted, so
a long backlog costs nothing. An acknowledgement is answered when it is on disk (`committed`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.errors import CorruptRecord, InvalidRecordState, OffsetOutOfRange
from penstock.log.chunk import LogChunk
from penstock.machines.queue import Queue as Machine
from penstock.machines.queue_outcome import DeadLetters, Outcome
from penstock.model.batch import whole_batches
from penstock.model.offset_ranges import Range, merge_ranges, size_of
from penstock.model.queue_journal import Acked, JournalRecord
from penstock.model.share_delivery import (
    NOTHING_ACQUIRED,
    Acknowledgements,
    Acquired,
    AcquiredRange,
)
from penstock.model.topic import Topic
from penstock.runtime.clock import Clock
from penstock.services.queue_journal import QueueJournal
from penstock.services.queue_log import gaps_in
from penstock.services.replica import Replica
from penstock.services.share_rules import ShareRules

_log = logging.getLogger("penstock")
_LOOK_BYTES = 1 << 20  # read at a time to see which records there are
_LONGEST_WAIT_SECONDS = 3600.0
Bell = asyncio.Event


class Undertaker(Protocol):
    """Copies dead records to where they go; done when the copies are safe, or cannot be made."""

    async def __call__(self, partition: SharePartition, letters: DeadLetters) -> None: ...


class SharePartition:
    """One partition for one share group. Made by `SharePartitions`."""

    def __init__(
        self,
        group_id: str,
        topic: Topic,
        replica: Replica,
        machine: Machine,
        journal: QueueJournal,
        clock: Clock,
        rules: Callable[[], ShareRules],
        undertaker: Undertaker,
    ) -> None:
        self.group_id = group_id
        self.topic = topic
        self.replica = replica
        self.machine = machine
        self.is_closed = False
        self.given_end = 0  # no record from here on was given to anybody yet
        self._journal = journal
        self._clock = clock
        self._rules = rules
        self._undertaker = undertaker
        self._turn = asyncio.Lock()  # one looks at the log at a time
        self._watchers: list[Bell] = []
        self._burials: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms: int | None = None

    def __repr__(self) -> str:
        return f"<SharePartition {self.group_id!r} {self.replica!r} {self.machine!r}>"

    # --- numbers ----------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """Below it the group is done with every record."""
        return self.machine.state.floor

    @property
    def lag(self) -> int:
        """Records that are not done with."""
        return self.machine.unsettled + max(0, self._visible_end() - self.machine.state.end)

    def _visible_end(self) -> int:
        return self.replica.visible_end(self._rules().read_committed)

    # --- waiting ----------------------------------------------------------------------------------

    def watch(self, bell: Bell) -> None:
        """Ring when there may be records to acquire."""
        self._watchers.append(bell)
        self.replica.watch(bell)

    def unwatch(self, bell: Bell) -> None:
        self._watchers.remove(bell)
        self.replica.unwatch(bell)

    def _ring(self) -> None:
        for bell in self._watchers:
            bell.set()

    # --- giving out -------------------------------------------------------------------------------

    async def acquire(
        self, member_id: str, max_records: int, max_bytes: int, *, by_batch: bool = True
    ) -> Acquired:
        """Records for a member, up to about `max_bytes`, at least one if there is any.

        With `by_batch` there may be more than `max_records`, so that no batch is sent twice.
        """
        async with self._turn:
            self._follow_settings()
            room = self._rules().max_record_locks - self.machine.delivered
            wanted = min(max_records, room)
            if wanted <= 0 or self.is_closed:
                return NOTHING_ACQUIRED
            self._tick()
            self._drop_what_is_gone()
            await self._look_ahead(wanted)
            if self.machine.ready == 0 or self.is_closed:
                return NOTHING_ACQUIRED
            taken = self.machine.take(wanted, self._clock.now_ms(), member_id)
            try:
                return await self._read(taken, member_id, max_bytes, room if by_batch else 0)
            except BaseException:  # the client is gone, or the log is damaged: nobody has them
                self._give_back_unseen(taken, member_id)
                raise
            finally:
                self._journal.touch()
                self._set_timer()

    async def _read(
        self, taken: Sequence[Range], member_id: str, max_bytes: int, room: int
    ) -> Acquired:
        """The batches that hold what was taken; what does not fit is given back."""
        data: list[bytes | bytearray | memoryview] = []
        given: list[Range] = []
        size, first, covered = 0, -1, -1
        for low, high in taken:
            at = max(low, min(high, covered))
            while at < high and (not data or size < max_bytes):
                chunk = await self._chunk(at, max_bytes - size, high, min_one=not data)
                if chunk is None:
                    self._record(Acked(((at, high),)))
                    high = at
                elif chunk.data:
                    data.append(chunk.data)
                    size += len(chunk.data)
                    first, covered = chunk.first_offset, chunk.next_offset
                    at = min(high, covered)
                else:
                    break
            given.append((low, at))
            if at < high:
                self._give_back_unseen([(at, high)], member_id)
        if room and data:
            given += self._take_rest(first, covered, room - size_of(given), member_id)
        given = merge_ranges(run for run in given if run[0] < run[1])
        self.given_end = max([self.given_end, *(high for _, high in given)])
        return Acquired(data, self._counted(given), size_of(given))

    async def _chunk(
        self, offset: int, max_bytes: int, upper: int, *, min_one: bool
    ) -> LogChunk | None:
        """Batches from the one with `offset` on; None when the log has nothing there any more."""
        log = self.replica.log
        try:
            chunk = log.try_read(offset, max_bytes, upper_offset=upper, min_one=min_one)
            if chunk is None:
                chunk = await log.read(offset, max_bytes, upper_offset=upper, min_one=min_one)
        except OffsetOutOfRange:
            return None
        self.replica.bytes_out += len(chunk.data)
        self.replica.messages_out += chunk.record_count
        return None if min_one and not chunk.data else chunk

    def _take_rest(self, low: int, high: int, room: int, member_id: str) -> list[Range]:
        """The ready records of batches that are sent anyway."""
        state = self.machine.state
        if next(iter(state.order.ready_runs(state.floor, low)), None) is not None:
            return []  # one came back meanwhile that would be next, and is not in these batches
        ready = size_of(state.order.ready_runs(max(low, state.floor), high))
        if room <= 0 or not ready:
            return []
        return self.machine.take(min(ready, room), self._clock.now_ms(), member_id)

    def _counted(self, ranges: Sequence[Range]) -> list[AcquiredRange]:
        counts = self.machine.state.counts
        if not counts:
            return [AcquiredRange(low, high - 1, 1) for low, high in ranges]
        return [
            AcquiredRange(start, stop - 1, count + 1)
            for low, high in ranges
            for start, stop, count in counts.runs(low, high)
        ]

    def _give_back_unseen(self, ranges: Sequence[Range], member_id: str) -> None:
        offsets = [offset for low, high in ranges for offset in range(low, high)]
        self._perform(self.machine.give_back(offsets, member_id, counted=False))

    # --- the log ----------------------------------------------------------------------------------

    async def look_to(self, end: int) -> None:
        """Take in the records below `end`; for a partition that was just loaded."""
        async with self._turn:
            self._drop_what_is_gone()
            while self.machine.state.end < min(end, self._visible_end()):
                await self._look(self._visible_end())

    async def _look_ahead(self, wanted: int) -> None:
        """Take in records until enough are ready or there are no more."""
        while self.machine.ready < wanted and not self.is_closed:
            upper = self._visible_end()
            if self.machine.state.end >= upper:
                return
            await self._look(upper)

    async def _look(self, upper: int) -> None:
        low, log = self.machine.state.end, self.replica.log
        try:
            chunk = log.try_read(low, _LOOK_BYTES, upper_offset=upper)
            if chunk is None:
                chunk = await log.read(low, _LOOK_BYTES, upper_offset=upper)
        except CorruptRecord as damage:  # nobody can have these; the others are not to wait
            behind = min(upper, await log.offset_behind_damage(low))
            _log.error("group %s cannot read %d to %d: %s", self.group_id, low, behind, damage)
            self._take_in(behind, self._clock.now_ms(), [(low, behind)])
            return
        if not chunk.data:  # a gap up to the end
            self._take_in(upper, self._clock.now_ms(), [(low, upper)])
            return
        read_committed = self._rules().read_committed
        aborted = log.aborted_between(low, chunk.next_offset) if read_committed else []
        view = memoryview(chunk.data)
        at = 0
        for header in whole_batches(view):
            data = view[at : at + header.size]
            at += header.size
            high = min(header.next_offset, upper)
            if high <= low:
                continue
            hidden = header.is_control or any(
                header.is_transactional
                and header.producer_id == one.producer_id
                and one.first_offset <= header.base_offset <= one.last_offset
                for one in aborted
            )
            skipped = [(low, high)] if hidden else gaps_in(header, data, low, high)
            self._take_in(high, header.max_timestamp, skipped)
            low = high

    def _take_in(self, end: int, time_ms: int, skipped: Sequence[Range]) -> None:
        self.machine.extend(end, time_ms)
        unsettled = self.machine.state.unsettled_among(skipped)
        if unsettled:
            self._record(Acked(tuple(unsettled)))

    def _drop_what_is_gone(self) -> None:
        """What retention or DeleteRecords took away is done with."""
        start = self.replica.log.start_offset
        state = self.machine.state
        if state.end < start:
            self.machine.extend(start, self._clock.now_ms())
        if state.floor < start:
            missing = state.missing_below(start)
            if missing is not None:
                self._record(missing)

    # --- coming back ------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, said: Acknowledgements) -> None:
        """All of it, or nothing: `InvalidRecordState` when a record is not the member's."""
        self._follow_settings()
        self._tick()
        floor = self.machine.state.floor
        for offsets in said:
            for offset in offsets:
                if offset >= floor and not self.machine.holds(offset, member_id):
                    raise InvalidRecordState(
                        f"record {offset} of {self.replica.log.name} is not held by {member_id}"
                    )
        now_ms = self._clock.now_ms()
        if said.renewed:
            self.machine.renew(said.renewed, member_id, now_ms)
        if said.accepted:
            self._perform(self.machine.ack(said.accepted, member_id))
        if said.released:
            self._perform(self.machine.give_back(said.released, member_id))
        if said.rejected:
            self._perform(self.machine.reject(said.rejected, member_id))
        self._set_timer()
        self._ring()  # even accepting makes room for more

    async def committed(self) -> None:
        """Return when everything that was acknowledged is on disk."""
        while self._burials:
            await asyncio.wait(set(self._burials))
        await self._journal.write_safely()
        if self._journal.wants_checkpoint and not self.is_closed:
            self._checkpoint()

    def release(self, member_id: str) -> None:
        """The member's session is over; what it held comes back, and was given out once more.

        It counts although nobody said anything: a record that its readers die of must come to its
        end too.
        """
        held = self.machine.held_by(member_id)
        if held:
            self._perform(self.machine.give_back(held, member_id))
            self._set_timer()

    def _perform(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self._record(record)
        for letters in outcome.dead:
            task = asyncio.get_running_loop().create_task(self._bury(letters))
            self._burials.add(task)
            task.add_done_callback(self._burials.discard)
        if self.machine.ready:
            self._ring()

    async def _bury(self, letters: DeadLetters) -> None:
        await self._undertaker(self, letters)
        if not self.is_closed:
            self._record(self.machine.bury(letters.ranges))

    def _record(self, record: JournalRecord) -> None:
        self.machine.apply(record)
        self._journal.add(record)

    # --- time -------------------------------------------------------------------------------------

    def _follow_settings(self) -> None:
        settings = self._rules().queue
        if settings != self.machine.settings:
            self.machine.reconfigure(settings)

    def _tick(self) -> None:
        now_ms = self._clock.now_ms()
        if self._due_ms is not None and self._due_ms <= now_ms:
            self._due_ms = None
            self._perform(self.machine.tick(now_ms))

    def _set_timer(self) -> None:
        due_ms = self.machine.next_ms()
        if due_ms == self._due_ms and (due_ms is None or self._timer is not None):
            return
        self._due_ms = due_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due_ms is not None and not self.is_closed:
            seconds = min(max(0.0, (due_ms - self._clock.now_ms()) / 1000), _LONGEST_WAIT_SECONDS)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._timer_rings)

    def _timer_rings(self) -> None:
        self._timer = None
        self._follow_settings()
        self._tick()
        self._set_timer()

    # --- ending -----------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        self._journal.checkpoint(self.machine.checkpoint())

    def close(self, *, deleted: bool = False) -> None:
        """Nothing happens here any more; whoever waits is told to look again."""
        if self.is_closed:
            return
        if not deleted:
            self._checkpoint()
        self.is_closed = True
        self._journal.close(write=not deleted)
        if self._timer is not None:
            self._timer.cancel()
        for task in self._burials:
            task.cancel()
        self._ring()
