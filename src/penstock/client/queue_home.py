"""What the library needs of a home that has queues.

As in `home.py`, everything that may take time is a coroutine and is run by the home. Settling is
not: `ack` and its kin are plain calls from any thread, and are over when the home has heard them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from penstock.client.errors import InvalidArgument
from penstock.client.message import Message, Seconds, milliseconds
from penstock.client.outgoing import Settle

Arguments = Mapping[str, object]

DELAY_EXCHANGE = "penstock.delayed"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """What `Client.queue` was asked for. All at their defaults: take the queue as it is."""

    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    max_priority: int | None = None
    ttl: Seconds | None = None
    expires: Seconds | None = None
    max_length: int | None = None
    max_length_bytes: int | None = None
    overflow: str | None = None
    dead_letter: bool | str | None = None
    max_deliveries: int | None = None
    visibility_timeout: Seconds | None = None
    deduplication_window: Seconds | None = None
    single_active: bool = False
    retention: Seconds | None = None
    arguments: Arguments | None = None

    def dead_letter_queue(self, name: str) -> str | None:
        """Where messages go that cannot be handled; None when they are dropped."""
        if isinstance(self.dead_letter, str):
            return self.dead_letter
        if self.dead_letter is None:
            return None if self.exclusive or self.auto_delete else f"{name}.dlq"
        return f"{name}.dlq" if self.dead_letter else None

    def as_arguments(self, name: str) -> dict[str, object]:
        """The same as the arguments of an AMQP queue."""
        found: dict[str, object] = dict(self.arguments or {})
        if self.max_priority is not None:
            if not 1 <= self.max_priority <= 255:
                raise InvalidArgument(f"max_priority is 1 to 255, not {self.max_priority}")
            found["x-max-priority"] = self.max_priority
        spans = {
            "x-message-ttl": self.ttl,
            "x-expires": self.expires,
            "x-consumer-timeout": self.visibility_timeout,
            "x-deduplication-window-ms": self.deduplication_window,
            "x-retention-ms": self.retention,
        }
        for key, span in spans.items():
            if span is not None:
                found[key] = milliseconds(span, key.removeprefix("x-"))
        numbers = {
            "x-max-length": self.max_length,
            "x-max-length-bytes": self.max_length_bytes,
            "x-delivery-limit": _limit(self.max_deliveries),
        }
        found |= {key: number for key, number in numbers.items() if number is not None}
        if self.deduplication_window is not None:
            found["x-message-deduplication"] = True
        if self.overflow is not None:
            found["x-overflow"] = _overflow(self.overflow)
        if self.single_active:
            found["x-single-active-consumer"] = True
        target = self.dead_letter_queue(name)
        if target is not None:
            found |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target}
        return found


def _limit(max_deliveries: int | None) -> int | None:
    if max_deliveries is None:
        return None
    if max_deliveries < 1:
        raise InvalidArgument(f"max_deliveries is 1 or more, not {max_deliveries}")
    return max_deliveries - 1  # AMQP counts how often a message came back


def _overflow(policy: str) -> str:
    known = {
        "drop-head": "drop-head",
        "reject": "reject-publish",
        "dead-letter": "reject-publish-dlx",
    }
    if policy not in known:
        raise InvalidArgument(f"overflow is one of {', '.join(known)}, not {policy!r}")
    return known[policy]


DEFAULT_OPTIONS = QueueOptions()


class Posted(NamedTuple):
    """A message for an exchange, ready for the wire. `settle` hears what became of it."""

    exchange: str
    routing_key: str
    properties: bytes
    body: bytes
    settle: Settle


class Taken(NamedTuple):
    """A message that a consumer was given. `token` is how the home knows it."""

    token: int
    delivery_count: int
    exchange: str
    routing_key: str
    properties: bytes
    body: bytes


class QueueStats(NamedTuple):
    """How a queue is doing; None where the server does not tell."""

    name: str
    ready: int
    consumers: int
    in_flight: int | None = None
    scheduled: int | None = None
    oldest_age: float | None = None  # seconds since the first waiting message was published
    size_bytes: int | None = None


class Redriven(NamedTuple):
    """What came of a redrive."""

    moved: int
    homeless: int = 0  # the queue they died in is gone
    refused: int = 0  # the queue they died in has no room


class QueueConsumer(Protocol):
    """A consumer of one queue."""

    async def take(self, timeout: float, max_messages: int) -> Sequence[Taken]:
        """Some messages, waiting for the first; none when the time was too short."""

    def ack(self, token: int) -> None: ...

    def requeue(self, token: int) -> None: ...

    def reject(self, token: int) -> None: ...

    def renew(self, token: int) -> None:
        """Begin the time to handle it anew."""

    def wake(self) -> None:
        """Let a `take` that waits return, from any thread."""

    async def close(self) -> None:
        """Take no more; what is not settled goes back to the queue."""

    def close_soon(self) -> None:
        """The same in the background, from any thread."""


class QueueHome(Protocol):
    """Queues and exchanges."""

    def post(self, posted: Posted) -> None:
        """Send one message, from any thread; it is settled later."""

    async def declare_queue(self, name: str, options: QueueOptions) -> str:
        """Create a queue, or make sure that it is as wanted; its name."""

    async def queue_exists(self, name: str) -> bool: ...

    async def delete_queue(self, name: str) -> int: ...

    async def purge_queue(self, name: str) -> int: ...

    async def queue_names(self) -> list[str]: ...

    async def queue_stats(self, name: str) -> QueueStats: ...

    async def peek(self, name: str, count: int) -> list[Message]: ...

    async def redrive(
        self, name: str, source: str | None, to: str | None, limit: int | None
    ) -> Redriven: ...

    async def consumer(
        self, name: str, prefetch: int, *, exclusive: bool, priority: int
    ) -> QueueConsumer: ...

    async def get(self, name: str) -> tuple[Taken, QueueConsumer] | None:
        """The next message, if there is one now, and who is told what becomes of it."""

    async def declare_exchange(
        self, name: str, kind: str, *, durable: bool, auto_delete: bool, arguments: Arguments
    ) -> None: ...

    async def delete_exchange(self, name: str) -> None: ...

    async def exchange_names(self) -> list[str]: ...

    async def bind(
        self, queue: str, exchange: str, routing_key: str, arguments: Arguments
    ) -> None: ...

    async def unbind(
        self, queue: str, exchange: str, routing_key: str, arguments: Arguments
    ) -> None: ...

    async def close_queues(self) -> None:
        """End every consumer."""
