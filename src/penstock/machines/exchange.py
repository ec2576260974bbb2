"""The exchanges of a virtual host and the bindings among them: where a message goes.

A route is found by walking from the exchange a message was published to: along its bindings, and
on through exchanges that are bound to it, each visited once, so that circles end. An exchange whose
bindings match nothing passes the message to its alternate exchange. Routes that depend on nothing
but the exchange and the routing key are remembered until anything changes.

The default exchange, '', has no bindings: it leads to the queue that the routing key names.
Nothing here knows what a queue is beyond its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.machines.exchange_kinds import (
    DEDUPLICATION_KIND,
    DELAYED_KIND,
    Content,
    Kind,
    new_kind,
)
from penstock.model.binding import Binding, Destination

DEFAULT_EXCHANGE = ""
_MOST_REMEMBERED = 16_384


class Route(NamedTuple):
    """Where a message goes."""

    queues: tuple[str, ...]
    delayed: bool = False  # it came through an exchange that delays
    deduplicated: str | None = None  # the exchange that wants to see each message once
    looked_inside: bool = False  # another message with the same key may go elsewhere


NOWHERE = Route(())


class Exchange:
    """One exchange."""

    __slots__ = (
        "_kind",
        "alternate",
        "arguments",
        "auto_delete",
        "bindings",
        "durable",
        "internal",
        "kind",
        "name",
    )

    def __init__(
        self,
        name: str,
        kind: str,
        *,
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, object],
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments = arguments
        alternate = arguments.get("alternate-exchange")
        self.alternate = alternate if isinstance(alternate, str) else None
        self.bindings: dict[Binding, None] = {}  # from this exchange
        self._kind = new_kind(kind, arguments)

    def __repr__(self) -> str:
        return f"Exchange({self.name!r}, {self.kind}, {len(self.bindings)} bindings)"

    @property
    def delays(self) -> bool:
        return self.kind == DELAYED_KIND

    @property
    def deduplicates(self) -> bool:
        if self.kind == DEDUPLICATION_KIND:
            return True
        return self.arguments.get("x-message-deduplication") is True

    @property
    def matcher(self) -> Kind:
        return self._kind


class Removed(NamedTuple):
    """What went with something: the bindings, and the exchanges that deleted themselves."""

    bindings: Sequence[Binding] = ()
    exchanges: Sequence[str] = ()


class Exchanges:
    """All exchanges and bindings of one virtual host."""

    __slots__ = ("_by_name", "_has_queue", "_remembered", "_to", "version")

    def __init__(self, has_queue: Callable[[str], bool]) -> None:
        self._by_name: dict[str, Exchange] = {}
        self._to: dict[Destination, dict[Binding, None]] = {}
        self._has_queue = has_queue
        self._remembered: dict[tuple[str, str], Route] = {}
        self.version = 0  # grows with every change

    def __iter__(self) -> Iterator[Exchange]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> Exchange | None:
        return self._by_name.get(name)

    def bindings_to(self, destination: Destination) -> Iterable[Binding]:
        return tuple(self._to.get(destination, ()))

    # --- changes ----------------------------------------------------------------------------------

    def changed(self) -> None:
        """Something that routes depend on is different: a queue came or went, a policy changed."""
        self._remembered.clear()
        self.version += 1

    def add(self, exchange: Exchange) -> None:
        assert exchange.name not in self._by_name
        self._by_name[exchange.name] = exchange
        self.changed()

    def remove(self, name: str) -> Removed:
        """The exchange goes, with the bindings from it and to it."""
        exchange = self._by_name.pop(name, None)
        if exchange is None:
            return Removed()
        self.changed()
        gone = list(exchange.bindings)
        for binding in gone:
            self._forget_target(binding)
        more = self.remove_destination(Destination(name, is_exchange=True))
        return Removed([*gone, *more.bindings], [name, *more.exchanges])

    def remove_destination(self, destination: Destination) -> Removed:
        """A queue or exchange is gone: unbind it everywhere."""
        bindings: list[Binding] = []
        exchanges: list[str] = []
        for binding in self.bindings_to(destination):
            removed = self.unbind(binding)
            bindings += removed.bindings
            exchanges += removed.exchanges
        return Removed(bindings, exchanges)

    def bind(self, binding: Binding) -> bool:
        """False when the binding is there already. Raises PreconditionFailed (see `Kind.check`)."""
        exchange = self._by_name[binding.source]
        if binding in exchange.bindings:
            return False
        exchange.matcher.check(binding)
        exchange.bindings[binding] = None
        exchange.matcher.add(binding)
        self._to.setdefault(binding.destination, {})[binding] = None
        self.changed()
        return True

    def unbind(self, binding: Binding) -> Removed:
        """Nothing happens when there is no such binding. An exchange may delete itself."""
        exchange = self._by_name.get(binding.source)
        if exchange is None or binding not in exchange.bindings:
            return Removed()
        del exchange.bindings[binding]
        exchange.matcher.remove(binding)
        self._forget_target(binding)
        self.changed()
        if exchange.auto_delete and not exchange.bindings:
            more = self.remove(exchange.name)
            return Removed([binding, *more.bindings], more.exchanges)
        return Removed([binding])

    def _forget_target(self, binding: Binding) -> None:
        others = self._to.get(binding.destination)
        if others is not None:
            others.pop(binding, None)
            if not others:
                del self._to[binding.destination]

    # --- routing ----------------------------------------------------------------------------------

    def route(self, exchange: str, routing_key: str, content: Content) -> Route:
        """Where a message goes that has no further routing keys (CC, BCC)."""
        route = self._remembered.get((exchange, routing_key))
        if route is not None:
            return route
        route = self._walk(exchange, (routing_key,), content)
        if not route.looked_inside:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[exchange, routing_key] = route
        return route

    def route_all(self, exchange: str, routing_keys: Sequence[str], content: Content) -> Route:
        """Where a message goes that has several routing keys."""
        return self._walk(exchange, routing_keys, content)

    def _walk(self, start: str, routing_keys: Sequence[str], content: Content) -> Route:
        queues: dict[str, None] = {}
        visited = {start: None}
        waiting = [start]
        delayed = looked_inside = False
        while waiting:
            name = waiting.pop(0)
            if name == DEFAULT_EXCHANGE:
                queues.update((key, None) for key in routing_keys if self._has_queue(key))
                continue
            exchange = self._by_name.get(name)
            if exchange is None:
                continue
            delayed = delayed or exchange.delays
            looked_inside = looked_inside or exchange.matcher.looks_inside
            found = list(exchange.matcher.match(routing_keys, content))
            if not found and exchange.alternate is not None:
                found = [Destination(exchange.alternate, is_exchange=True)]
            for target in found:
                if not target.is_exchange:
                    queues[target.name] = None
                elif target.name not in visited:
                    visited[target.name] = None
                    waiting.append(target.name)
        first = self._by_name.get(start)
        deduplicated = start if first is not None and first.deduplicates else None
        return Route(tuple(queues), delayed, deduplicated, looked_inside)
