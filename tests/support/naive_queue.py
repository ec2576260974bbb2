"""A queue as one would write it on a napkin: a list of messages with everything in them.

It is slow and obvious. The property test holds the real machine against it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from penstock.model.queue_journal import (
    Acked,
    Checkpoint,
    DeadLettered,
    Delivered,
    JournalRecord,
    Purged,
    Returned,
)
from penstock.model.queue_settings import QueueSettings


@dataclass
class NaiveMessage:
    offset: int
    priority: int
    published_ms: int
    size: int
    expires_ms: int | None = None
    due_ms: int | None = None
    state: str = "ready"
    count: int = 0
    overdue: bool = False
    holder: str | None = None
    lock_until_ms: int = 0
    released_ms: int | None = None  # when a scheduled message became ready

    @property
    def rank(self) -> tuple[int, int]:
        return -self.priority, self.offset


@dataclass
class NaiveQueue:
    settings: QueueSettings
    messages: list[NaiveMessage] = field(default_factory=list)

    def those(self, state: str) -> list[NaiveMessage]:
        return sorted((m for m in self.messages if m.state == state), key=lambda m: m.rank)

    def publish(self, message: NaiveMessage) -> None:
        message.state = "ready" if message.due_ms is None else "held"
        self.messages.append(message)

    def take(self, limit: int, now_ms: int, holder: str) -> list[int]:
        taken = self.those("ready")[:limit]
        for message in taken:
            message.state = "delivered"
            message.holder = holder
            message.lock_until_ms = now_ms + (self.settings.lock_ms or 0)
        return [message.offset for message in taken]

    def ack(self, offsets: Iterable[int], holder: str) -> None:
        for message in self._held(offsets, holder):
            message.state = "settled"

    def reject(self, offsets: Iterable[int], holder: str) -> None:
        for message in self._held(offsets, holder):
            self._dispose(message)

    def give_back(self, offsets: Iterable[int], holder: str, counted: bool) -> None:
        for message in self._held(offsets, holder):
            self._return(message, counted)

    def tick(self, now_ms: int) -> None:
        ttl = self.settings.message_ttl_ms
        for message in self.messages:
            if message.state == "held" and message.due_ms is not None and message.due_ms <= now_ms:
                message.state = "ready"
                message.released_ms = now_ms
        for message in self.messages:
            if message.state not in ("ready", "delivered"):
                continue
            born_ms = message.published_ms if message.due_ms is None else message.released_ms
            over = ttl is not None and born_ms is not None and born_ms + ttl <= now_ms
            if over or (message.expires_ms is not None and message.expires_ms <= now_ms):
                if message.state == "ready":
                    self._dispose(message)
                else:
                    message.overdue = True
        if self.settings.lock_ms is not None:
            for message in self.messages:
                if message.state == "delivered" and message.lock_until_ms <= now_ms:
                    self._return(message, True)

    def purge(self) -> None:
        for message in self.those("ready"):
            message.state = "settled"

    def make_room(self, demand: int) -> None:
        ready = self.those("ready")
        if self.settings.max_length is not None:
            while len(ready) > self.settings.max_length + demand:
                self._dispose(ready.pop(0))
        if self.settings.max_length_bytes is not None:
            while len(ready) > demand and (
                sum(m.size for m in ready) > self.settings.max_length_bytes
            ):
                self._dispose(ready.pop(0))

    def bury(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.messages[offset].state = "settled"

    def crash(self, journal: Iterable[JournalRecord]) -> None:
        """Everything is as the journal says; what it does not say did not happen."""
        settled, counts, handed = read_journal(journal)
        for message in self.messages:
            message.overdue = False
            message.released_ms = None
            message.holder = None
            message.count = counts.get(message.offset, 0) + (message.offset in handed)
            if message.offset in settled:
                message.state = "settled"
            else:
                message.state = "ready" if message.due_ms is None else "held"

    def _held(self, offsets: Iterable[int], holder: str) -> list[NaiveMessage]:
        return [
            message
            for message in (self.messages[offset] for offset in sorted(set(offsets)))
            if message.state == "delivered"
            and (self.settings.lock_ms is None or message.holder == holder)
        ]

    def _return(self, message: NaiveMessage, counted: bool) -> None:
        limit = self.settings.delivery_limit
        too_often = counted and limit is not None and message.count + 1 > limit
        if too_often or message.overdue:
            self._dispose(message)
            return
        message.state = "ready"
        message.count += counted

    def _dispose(self, message: NaiveMessage) -> None:
        message.state = "dying" if self.settings.dead_letters else "settled"


def read_journal(
    journal: Iterable[JournalRecord],
) -> tuple[set[int], dict[int, int], set[int]]:
    """(settled, counts, handed out and not heard of since), offset by offset."""
    settled: set[int] = set()
    counts: dict[int, int] = {}
    handed: set[int] = set()
    for record in journal:
        match record:
            case Acked(ranges) | DeadLettered(ranges) | Purged(ranges):
                for low, high in ranges:
                    settled.update(range(low, high))
            case Returned(counted):
                for low, high, count in counted:
                    counts.update(dict.fromkeys(range(low, high), count))
                    handed.difference_update(range(low, high))
            case Delivered(ranges):
                for low, high in ranges:
                    for offset in range(low, high):
                        if offset in handed:
                            counts[offset] = counts.get(offset, 0) + 1
                        handed.add(offset)
            case Checkpoint():
                settled = set(range(record.floor))
                for low, high in record.settled:
                    settled.update(range(low, high))
                counts = {
                    offset: count
                    for low, high, count in record.returned
                    for offset in range(low, high)
                }
                handed = {offset for low, high in record.delivered for offset in range(low, high)}
    return settled, counts, handed
