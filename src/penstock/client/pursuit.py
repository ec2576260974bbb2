"""What both faces of a subscription share: options, progress, and when to commit.

The faces only wait. Each turn of theirs is: `finish` what was handed out, commit if it is `due`,
look for the `next` message, else poll the stream and let `rebalanced` and `fetched` take what came.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.client.arguments import INT_MAX, check_seconds, check_text, check_whole
from penstock.client.errors import Closed, InvalidArgument
from penstock.client.filter import Filter, find_filter
from penstock.client.home import (
    Change,
    GroupProgress,
    Home,
    Polled,
    Rebalanced,
    Start,
    Stream,
    StreamOptions,
    start_timestamp,
)
from penstock.client.message import Message
from penstock.client.progress import Progress, changed
from penstock.model.ids import TopicPartition

POLL_SECONDS = 0.5  # the longest wait in one piece
MOST_MESSAGES = 10_000  # in one poll


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOptions:
    """What `subscribe` was asked for, checked."""

    stream: StreamOptions
    auto_commit: bool
    auto_commit_interval: float
    wanted: Filter | None
    keep_expired: bool
    idle_timeout: float | None


def check_options(
    topics: str | Sequence[str] | None,
    *,
    pattern: str | re.Pattern[str] | None,
    group: str | None,
    start: Start,
    auto_commit: bool,
    auto_commit_interval: float,
    wanted: str | Filter | None,
    keep_expired: bool,
    isolation: str,
    instance_id: str | None,
    max_poll_interval: float,
    idle_timeout: float | None,
    client_id: str,
) -> SubscribeOptions:
    """Refuse what cannot be meant, before a stream is opened for it."""
    names = _names(topics)
    if bool(names) == (pattern is not None):
        raise InvalidArgument("subscribe to topics by name or by pattern: give one of the two")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise InvalidArgument(
            f'isolation is "read_committed" or "read_uncommitted", not {isolation!r}'
        )
    if instance_id is not None and group is None:
        raise InvalidArgument("an instance_id names a member of a group: give the group too")
    if group is not None:
        check_text(group, "a group")
    check_seconds(idle_timeout, "idle_timeout")
    start_timestamp(start)
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if text is not None:
        try:
            re.compile(text)
        except re.error as failure:
            raise InvalidArgument(f"the pattern {text!r} cannot be read: {failure}") from None
    return SubscribeOptions(
        stream=StreamOptions(
            topics=names,
            pattern=text,
            group=group,
            start=start,
            read_committed=isolation == "read_committed",
            instance_id=instance_id,
            max_poll_interval=max_poll_interval,
            client_id=client_id,
        ),
        auto_commit=auto_commit and group is not None,
        auto_commit_interval=auto_commit_interval,
        wanted=find_filter(wanted),
        keep_expired=keep_expired,
        idle_timeout=idle_timeout,
    )


def _names(topics: str | Sequence[str] | None) -> tuple[str, ...]:
    names = (topics,) if isinstance(topics, str) or topics is None else topics
    if not isinstance(names, Iterable):
        raise InvalidArgument(f"topics are a name or a list of names, not {topics!r}")
    found = tuple(name for name in names if name is not None)
    for name in found:
        check_text(name, "a topic")
    return found


def checked_place(topic: str, partition: int, offset: int | Start = 0) -> TopicPartition:
    """The partition that somebody wants to read."""
    check_text(topic, "a topic")
    check_whole(partition, "a partition", most=INT_MAX)
    if isinstance(offset, int):
        check_whole(offset, "an offset")
    return TopicPartition(topic, partition)


def sought(topic: str, partition: int, offset: int) -> dict[TopicPartition, int]:
    """Where somebody wants to read on; a moment is not an offset."""
    check_whole(offset, "an offset")
    return {checked_place(topic, partition): offset}


def chosen(places: Collection[tuple[str, int]]) -> list[TopicPartition]:
    """Some partitions, each a topic and a number.

    >>> chosen("orders")
    Traceback (most recent call last):
    penstock.client.errors.InvalidArgument: partitions are a list like [("orders", 0)], not 'orders'
    """
    if not all(isinstance(place, tuple) and len(place) == 2 for place in places):
        raise InvalidArgument(f'partitions are a list like [("orders", 0)], not {places!r}')
    return [checked_place(*place) for place in places]


class Told(NamedTuple):
    """A rebalance that the user's callback is to hear of, and what to commit before."""

    rebalanced: Rebalanced
    commit: Mapping[TopicPartition, int]


class Pursuit:
    """The state of one subscription."""

    def __init__(self, home: Home, stream: Stream, options: SubscribeOptions) -> None:
        self.home = home
        self.stream = stream
        self.options = options
        self.progress = Progress(options.wanted, keep_expired=options.keep_expired)
        self.is_closed = False
        self._committed: dict[TopicPartition, int] = {}
        self._assigned: dict[TopicPartition, None] = {}
        self._paused: set[TopicPartition] = set()
        self._commit_at = time.monotonic() + options.auto_commit_interval

    def __repr__(self) -> str:
        stream = self.options.stream
        what = stream.pattern or ",".join(stream.topics)
        return f"{what} group={stream.group} {sorted(map(str, self._assigned))}"

    @property
    def assignment(self) -> list[TopicPartition]:
        return sorted(self._assigned)

    # --- handing out ------------------------------------------------------------------------------

    def next(self) -> Message | None:
        """The next message that is here already."""
        return self.progress.next(self.home.now_ms())

    def wait_seconds(self, left: float | None) -> float:
        """How long the next poll may wait."""
        wait = POLL_SECONDS if left is None else max(0.0, min(left, POLL_SECONDS))
        due_ms = self.progress.next_due_ms()
        if due_ms is not None:
            wait = min(wait, max(0.0, (due_ms - self.home.now_ms()) / 1000))
        return wait

    def fetched(self, polled: Polled) -> None:
        """Chunks have come."""
        now_ms = self.home.now_ms()
        for chunk in polled.chunks:
            self.progress.take(chunk, now_ms)

    # --- rebalances -------------------------------------------------------------------------------

    def rebalanced(self, news: Rebalanced) -> Told:
        """Partitions came or go: what to commit first and whom to tell."""
        commit: dict[TopicPartition, int] = {}
        if news.change in (Change.ASSIGNED, Change.RESET):
            for place in news.places:
                self.progress.begin(place, news.positions[place])
                self._assigned[place] = None
        else:
            if news.change is Change.REVOKED and self.options.auto_commit:
                commit = self.uncommitted(news.places)
        return Told(news, commit)

    def gone(self, news: Rebalanced) -> None:
        """The user knows that these partitions are gone."""
        if news.change in (Change.REVOKED, Change.LOST):
            for place in news.places:
                self.progress.end(place)
                self._assigned.pop(place, None)
                self._committed.pop(place, None)
                self._paused.discard(place)

    # --- committing -------------------------------------------------------------------------------

    def uncommitted(
        self, places: Iterable[TopicPartition] | None = None, *, with_current: bool = False
    ) -> dict[TopicPartition, int]:
        """Positions that the group does not remember yet."""
        positions = self.progress.positions(with_current=with_current)
        if places is not None:
            positions = {place: positions[place] for place in places if place in positions}
        return changed(positions, self._committed)

    def due(self) -> dict[TopicPartition, int]:
        """What to commit now, if commits are automatic and it is time."""
        if not self.options.auto_commit or time.monotonic() < self._commit_at:
            return {}
        self._commit_at = time.monotonic() + self.options.auto_commit_interval
        return self.uncommitted()

    def was_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._committed.update(offsets)

    def to_commit(
        self, what: Message | Mapping[TopicPartition, int] | None
    ) -> dict[TopicPartition, int]:
        """The offsets that a call of `commit` means; by default everything handed out so far."""
        if self.is_closed:
            raise Closed("the subscription is closed: commit before")
        if self.options.stream.group is None:
            raise InvalidArgument(
                "only a subscription with a group can commit: subscribe(group=...)"
            )
        if what is None:
            return self.uncommitted(with_current=True)
        if isinstance(what, Message):
            return {TopicPartition(what.topic, what.partition): what.offset + 1}
        return {TopicPartition(*place): offset for place, offset in what.items()}

    def group_progress(self, what: Message | Mapping[TopicPartition, int] | None) -> GroupProgress:
        """The same for a transaction."""
        return GroupProgress(self.stream, self.to_commit(what))

    # --- moving -----------------------------------------------------------------------------------

    def moved(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The stream reads on from elsewhere."""
        for place, offset in offsets.items():
            self.progress.begin(place, offset)

    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each partition, counting what was handed out as read."""
        return self.progress.positions(with_current=True)
