"""All groups of this broker, and the one way in which they change.

A change is decided by a machine, its durable records are appended to the journal, and only then
are they applied, the effects performed and the caller answered: what a client was told survives a
crash. Changes of one group wait for each other; a change without durable records (a heartbeat, most
joins) happens at once when nobody is in the lane. A decision is a pure function, so it is simply
made again when its turn comes.

Recovery is replay of the journal's partitions; nothing else is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol

from penstock.errors import BrokerError, CoordinatorNotAvailable, CorruptRecord, StorageError
from penstock.machines.decision import (
    AnswerJoin,
    AnswerSync,
    Arm,
    Decision,
    Disarm,
    Parked,
    Timer,
    TimerKind,
)
from penstock.machines.offsets import OffsetStaged, TransactionEnded
from penstock.model import offsets_topic
from penstock.model.batch import BatchHeader
from penstock.model.offsets_topic import OffsetCommitted
from penstock.model.records import Record
from penstock.runtime.clock import Clock
from penstock.services.group_lane import DURABLE, Lane
from penstock.services.group_timers import GroupTimers

log = logging.getLogger(__name__)

_RETRY_MS = 1_000  # a timer whose consequences could not be written comes up again

Decide = Callable[[Lane, int], Decision]


class ReplayedBatch(Protocol):
    """A batch of the journal; `marker` tells how a transaction ended, for control batches."""

    @property
    def header(self) -> BatchHeader: ...

    @property
    def records(self) -> Sequence[Record]: ...

    @property
    def marker(self) -> bool | None: ...


class StateJournal(Protocol):
    """What the groups need of `services.journal.Journal`."""

    def partition_for(self, key: str) -> int: ...

    async def append(
        self,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        *,
        producer: tuple[int, int] | None = None,
    ) -> None: ...

    def replay(self, partition: int) -> AsyncIterator[Any]: ...

    async def partitions_with_data(self) -> list[int]: ...


class GroupStore:
    """Lanes by group id; `fire` decides what a timer does, `touched` hears of every change."""

    def __init__(
        self,
        journal: StateJournal,
        clock: Clock,
        *,
        fire: Callable[[Lane, Timer, int], Decision],
        touched: Callable[[Lane], None],
    ) -> None:
        self.clock = clock
        self.timers = GroupTimers(clock, self._timer_is_up)
        self._journal = journal
        self._fire = fire
        self._touched = touched
        self._lanes: dict[str, Lane] = {}
        self._position = 0  # in the order of the journal: of the last change applied
        self._open_transactions: dict[tuple[int, int], list[str]] = {}
        self._in_flight: dict[tuple[int, int], int] = {}
        self._late_markers: dict[tuple[int, int], list[bool]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()  # the loop itself holds tasks only weakly

    def __repr__(self) -> str:
        return f"<GroupStore {len(self._lanes)} groups>"

    # --- lanes ------------------------------------------------------------------------------------

    def find(self, group_id: str) -> Lane | None:
        """The lane of a group that exists."""
        lane = self._lanes.get(group_id)
        return lane if lane is not None and lane.exists else None

    def lane(self, group_id: str) -> Lane:
        """The lane of a group, made if there is none."""
        lane = self._lanes.get(group_id)
        if lane is None:
            partition = self._journal.partition_for(group_id)
            lane = self._lanes[group_id] = Lane(group_id, partition, self.clock.now_ms())
        return lane

    def existing(self) -> Iterator[Lane]:
        return (lane for lane in list(self._lanes.values()) if lane.exists)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` to its end, whoever stops waiting for it."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Finish what is being written and let nothing more happen."""
        self.timers.close()
        for lane in self._lanes.values():
            for future in lane.parked.values():
                future.cancel()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- changing ---------------------------------------------------------------------------------

    async def change(
        self, group_id: str, decide: Decide, *, producer: tuple[int, int] | None = None
    ) -> Any:
        """Let `decide` change a group; returns its reply once everything it said is durable."""
        lane = self.lane(group_id)
        reply: Any
        try:
            if not lane.users:
                decision = decide(lane, self.clock.now_ms())
                if not _is_durable(decision):
                    reply = self._settle(lane, decision)
                else:
                    reply = await asyncio.shield(self.spawn(self._turn(lane, decide, producer)))
            else:
                reply = await asyncio.shield(self.spawn(self._turn(lane, decide, producer)))
        finally:
            self.maybe_drop(lane)
        return await reply if isinstance(reply, asyncio.Future) else reply

    async def _turn(self, lane: Lane, decide: Decide, producer: tuple[int, int] | None) -> Any:
        lane.users += 1
        try:
            async with lane.lock:
                decision = decide(lane, self.clock.now_ms())
                await self.persist(lane, decision.records, producer)
                return self._settle(lane, decision)
        finally:
            lane.users -= 1
            self.maybe_drop(lane)

    async def persist(
        self, lane: Lane, records: Sequence[Any], producer: tuple[int, int] | None = None
    ) -> None:
        """Append the durable ones of `records` as one batch. The caller holds the lane."""
        durable = [
            offsets_topic.encode(record.commit if isinstance(record, OffsetStaged) else record)
            for record in records
            if isinstance(record, DURABLE)
        ]
        if not durable:
            return
        try:
            await self._append(lane, durable, producer)
        except StorageError as failure:
            # Clients know what to do with a coordinator that is not there: ask again.
            raise CoordinatorNotAvailable(f"the group could not be written: {failure}") from failure

    async def _append(
        self,
        lane: Lane,
        durable: Sequence[tuple[bytes, bytes | None]],
        producer: tuple[int, int] | None,
    ) -> None:
        if producer is None:
            await self._journal.append(lane.partition, durable)
            return
        # The transaction may end (time-out) between this append and its being applied; its marker
        # is then kept until after.
        key = (lane.partition, producer[0])
        self._in_flight[key] = self._in_flight.get(key, 0) + 1
        try:
            await self._journal.append(lane.partition, durable, producer=producer)
        except BaseException:
            self._landed(key)
            raise

    def settle(self, lane: Lane, records: Sequence[Any]) -> None:
        """Apply records that are durable, and let the world know."""
        self._position += 1
        lane.apply_all(records, self._position)
        if records and log.isEnabledFor(logging.DEBUG):
            log.debug("group %s: %s", lane.group_id, ", ".join(map(repr, records)))
        for record in records:
            if isinstance(record, OffsetStaged):
                self._staged(lane, record.producer_id)
                break
        if records:
            self._touched(lane)

    def _settle(self, lane: Lane, decision: Decision) -> Any:
        self.settle(lane, decision.records)
        # Parked before the effects: one of them may answer this very request.
        reply = decision.reply
        if isinstance(reply, Parked):
            reply = lane.park(reply)
        for effect in decision.effects:
            match effect:
                case Arm(timer, after_ms, unless_armed):
                    if not (unless_armed and self.timers.is_armed(lane.group_id, timer)):
                        self.timers.arm(lane.group_id, timer, after_ms)
                case Disarm(timer):
                    self.timers.disarm(lane.group_id, timer)
                case AnswerJoin(member_id, answer):
                    lane.answer("join", member_id, answer)
                case AnswerSync(member_id, answer):
                    lane.answer("sync", member_id, answer)
        return reply

    def prolong_session(self, lane: Lane, member_id: str, timeout_ms: int) -> None:
        """A member did something that shows it is alive."""
        self.timers.arm(lane.group_id, Timer(TimerKind.SESSION, member_id), timeout_ms)

    def maybe_drop(self, lane: Lane) -> None:
        """Forget a lane of which nothing is left."""
        if lane.is_idle and self._lanes.get(lane.group_id) is lane:
            del self._lanes[lane.group_id]

    # --- timers -----------------------------------------------------------------------------------

    def _timer_is_up(self, group_id: str, timer: Timer) -> None:
        self.spawn(self._on_timer(group_id, timer))

    async def _on_timer(self, group_id: str, timer: Timer) -> None:
        def decide(lane: Lane, now_ms: int) -> Decision:
            return self._fire(lane, timer, now_ms)

        lane = self.lane(group_id)
        lane.users += 1
        try:
            async with lane.lock:
                if not self.timers.take(group_id, timer):
                    return  # moved while this waited for its turn
                decision = decide(lane, self.clock.now_ms())
                await self.persist(lane, decision.records)
                self._settle(lane, decision)
        except BrokerError as failure:
            log.warning("group %s: %s timer not handled: %s", group_id, timer.kind, failure)
            self.timers.arm(group_id, timer, _RETRY_MS)
        finally:
            lane.users -= 1
            self.maybe_drop(lane)

    # --- transactions -----------------------------------------------------------------------------

    def on_marker(self, partition: int, producer_id: int, committed: bool) -> None:
        """The marker of a transaction is durable in a partition of the journal."""
        key = (partition, producer_id)
        self._end_transaction(key, committed)
        if key in self._in_flight:
            self._late_markers.setdefault(key, []).append(committed)

    def _end_transaction(self, key: tuple[int, int], committed: bool) -> None:
        for group_id in self._open_transactions.pop(key, ()):
            lane = self._lanes.get(group_id)
            if lane is None:
                continue  # the group was deleted meanwhile
            self.settle(lane, (TransactionEnded(key[1], committed),))
            self.maybe_drop(lane)

    def _staged(self, lane: Lane, producer_id: int) -> None:
        key = (lane.partition, producer_id)
        groups = self._open_transactions.setdefault(key, [])
        if lane.group_id not in groups:
            groups.append(lane.group_id)
        self._landed(key)

    def _landed(self, key: tuple[int, int]) -> None:
        flying = self._in_flight.get(key, 0) - 1
        if flying > 0:
            self._in_flight[key] = flying
            return
        self._in_flight.pop(key, None)
        for committed in self._late_markers.pop(key, ()):
            self._end_transaction(key, committed)

    # --- recovery ---------------------------------------------------------------------------------

    async def replay(self) -> None:
        """Read every partition of the journal that has something in it."""
        for partition in await self._journal.partitions_with_data():
            async for batch in self._journal.replay(partition):
                self._replay_batch(partition, batch)
        for lane in list(self._lanes.values()):
            self.maybe_drop(lane)

    def _replay_batch(self, partition: int, batch: ReplayedBatch) -> None:
        header = batch.header
        if batch.marker is not None:
            self._end_transaction((partition, header.producer_id), batch.marker)
        for stored in batch.records:
            self._position = max(self._position, stored.offset)
            try:
                record = offsets_topic.decode(stored.key or b"", stored.value)
            except CorruptRecord as damage:
                log.error(
                    "%s-%d offset %d is skipped: %s",
                    "__consumer_offsets", partition, stored.offset, damage,
                )  # fmt: skip
                continue
            if record is None:
                continue
            lane = self.lane(record.group_id)
            lane.created_at_ms = min(lane.created_at_ms, header.base_timestamp)
            if header.is_transactional and isinstance(record, OffsetCommitted):
                lane.apply(OffsetStaged(header.producer_id, record), stored.offset)
                self._staged(lane, header.producer_id)
            else:
                lane.apply(record, stored.offset)


def _is_durable(decision: Decision) -> bool:
    return any(isinstance(record, DURABLE) for record in decision.records)
