"""Topics being read over the network: librdkafka's consumer.

Everything blocks and runs in the thread that called, which is where rebalances are told too: inside
`poll`, for librdkafka must know what becomes of the partitions before it goes on. Positions are
ours: a partition is assigned with the offset to begin at, so that both homes begin at the same.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.client.errors import Closed, Conflict, InvalidArgument, PenstockError
from penstock.client.home import (
    EARLIEST,
    LATEST,
    Change,
    Polled,
    Rebalanced,
    Start,
    StreamOptions,
)
from penstock.client.message import Message
from penstock.client.remote_errors import kafka_errors, of_kafka_error
from penstock.client.remote_settings import RemoteSettings
from penstock.model.ids import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_LOOK_SECONDS = 1.0  # how often a stream without a group looks for new topics
# Passing troubles that librdkafka deals with by itself.
_BEARABLE = {
    "_ALL_BROKERS_DOWN",
    "_TRANSPORT",
    "_RESOLVE",
    "_TIMED_OUT",
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "_UNKNOWN_PARTITION",
    "_MAX_POLL_EXCEEDED",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "UNKNOWN_TOPIC_ID",
}


class MessageChunk:
    """Messages of one partition."""

    __slots__ = ("_messages", "next_offset", "place")

    def __init__(self, place: TopicPartition, messages: list[Message], next_offset: int) -> None:
        self.place = place
        self.next_offset = next_offset
        self._messages = messages

    def messages(self) -> list[Message]:
        return self._messages


def to_message(received: Any) -> Message:
    """librdkafka's message as ours."""
    return Message.stored(
        received.topic(),
        received.partition(),
        received.offset(),
        received.timestamp()[1],
        received.key(),
        received.value(),
        received.headers() or (),
    )


class RemoteStream:
    """One consumer."""

    def __init__(
        self,
        options: StreamOptions,
        settings: RemoteSettings,
        new_groups: bool,
        find_offsets: Callable[[Mapping[TopicPartition, Start], bool], dict[TopicPartition, int]],
    ) -> None:
        from confluent_kafka import Consumer

        self.options = options
        self._timeout = settings.timeout
        self._find_offsets = find_offsets
        config = settings.consumer(
            options.group or f"penstock-{uuid.uuid4()}", new_groups=new_groups
        )
        config["isolation.level"] = (
            "read_committed" if options.read_committed else "read_uncommitted"
        )
        config["auto.offset.reset"] = LATEST if options.start == LATEST else EARLIEST
        config["max.poll.interval.ms"] = max(1_000, round(options.max_poll_interval * 1000))
        if not new_groups:
            config.setdefault("session.timeout.ms", min(45_000, config["max.poll.interval.ms"]))
        if options.instance_id is not None:
            config["group.instance.id"] = options.instance_id
        with kafka_errors("subscribing"):
            self._consumer: Consumer = Consumer(config)
        self._listener: Callable[[Rebalanced], None] = lambda news: None
        self._positions: dict[TopicPartition, int] = {}
        self._is_assigning = False
        self._turn = threading.RLock()
        self._is_closed = False
        self._look_at = 0.0
        self._pattern = re.compile(options.pattern) if options.pattern is not None else None
        if options.group is not None:
            self._subscribe(options)

    def _subscribe(self, options: StreamOptions) -> None:
        # A pattern is one to librdkafka when it begins with a caret.
        names = [_anchored(options.pattern)] if options.pattern is not None else [*options.topics]
        with kafka_errors("subscribing"):
            self._consumer.subscribe(
                names, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )

    def __repr__(self) -> str:
        return f"<RemoteStream {self.options.topics} {self.options.group}>"

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    # --- rebalances, inside of poll ---------------------------------------------------------------

    def listen(self, listener: Callable[[Rebalanced], None]) -> None:
        self._listener = listener

    def _assigned(self, consumer: Any, partitions: Sequence[Any]) -> None:
        if self._is_closed:  # the others' rebalance came in while closing, which answers nothing
            consumer.incremental_assign([])
            return
        places = _places(partitions)
        self._take_over(places, self._committed(places))
        consumer.incremental_assign(_partitions({p: self._positions[p] for p in places}))

    def _take_over(
        self, places: Sequence[TopicPartition], committed: Mapping[TopicPartition, int]
    ) -> None:
        if not places:
            return
        unknown = [place for place in places if place not in committed]
        self._positions |= {place: committed[place] for place in places if place in committed}
        self._positions |= self._find(unknown, self.options.start)
        self._is_assigning = True  # a listener that seeks changes where we begin
        try:
            positions = {place: self._positions[place] for place in places}
            self._listener(Rebalanced(Change.ASSIGNED, tuple(places), positions))
        finally:
            self._is_assigning = False

    def _revoked(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._gone(Change.REVOKED, _places(partitions))
        consumer.incremental_unassign(list(partitions))

    def _lost(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._gone(Change.LOST, _places(partitions))
        consumer.incremental_unassign(list(partitions))

    def _gone(self, change: Change, places: Sequence[TopicPartition]) -> None:
        if places and not self._is_closed:
            self._listener(Rebalanced(change, tuple(places), {}))
        for place in places:
            self._positions.pop(place, None)

    def _read_everything(self) -> None:
        """Without a group: every partition of the topics, also of those that come later."""
        if time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + _LOOK_SECONDS
        with kafka_errors("reading"):
            topics = self._consumer.list_topics(timeout=self._timeout).topics
        wanted = {
            TopicPartition(name, index)
            for name, topic in topics.items()
            if self._is_wanted(name) and topic.error is None
            for index in topic.partitions
        }
        gone = sorted(set(self._positions) - wanted)
        fresh = sorted(wanted - set(self._positions))
        if gone:
            self._gone(Change.LOST, gone)
        if fresh:
            self._take_over(fresh, {})
        if gone or fresh:
            with kafka_errors("reading"):
                self._consumer.assign(_partitions(self._positions))

    def _is_wanted(self, name: str) -> bool:
        if self._pattern is None:
            return name in self.options.topics
        return self._pattern.fullmatch(name) is not None and not name.startswith("__")

    # --- reading ----------------------------------------------------------------------------------

    async def poll(self, timeout: float, max_messages: int) -> Polled:
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            with self._turn:
                if self._is_closed:
                    raise Closed("the subscription is closed")
                if self.options.group is None:
                    self._read_everything()
                with kafka_errors("reading"):
                    # To wait for many at once would wait for all of them.
                    received = self._consumer.consume(1, max(0.0, min(left, 0.1)))
                    if received:
                        received += self._consumer.consume(max_messages, 0)
                polled = self._sorted(received)
            if polled.chunks or polled.rebalances or left <= 0:
                return polled

    def _sorted(self, received: Iterable[Any]) -> Polled:
        by_place: dict[TopicPartition, list[Message]] = {}
        ends: dict[TopicPartition, int] = {}
        resets: list[Rebalanced] = []
        for each in received:
            error = each.error()
            place = TopicPartition(each.topic() or "", each.partition())
            if error is None:
                # Further back than where we were: that was not there any more, librdkafka went on.
                if place not in by_place and each.offset() < self._positions.get(place, 0):
                    resets.append(self._went_back(place, each.offset()))
                by_place.setdefault(place, []).append(to_message(each))
            elif error.name() == "_PARTITION_EOF":
                ends[place] = each.offset()
            elif error.name() not in _BEARABLE:
                raise of_kafka_error(error, "reading")
        chunks = []
        for place in {**by_place, **ends}:
            messages = by_place.get(place, [])
            next_offset = messages[-1].offset + 1 if messages else -1
            next_offset = max(next_offset, ends.get(place, -1))
            if place in self._positions and next_offset > self._positions[place]:
                self._positions[place] = next_offset
                chunks.append(MessageChunk(place, messages, next_offset))
        return Polled(resets, chunks)

    def _went_back(self, place: TopicPartition, position: int) -> Rebalanced:
        self._positions[place] = position
        return Rebalanced(Change.RESET, (place,), {place: position})

    # --- positions --------------------------------------------------------------------------------

    async def find(self, place: TopicPartition, start: Start) -> int:
        return self._find([place], start)[place]

    def _find(self, places: Collection[TopicPartition], start: Start) -> dict[TopicPartition, int]:
        return self._find_offsets(dict.fromkeys(places, start), self.options.read_committed)

    async def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        for place, offset in offsets.items():
            if place not in self._positions:
                raise InvalidArgument(f"{place} is not assigned to this subscription")
            if offset < 0:
                raise InvalidArgument(f"an offset is 0 or more, not {offset}")
            self._positions[place] = offset
            if not self._is_assigning:
                self._move(place, offset)

    def _move(self, place: TopicPartition, offset: int) -> None:
        """A partition that was assigned a moment ago cannot be moved yet; soon it can."""
        [target] = _partitions({place: offset})
        deadline = time.monotonic() + self._timeout
        self._positions[place] = offset
        while True:
            try:
                with self._turn, kafka_errors(f"moving in {place}"):
                    self._consumer.seek(target)
                return
            except PenstockError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.02)

    async def pause(self, places: Collection[TopicPartition]) -> None:
        with kafka_errors("pausing"):
            self._consumer.pause(_partitions(dict.fromkeys(places, -1001)))

    async def resume(self, places: Collection[TopicPartition]) -> None:
        with kafka_errors("resuming"):
            self._consumer.resume(_partitions(dict.fromkeys(places, -1001)))

    async def ends(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._find(places, LATEST)

    # --- committed offsets ------------------------------------------------------------------------

    def require_group(self) -> str:
        if self.options.group is None:
            raise InvalidArgument(
                "only a subscription with a group can commit: subscribe(group=...)"
            )
        return self.options.group

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.require_group()
        for attempt in range(5):
            try:
                with kafka_errors("committing"):
                    answers = self._consumer.commit(
                        offsets=_partitions(offsets), asynchronous=False
                    )
                for answer in answers or ():
                    if answer.error is not None:
                        raise of_kafka_error(answer.error, "committing")
                return
            except Conflict:  # a rebalance is under way and its epoch not heard of yet
                if attempt == 4:
                    raise
            time.sleep(0.05)

    async def committed(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self._committed(places) if self.options.group is not None else {}

    def _committed(self, places: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        if not places:
            return {}
        with kafka_errors("asking for committed offsets"):
            rows = self._consumer.committed(
                _partitions(dict.fromkeys(places, -1001)), timeout=self._timeout
            )
        return {
            TopicPartition(row.topic, row.partition): row.offset for row in rows if row.offset >= 0
        }

    def group_metadata(self) -> Any:
        """Who this member is, for a transaction that commits its offsets."""
        self.require_group()
        with kafka_errors("committing"):
            return self._consumer.consumer_group_metadata()

    # --- the end ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """A poll never waits for long."""

    async def close(self) -> None:
        with self._turn:
            if self._is_closed:
                return
            self._is_closed = True
            with kafka_errors("closing"):
                self._consumer.close()


def _anchored(pattern: str) -> str:
    return f"^({pattern})$"


def _places(partitions: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in partitions]


def _partitions(offsets: Mapping[TopicPartition, int]) -> list[Any]:
    from confluent_kafka import TopicPartition as KafkaPartition

    return [KafkaPartition(*place, offset) for place, offset in offsets.items()]
