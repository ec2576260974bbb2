"""Dead letters: where they lie, which of them are meant, and their way back to where they died.

A redriven message is taken from the queue of dead letters, copied to the queue that it died in,
safe there, and only then acknowledged where it lay. A crash in between leaves it in both, the copy
with its `penstock.source`. It goes back as it was before it died: the exchange and routing key it
was published with, and no `x-death`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from penstock.errors import BrokerError, PreconditionFailed
from penstock.model.binding import Destination
from penstock.model.death import deaths, without_death
from penstock.model.message_properties import parse
from penstock.model.offset_ranges import Range
from penstock.model.queue_arguments import STREAM
from penstock.model.queue_record import SOURCE, Message
from penstock.model.records import Headers
from penstock.services.live_queue import LiveQueue
from penstock.services.queue import Queue
from penstock.services.queue_pages import Entry
from penstock.services.vhost import VirtualHost

_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Grave:
    """What a dead letter says of its last death."""

    queue: str
    reason: str
    exchange: str
    routing_key: str
    time_s: int
    count: int


def grave_of(properties: bytes) -> Grave | None:
    """Where and why a message died last; None when it is no dead letter."""
    found = deaths(parse(properties))
    if not found:
        return None
    last = found[0]
    keys = last.get("routing-keys")
    key = keys[0] if isinstance(keys, list) and keys else ""
    time_s, count = last.get("time"), last.get("count")
    return Grave(
        str(last.get("queue", "")),
        str(last.get("reason", "")),
        str(last.get("exchange", "")),
        str(key),
        time_s if isinstance(time_s, int) else 0,
        count if isinstance(count, int) else 1,
    )


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters are meant: those of which everything that is given here is true."""

    queue: str | None = None  # where it died
    reason: str | None = None  # rejected, expired, maxlen, delivery_limit
    routing_key: str | None = None  # with which it was published
    text: bytes | None = None  # somewhere in the body
    offsets: frozenset[int] | None = None  # in the queue of dead letters

    def accepts(self, offset: int, body: bytes | bytearray | memoryview, grave: Grave) -> bool:
        return (
            self.queue in (None, grave.queue)
            and self.reason in (None, grave.reason)
            and self.routing_key in (None, grave.routing_key)
            and (self.offsets is None or offset in self.offsets)
            and (self.text is None or self.text in bytes(body))
        )


@dataclass(slots=True)
class Redriven:
    """What came of a redrive."""

    moved: int = 0
    homeless: int = 0  # the queue they died in is gone
    refused: int = 0  # the queue they died in has no room

    @property
    def tried(self) -> int:
        return self.moved + self.homeless + self.refused


_Letter = tuple[int, Entry, Grave]  # with its offset


class _Redrive:
    """One redrive of one queue."""

    def __init__(self, vhost: VirtualHost, live: LiveQueue, wanted: Filter, to: str | None) -> None:
        self._vhost = vhost
        self._live = live
        self._queue = live.queue
        self._wanted = wanted
        self._to = to
        self._kept: list[Range] = []  # looked at, and to be given back
        self.result = Redriven()

    async def run(self, limit: int | None) -> None:
        """Look at everything that is ready now, and send back what is wanted."""
        machine = self._live.machine
        left = machine.ready
        try:
            while left > 0 and not self._live.is_closed:
                now_ms = self._queue.host.clock.now_ms()
                ranges = machine.take(min(_AT_ONCE, left), now_ms, self)
                if not ranges:
                    return
                self._kept += ranges
                left -= sum(high - low for low, high in ranges)
                room = _AT_ONCE if limit is None else limit - self.result.tried
                await self._move(await self._read(ranges, room))
                if limit is not None and self.result.tried >= limit:
                    return
        finally:
            self._give_back()

    async def _read(self, ranges: Sequence[Range], limit: int) -> list[_Letter]:
        """The wanted dead letters among these messages."""
        found: list[_Letter] = []
        for low, high in ranges:
            for offset in range(low, high):
                place = self._live.machine.state.place_of(offset)
                entry = await self._live.log.entry_or_wait(place)
                grave = grave_of(entry.properties) if entry is not None else None
                if entry is None or grave is None or len(found) >= limit:
                    continue
                if self._wanted.accepts(offset, entry.body, grave):
                    found.append((offset, entry, grave))
        return found

    async def _move(self, letters: Sequence[_Letter]) -> None:
        """Send these back; those that cannot go stay where they are."""
        groups: dict[str, list[_Letter]] = {}
        for letter in letters:
            groups.setdefault(self._to or letter[2].queue, []).append(letter)
        for name, group in groups.items():
            target = self._vhost.queues.get(name)
            if target is None:
                self.result.homeless += len(group)
            else:
                await self._move_to(target, group)

    async def _move_to(self, target: Queue, group: Sequence[_Letter]) -> None:
        messages: list[Message] = []
        extras: list[Headers | None] = []
        for offset, entry, grave in group:
            properties = without_death(entry.properties)
            messages.append(Message(grave.exchange, grave.routing_key, properties, entry.body))
            extras.append([(SOURCE, self._live.log.source(offset))])
        enqueued = target.enqueue(messages, None, extras)
        refused = set(enqueued.refused)
        if enqueued.future is not None:
            try:
                refused.update(await enqueued.future or ())
            except BrokerError:
                refused.update(range(len(group)))
        moved = [letter[0] for at, letter in enumerate(group) if at not in refused]
        self.result.refused += len(refused)
        self.result.moved += len(moved)
        if moved and not self._live.is_closed:
            self._live.ack(moved, None)

    def _give_back(self) -> None:
        """What was only looked at is ready again, in its old place, as if nothing had been."""
        if self._live.is_closed:
            return
        offsets = [offset for low, high in self._kept for offset in range(low, high)]
        outcome = self._live.machine.give_back(offsets, counted=False)
        for letters in outcome.dead:  # they expired meanwhile
            self._queue.host.bury(self._queue, letters)
        self._live.wake()


async def redrive(
    vhost: VirtualHost,
    queue: Queue,
    wanted: Filter,
    *,
    limit: int | None = None,
    to: str | None = None,
) -> Redriven:
    """Send the dead letters that are ready now back to where they died, or to another queue.

    While it goes on, the messages it has looked at are not given to consumers of this queue.
    """
    if queue.rules.kind == STREAM:
        raise PreconditionFailed(f"{queue.where} is a stream: nothing is taken out of it")
    if to is not None:
        vhost.queue(to)
    live = await queue.wake()
    work = _Redrive(vhost, live, wanted, to)
    await work.run(limit)
    if not live.is_closed:
        await live.journal.write_safely()
    return work.result


# --- which queues hold dead letters ---------------------------------------------------------------


def resting_places(vhost: VirtualHost) -> dict[str, list[str]]:
    """The queues that dead letters can reach, each with the queues that they come from."""
    found: dict[str, list[str]] = {}
    for queue in vhost.queues.values():
        for target in dict.fromkeys(_targets(vhost, queue)):
            if target in vhost.queues:
                found.setdefault(target, []).append(queue.name)
    return found


def _targets(vhost: VirtualHost, queue: Queue) -> Iterator[str]:
    exchange, key = queue.rules.dead_letter_exchange, queue.rules.dead_letter_routing_key
    if exchange is None:
        return
    if exchange == "":
        if key is not None:  # without a key they would go to the queue they were published to
            yield key
        return
    if key is not None:
        yield from vhost.exchanges.route(exchange, key, _NO_CONTENT).queues
        return
    yield from _reachable(vhost, exchange, set())


def _reachable(vhost: VirtualHost, exchange: str, visited: set[str]) -> Iterable[str]:
    """Every queue that some message to the exchange could get into."""
    found = vhost.exchanges.get(exchange)
    if found is None or exchange in visited:
        return []
    visited.add(exchange)
    queues: list[str] = []
    for binding in found.bindings:
        target: Destination = binding.destination
        if target.is_exchange:
            queues += _reachable(vhost, target.name, visited)
        else:
            queues.append(target.name)
    return queues


class _NoContent:
    """A message of which nothing is known but its routing key."""

    def headers(self) -> dict[str, object]:
        return {}

    def property(self, name: str) -> object | None:
        return None


_NO_CONTENT = _NoContent()
