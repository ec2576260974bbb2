"""Publishing: many messages at once, each to the queues its route names.

All messages of one call that go to the same queue become one batch of its log and one append; the
publication is done when every log it touched is safe, which is one shared sync. Delays, duplicates,
further routing keys (CC, BCC) and direct replies are decided here; everything else by the queues.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.machines.exchange import Route
from penstock.model import message_properties
from penstock.model.message_properties import MessageProperties
from penstock.model.queue_record import DUE, Message, Telling, shown, telling
from penstock.model.records import Headers
from penstock.runtime.clock import Clock
from penstock.services.deduplication import Deduplication
from penstock.services.delays import Delayed, Delays
from penstock.services.live_queue import Enqueued
from penstock.services.replies import REPLY_PREFIX, Replies
from penstock.services.vhost import VirtualHost

_HAS_HEADERS = 0x20  # of the first octet of the property flags


class Publication:
    """What became of messages that were published together."""

    __slots__ = ("_left", "_refused", "future", "refused", "unrouted")

    def __init__(self, unrouted: Sequence[int]) -> None:
        self.unrouted = unrouted  # indexes of those that no queue took
        self.refused: Sequence[int] = ()  # indexes of those that a queue refused, if all is known
        self.future: asyncio.Future[Sequence[int]] | None = None  # gives `refused` when it is
        self._left = 0
        self._refused: set[int] = set()

    async def settled(self) -> Sequence[int]:
        """Wait until every message is safe or refused; the refused ones."""
        return self.refused if self.future is None else await self.future

    def add(self, enqueued: Enqueued, indexes: Sequence[int]) -> None:
        """A queue took messages; `indexes` are theirs in this publication."""
        if enqueued.refused:
            self._refused.update(indexes[at] for at in enqueued.refused)
        if enqueued.future is not None:
            if self.future is None:
                self.future = asyncio.get_running_loop().create_future()
            self._left += 1
            enqueued.future.add_done_callback(lambda safe: self._safe(safe, indexes))

    def close(self) -> None:
        """Every queue has been given its messages."""
        if self.future is None and self._refused:
            self.refused = sorted(self._refused)

    def when_refused(self, tell: Callable[[Sequence[int]], None]) -> None:
        """Tell the indexes of those that a queue refused, once they are known."""

        def done(safe: asyncio.Future[Sequence[int]]) -> None:
            if not safe.cancelled() and safe.exception() is None:
                tell(safe.result())

        if self.future is None:
            tell(self.refused)
        else:
            self.future.add_done_callback(done)

    def _safe(self, safe: asyncio.Future[Any], indexes: Sequence[int]) -> None:
        assert self.future is not None
        self._left -= 1
        failure = safe.exception()
        if failure is not None:
            if not self.future.done():
                self.future.set_exception(failure)
            return
        refused = safe.result()
        if refused:
            self._refused.update(indexes[at] for at in refused)
        if not self._left and not self.future.done():
            self.future.set_result(sorted(self._refused) if self._refused else ())


class _Content:
    """A message's headers and properties, read when a route depends on them."""

    __slots__ = ("_parsed", "_raw")

    def __init__(self) -> None:
        self._raw = b""
        self._parsed: MessageProperties | None = None

    def of(self, raw: bytes) -> _Content:
        self._raw = raw
        self._parsed = None
        return self

    def headers(self) -> Mapping[str, object]:
        return self._properties().headers

    def property(self, name: str) -> object | None:
        if name not in _HASHED:
            return None
        value: object = getattr(self._properties(), name)
        return value

    def _properties(self) -> MessageProperties:
        if self._parsed is None:
            self._parsed = message_properties.parse(self._raw)
        return self._parsed


_HASHED = ("correlation_id", "message_id", "timestamp")


class _Group:
    """The messages of one publication for one queue."""

    __slots__ = ("dues", "indexes", "messages")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.indexes: list[int] = []
        self.dues: dict[int, int] | None = None  # position in the group: when it is due

    def extras(self) -> tuple[list[int | None], list[Headers | None]] | tuple[None, None]:
        if self.dues is None:
            return None, None
        dues = [self.dues.get(at) for at in range(len(self.messages))]
        headers: list[Headers | None] = [
            None if due is None else [(DUE, b"%d" % due)] for due in dues
        ]
        return dues, headers


class Publishing:
    """Publishes into virtual hosts."""

    def __init__(
        self, clock: Clock, deduplication: Deduplication, delays: Delays, replies: Replies
    ) -> None:
        self._clock = clock
        self._deduplication = deduplication
        self._delays = delays
        self._replies = replies

    def publish(self, vhost: VirtualHost, messages: Sequence[Message]) -> Publication:
        """Route all messages and append them to their queues now."""
        first = messages[0]
        exchange, key = first.exchange, first.routing_key
        for message in messages:
            if (
                message.routing_key != key
                or message.exchange != exchange
                or message.properties[0] & _HAS_HEADERS
            ):
                return self._publish_each(vhost, messages)
        # The usual case: a publisher that goes on with the same exchange and key.
        content = _Content().of(first.properties)
        found = vhost.exchanges.route(exchange, key, content)
        if not found.queues or found.looked_inside:
            return self._publish_each(vhost, messages)
        publication = Publication(())
        indexes = range(len(messages))
        for name in found.queues:
            queue = vhost.queues.get(name)
            if queue is not None:
                publication.add(queue.enqueue(messages), indexes)
        publication.close()
        return publication

    def _publish_each(self, vhost: VirtualHost, messages: Sequence[Message]) -> Publication:
        route = vhost.exchanges.route
        content = _Content()
        unrouted: list[int] = []
        groups: dict[str, _Group] = {}
        delayed: list[Delayed] = []
        seen: dict[int, tuple[str, Telling]] = {}  # by an exchange, for the first time
        publication = Publication(unrouted)
        for index, message in enumerate(messages):
            properties = message.properties
            due_ms = None
            if properties[0] & _HAS_HEADERS:
                told = telling(properties)
                found, message = self._route_telling(vhost, message, told, content)
                seen_by = found.deduplicated
                if seen_by is not None:
                    if self._deduplication.is_duplicate(vhost, seen_by, told):
                        continue
                    seen[index] = seen_by, told
                if found.delayed and told.delay_ms:
                    due_ms = self._clock.now_ms() + told.delay_ms
            else:
                found = route(message.exchange, message.routing_key, content.of(properties))
            if not found.queues:
                if not self._reply(message):
                    unrouted.append(index)
                continue
            if due_ms is not None and self._delays.are_long(due_ms):
                delayed.append(Delayed(index, message, found.queues, due_ms))
                continue
            for name in found.queues:
                group = groups.get(name)
                if group is None:
                    group = groups[name] = _Group()
                if due_ms is not None:
                    group.dues = group.dues or {}
                    group.dues[len(group.messages)] = due_ms
                group.messages.append(message)
                group.indexes.append(index)
        for enqueued, indexes in self._delays.hold(vhost, delayed) if delayed else ():
            publication.add(enqueued, indexes)
        for name, group in groups.items():
            queue = vhost.queues.get(name)
            if queue is not None:
                publication.add(queue.enqueue(group.messages, *group.extras()), group.indexes)
        publication.close()
        if seen:
            publication.when_refused(partial(self._forget, vhost, seen))
        return publication

    def _forget(
        self, vhost: VirtualHost, seen: Mapping[int, tuple[str, Telling]], refused: Sequence[int]
    ) -> None:
        """Its publisher will send a refused message again: that is no duplicate."""
        for index in refused:
            if index in seen:
                self._deduplication.forget(vhost, *seen[index])

    def _route_telling(
        self, vhost: VirtualHost, message: Message, told: Telling, content: _Content
    ) -> tuple[Route, Message]:
        content.of(message.properties)
        if told.copies:
            keys = (message.routing_key, *told.copies)
            found = vhost.exchanges.route_all(message.exchange, keys, content)
        else:
            found = vhost.exchanges.route(message.exchange, message.routing_key, content)
        return found, shown(message)

    def _reply(self, message: Message) -> bool:
        """A direct reply goes to its consumer without a queue."""
        key = message.routing_key
        if message.exchange == "" and key.startswith(REPLY_PREFIX):
            return self._replies.deliver(key, message)
        return False
