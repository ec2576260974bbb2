"""Topics being read by somebody in the broker's own process.

Reading is `Replica.read`, without a request in between. A stream without a group reads every
partition of its topics; with one, the partitions that the group gives it. What must be given back
is told to the reader by `poll`, and given back when the reader polls again: by then it has
committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping

from penstock.client.decode import FetchedChunk
from penstock.client.errors import (
    Closed,
    InvalidArgument,
    PenstockError,
    Unavailable,
    in_our_words,
    of_broker_error,
)
from penstock.client.home import (
    LATEST,
    Change,
    Polled,
    Rebalanced,
    Start,
    StreamOptions,
    start_timestamp,
)
from penstock.client.local_member import Expelled, LocalMember, Places
from penstock.errors import BrokerError, OffsetOutOfRange, UnknownTopicOrPartition
from penstock.model.ids import TopicPartition
from penstock.services.groups import Groups
from penstock.services.partitions import Partitions
from penstock.services.replica import Replica
from penstock.services.topics import Topics

_CHUNK_BYTES = 1024 * 1024
_POLL_BYTES = 4 * _CHUNK_BYTES
_FINISH_SECONDS = 10.0
_BEAT_SECONDS = 0.5  # how soon changes made by members in other processes are seen
_UNSTABLE_SECONDS = 0.01


class LocalStream:
    """One reader. All of it runs on the broker's loop, but for `wake`."""

    def __init__(
        self,
        options: StreamOptions,
        groups: Groups,
        topics: Topics,
        partitions: Partitions,
        tell_peers: Callable[[LocalStream], None],
    ) -> None:
        self.options = options
        self._groups = groups
        self._topics = topics
        self._partitions = partitions
        self._tell_peers = tell_peers
        self._loop = asyncio.get_running_loop()
        self.member: LocalMember | None = None
        if options.group is not None:
            self.member = LocalMember(groups, topics, options.group, options)
        self._pattern = re.compile(options.pattern) if options.pattern is not None else None
        self._positions: dict[TopicPartition, int] = {}
        self._watched: dict[TopicPartition, Replica] = {}
        self._paused: set[TopicPartition] = set()
        self._news: list[Rebalanced] = []
        self._moved = asyncio.Event()  # there may be something for `poll`
        self._beat_now = asyncio.Event()
        self._accepted: Places | None = None  # what the member tells with its next heartbeat
        self._revoking: Places = frozenset()
        self._failure: PenstockError | None = None
        self._is_closed = False
        self._polled_at = self._loop.time()
        self._task = self._loop.create_task(self._follow(), name=f"stream of {options.group}")

    def __repr__(self) -> str:
        return f"<LocalStream {self.options.topics} {self.member} {self._positions}>"

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # --- which partitions -------------------------------------------------------------------------

    async def _follow(self) -> None:
        """In the background: keep up with what there is to read."""
        while not self._is_closed:
            self._beat_now.clear()
            try:
                if self.member is None:
                    await self._read_everything()
                else:
                    await self._take_part(self.member)
            except BrokerError as failure:
                self._failure = of_broker_error(failure)
            except PenstockError as failure:
                self._failure = failure
            except Exception as failure:
                self._failure = Unavailable(f"the subscription broke down: {failure!r}")
                raise
            finally:
                if self._failure is not None:
                    self._moved.set()
            rest = _BEAT_SECONDS if self.member is not None else None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._beat_now.wait(), rest)

    def beat_soon(self) -> None:
        """A topic or the group has changed: do not wait for the next heartbeat."""
        self._beat_now.set()

    def forget_topic(self, name: str) -> None:
        """The topic was deleted. One of the same name may come, but it is another one."""
        gone = frozenset(place for place in self._positions if place.topic == name)
        if gone:
            self._revoking -= gone
            self._let_go(gone)
            self._tell(Change.LOST, gone)
            if self.member is not None:
                self._accepted = (self._accepted or self.member.owned) - gone
        self._beat_now.set()

    async def _read_everything(self) -> None:
        wanted = frozenset(
            TopicPartition(topic.name, index)
            for topic in self._topics.all()
            if self._is_wanted(topic.name)
            for index in range(topic.partition_count)
        )
        gone = frozenset(self._positions) - wanted
        if gone:
            self._let_go(gone)
            self._tell(Change.LOST, gone)
        await self._take_over(wanted - frozenset(self._positions))

    def _is_wanted(self, name: str) -> bool:
        if self._pattern is None:
            return name in self.options.topics
        return self._pattern.fullmatch(name) is not None and not name.startswith("__")

    async def _take_part(self, member: LocalMember) -> None:
        idle = self._loop.time() - self._polled_at
        if idle > self.options.max_poll_interval:
            if member.epoch:  # whoever does not poll must not keep partitions from the others
                await member.leave()
                self._lose_everything()
                self._tell_peers(self)
            return
        accepted, self._accepted = self._accepted, None
        was = (member.epoch, member.owned)
        try:
            await member.beat(accepted)
        except Expelled:
            self._lose_everything()
            self._beat_now.set()
            return
        target = member.target
        surplus = member.owned - target
        if surplus and not self._revoking:
            self._revoking = surplus
            self._tell(Change.REVOKED, surplus)
        elif not surplus and target - frozenset(self._positions):
            await self._take_over(target - frozenset(self._positions))
            self._accepted = target
            self._beat_now.set()
        if was != (member.epoch, member.owned):
            self._tell_peers(self)

    def _lose_everything(self) -> None:
        lost = frozenset(self._positions)
        self._revoking = frozenset()
        self._accepted = None
        self._news = [news for news in self._news if news.change is Change.LOST]
        if lost:
            self._let_go(lost)
            self._tell(Change.LOST, lost)

    def _tell(self, change: Change, places: Places) -> None:
        positions = {place: self._positions[place] for place in places if place in self._positions}
        self._news.append(Rebalanced(change, tuple(sorted(places)), positions))
        self._moved.set()

    async def _take_over(self, places: Places) -> None:
        if not places:
            return
        positions = await self._first_positions(places)
        for place, position in positions.items():
            replica = await self._partitions.replica(*place)
            replica.watch(self._moved)
            self._watched[place] = replica
            self._positions[place] = position
        self._tell(Change.ASSIGNED, frozenset(positions))

    def _let_go(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self._positions.pop(place, None)
            self._paused.discard(place)
            replica = self._watched.pop(place, None)
            if replica is not None:
                replica.unwatch(self._moved)

    async def _first_positions(self, places: Places) -> dict[TopicPartition, int]:
        committed = await self.committed(places)
        found: dict[TopicPartition, int] = {}
        for place in sorted(places):
            with contextlib.suppress(UnknownTopicOrPartition):  # deleted a moment ago
                at = committed.get(place)
                found[place] = await self._find(place, self.options.start) if at is None else at
        return found

    # --- reading ----------------------------------------------------------------------------------

    def listen(self, listener: Callable[[Rebalanced], None]) -> None:
        """Rebalances come with `poll` here."""

    async def poll(self, timeout: float, max_messages: int) -> Polled:
        deadline = self._loop.time() + timeout
        if self.member is not None and not self.member.epoch:
            self._beat_now.set()  # it was away: join again
        self._give_back()
        while True:
            self._polled_at = self._loop.time()
            if self._is_closed:
                raise Closed("the subscription is closed")
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            self._moved.clear()
            if self._news:
                news, self._news = self._news, []
                return Polled(news)
            polled = await self._fetch()
            if polled.chunks or polled.rebalances:
                return polled
            left = deadline - self._loop.time()
            if left <= 0:
                return Polled()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._moved.wait(), left)

    def _give_back(self) -> None:
        """The reader has been told what is revoked, and has come back: it is done with it."""
        told = not any(news.change is Change.REVOKED for news in self._news)
        if self._revoking and told and self.member is not None:
            revoked, self._revoking = self._revoking, frozenset()
            self._let_go(revoked)
            self._accepted = self.member.owned - revoked
            self._beat_now.set()

    async def _fetch(self) -> Polled:
        chunks: list[FetchedChunk] = []
        resets: list[Rebalanced] = []
        total = 0
        for place in list(self._positions):
            position = self._positions.get(place)
            if position is None or place in self._paused or place in self._revoking:
                continue
            replica = self._watched[place]
            if position == replica.visible_end(self.options.read_committed):
                continue
            try:
                chunk = await read_chunk(
                    replica, place, position, _CHUNK_BYTES, self.options.read_committed
                )
            except OffsetOutOfRange:
                resets.append(await self._reset(place))
                continue
            except BrokerError as failure:
                if self._topics.find(place.topic) is None:
                    continue  # deleted; the heartbeat will say so
                raise of_broker_error(failure) from failure
            if chunk is None or self._positions.get(place) != position:  # moved by a seek meanwhile
                continue
            self._positions[place] = chunk.next_offset
            self._positions[place] = self._positions.pop(place)  # others are first next time
            chunks.append(chunk)
            total += len(chunk.data)
            if total >= _POLL_BYTES:
                break
        return Polled(resets, chunks)

    async def _reset(self, place: TopicPartition) -> Rebalanced:
        """What was to be read next is not there any more: begin again as for the first time."""
        with in_our_words():
            position = await self._find(place, self.options.start)
        self._positions[place] = position
        return Rebalanced(Change.RESET, (place,), {place: position})

    # --- positions --------------------------------------------------------------------------------

    async def find(self, place: TopicPartition, start: Start) -> int:
        with in_our_words():
            return await self._find(place, start)

    async def _find(self, place: TopicPartition, start: Start) -> int:
        replica = await self._partitions.replica(*place)
        return await find_offset(replica, start, read_committed=self.options.read_committed)

    async def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        for place, offset in offsets.items():
            if place not in self._positions:
                raise InvalidArgument(f"{place} is not assigned to this subscription")
            if offset < 0:
                raise InvalidArgument(f"an offset is 0 or more, not {offset}")
            self._positions[place] = offset
        self._moved.set()

    async def pause(self, places: Collection[TopicPartition]) -> None:
        self._paused.update(places)

    async def resume(self, places: Collection[TopicPartition]) -> None:
        self._paused.difference_update(places)
        self._moved.set()

    async def ends(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        with in_our_words():
            replicas = {place: await self._partitions.replica(*place) for place in places}
        committed_only = self.options.read_committed
        return {place: replica.visible_end(committed_only) for place, replica in replicas.items()}

    # --- committed offsets ------------------------------------------------------------------------

    def require_member(self) -> LocalMember:
        if self.member is None:
            raise InvalidArgument(
                "only a subscription with a group can commit: subscribe(group=...)"
            )
        return self.member

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        await self.require_member().commit(offsets)

    async def committed(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if self.member is None:
            return {}
        group = self.member.group
        while True:
            rows = self._groups.offsets.fetch(group, places, require_stable=True)
            # A transaction that is being ended decides what is committed: wait for it.
            if not any(isinstance(found, BrokerError) for _, found in rows):
                break
            await asyncio.sleep(_UNSTABLE_SECONDS)
        return {
            place: found.offset
            for place, found in rows
            if not isinstance(found, BrokerError) and found.offset >= 0
        }

    # --- the end ----------------------------------------------------------------------------------

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(self._moved.set)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._beat_now.set()
        # Not cancelled at once: a member whose joining is broken off would stay in the group.
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await asyncio.wait_for(self._task, _FINISH_SECONDS)
        self._let_go(list(self._positions))
        if self.member is not None:
            with contextlib.suppress(PenstockError):
                await self.member.leave()
        self._moved.set()
        self._tell_peers(self)


async def find_offset(replica: Replica, start: Start, *, read_committed: bool) -> int:
    """The offset that a start means; a moment after the last record means the end."""
    end = replica.visible_end(read_committed)
    timestamp = start_timestamp(start)
    if timestamp is None:
        return end if start == LATEST else replica.log.start_offset
    found = await replica.log.find_timestamp(timestamp, upper_offset=end)
    return end if found is None else found.offset


async def read_chunk(
    replica: Replica, place: TopicPartition, position: int, max_bytes: int, read_committed: bool
) -> FetchedChunk | None:
    """Some batches from `position` on, None at the end."""
    chunk = await replica.read(position, max_bytes, read_committed=read_committed, min_one=True)
    if not chunk.data:
        return None
    aborted = []
    if read_committed:
        aborted = replica.log.aborted_between(position, chunk.next_offset)
    return FetchedChunk(place, chunk.data, chunk.next_offset, aborted)
