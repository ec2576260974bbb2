"""How exchanges of each kind choose among their bindings.

    direct               the binding's routing key is the message's
    fanout               every binding
    topic                the binding's key is a pattern (see topic_trie.py)
    headers              the binding's arguments are in the message's headers: x-match=all or any;
                         all-with-x and any-with-x also look at headers that begin with "x-"
    x-consistent-hash    one binding, by a hash of the routing key, a header or a property; the
                         binding's key is its weight

A kind keeps the bindings in the form in which they are looked up. `match` gives destinations, each
at most once. `looks_inside` says that the routing key alone does not decide.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from penstock.errors import PreconditionFailed
from penstock.machines.topic_trie import TopicTrie
from penstock.model.binding import Binding, Destination
from penstock.model.field_table import decode_table
from penstock.model.queue_arguments import type_of


class Content(Protocol):
    """What a kind may look at in a message besides its routing key."""

    def headers(self) -> Mapping[str, object]: ...

    def property(self, name: str) -> object | None: ...


class Kind(Protocol):
    """The bindings of one exchange, ready to be looked up."""

    looks_inside: bool

    def check(self, binding: Binding) -> None:
        """Raises PreconditionFailed when the binding makes no sense for this kind."""

    def add(self, binding: Binding) -> None: ...

    def remove(self, binding: Binding) -> None: ...

    def match(self, routing_keys: Sequence[str], content: Content) -> Iterable[Destination]: ...


def _add_one(targets: dict[Destination, int], target: Destination) -> None:
    targets[target] = targets.get(target, 0) + 1


def _remove_one(targets: dict[Destination, int], target: Destination) -> None:
    if targets[target] > 1:
        targets[target] -= 1
    else:
        del targets[target]


class Direct:
    """By equal routing key."""

    __slots__ = ("_by_key", "looks_inside")

    def __init__(self) -> None:
        self.looks_inside = False
        self._by_key: dict[str, dict[Destination, int]] = {}

    def check(self, binding: Binding) -> None:
        """Any key will do."""

    def add(self, binding: Binding) -> None:
        _add_one(self._by_key.setdefault(binding.routing_key, {}), binding.destination)

    def remove(self, binding: Binding) -> None:
        targets = self._by_key[binding.routing_key]
        _remove_one(targets, binding.destination)
        if not targets:
            del self._by_key[binding.routing_key]

    def match(self, routing_keys: Sequence[str], content: Content) -> Iterable[Destination]:
        if len(routing_keys) == 1:
            return self._by_key.get(routing_keys[0], ())
        found: dict[Destination, None] = {}
        for key in routing_keys:
            found.update(dict.fromkeys(self._by_key.get(key, ())))
        return found


class Fanout:
    """To all."""

    __slots__ = ("_targets", "looks_inside")

    def __init__(self) -> None:
        self.looks_inside = False
        self._targets: dict[Destination, int] = {}

    def check(self, binding: Binding) -> None:
        """Any key will do."""

    def add(self, binding: Binding) -> None:
        _add_one(self._targets, binding.destination)

    def remove(self, binding: Binding) -> None:
        _remove_one(self._targets, binding.destination)

    def match(self, routing_keys: Sequence[str], content: Content) -> Iterable[Destination]:
        return self._targets


class Topic:
    """By pattern."""

    __slots__ = ("_trie", "looks_inside")

    def __init__(self) -> None:
        self.looks_inside = False
        self._trie = TopicTrie()

    def check(self, binding: Binding) -> None:
        """Any key is a pattern."""

    def add(self, binding: Binding) -> None:
        self._trie.add(binding.routing_key, binding.destination)

    def remove(self, binding: Binding) -> None:
        self._trie.remove(binding.routing_key, binding.destination)

    def match(self, routing_keys: Sequence[str], content: Content) -> Iterable[Destination]:
        found: dict[Destination, None] = {}
        for key in routing_keys:
            found.update(dict.fromkeys(self._trie.match(key)))  # type: ignore[arg-type]
        return found


class _Wanted(NamedTuple):
    """The headers that a binding asks for."""

    any_will_do: bool
    headers: tuple[tuple[str, object], ...]

    def fits(self, headers: Mapping[str, object]) -> bool:
        checks = (_same(value, headers, name) for name, value in self.headers)
        return any(checks) if self.any_will_do else all(checks)


def _same(wanted: object, headers: Mapping[str, object], name: str) -> bool:
    if name not in headers:
        return False
    found = headers[name]
    # No value asks only that the header be there. Numbers are compared as numbers, whatever their
    # width or kind, and text as its bytes; but true is not 1.
    return wanted is None or _comparable(wanted) == _comparable(found)


def _comparable(value: object) -> tuple[str, object]:
    match value:
        case bool():
            return "boolean", value
        case int() | float():
            return "number", value
        case str():
            return "text", value.encode()
        case bytes():
            return "text", bytes(value)
    return type(value).__name__, value


class Headers:
    """By headers."""

    __slots__ = ("_bindings", "looks_inside")

    def __init__(self) -> None:
        self.looks_inside = True
        self._bindings: dict[Binding, _Wanted] = {}

    def check(self, binding: Binding) -> None:
        match = decode_table(binding.arguments).get("x-match", "all")
        if not isinstance(match, str):
            value = "undefined" if match is None else str(match).lower()
            raise PreconditionFailed(
                f"Invalid x-match field type {type_of(match)} (value {value}); expected longstr"
            )
        if match not in ("all", "any", "all-with-x", "any-with-x"):
            value = f'<<"{match}">>' if match else "<<>>"
            raise PreconditionFailed(
                f"Invalid x-match field value {value}; expected all, any, all-with-x, or any-with-x"
            )

    def add(self, binding: Binding) -> None:
        arguments = decode_table(binding.arguments)
        match = str(arguments.pop("x-match", "all"))
        wanted = tuple(
            (name, value)
            for name, value in arguments.items()
            if match.endswith("-with-x") or not name.startswith("x-")
        )
        self._bindings[binding] = _Wanted(match.startswith("any"), wanted)

    def remove(self, binding: Binding) -> None:
        del self._bindings[binding]

    def match(self, routing_keys: Sequence[str], content: Content) -> Iterable[Destination]:
        headers = content.headers()
        return dict.fromkeys(
            binding.destination
            for binding, wanted in self._bindings.items()
            if wanted.fits(headers)
        )


_POINTS = 64  # on the ring for each unit of weight: destinations get shares within some percent
_MOST_WEIGHT = 10_000


class ConsistentHash:
    """By hash: each message to one destination, the same for equal keys while bindings stay.

    Each binding has points on a ring, as many as its weight says; a message goes to the first point
    at or after its own. A binding that comes or goes moves only its share of the keys.
    """

    __slots__ = ("_header", "_owners", "_points", "_property", "looks_inside")

    def __init__(self, arguments: Mapping[str, object]) -> None:
        header, prop = arguments.get("hash-header"), arguments.get("hash-property")
        self._header = header if isinstance(header, str) and header else None
        self._property = prop if isinstance(prop, str) and prop else None
        self.looks_inside = bool(self._header or self._property)
        self._points: list[int] = []
        self._owners: dict[int, dict[Destination, int]] = {}

    def check(self, binding: Binding) -> None:
        key = binding.routing_key
        if not (key.isascii() and key.isdigit() and 0 < int(key) <= _MOST_WEIGHT):
            raise PreconditionFailed(
                f"The binding key must be a weight from 1 to {_MOST_WEIGHT}, not {key!r}"
            )

    def add(self, binding: Binding) -> None:
        for point in self._points_of(binding):
            if point not in self._owners:
                self._points.append(point)
                self._owners[point] = {}
            _add_one(self._owners[point], binding.destination)
        self._points.sort()

    def remove(self, binding: Binding) -> None:
        for point in self._points_of(binding):
            owners = self._owners[point]
            _remove_one(owners, binding.destination)
            if not owners:
                del self._owners[point]
        self._points = [point for point in self._points if point in self._owners]

    def match(self, routing_keys: Sequence[str], content: Content) -> Iterable[Destination]:
        if not self._points:
            return ()
        index = bisect_right(self._points, _hash(self._key(routing_keys, content)))
        point = self._points[index % len(self._points)]
        return (next(iter(self._owners[point])),)

    def _key(self, routing_keys: Sequence[str], content: Content) -> str:
        if self._header is not None:
            return str(content.headers().get(self._header, ""))
        if self._property is not None:
            return str(content.property(self._property) or "")
        return routing_keys[0]

    def _points_of(self, binding: Binding) -> Iterable[int]:
        target = binding.destination
        prefix = f"{'exchange' if target.is_exchange else 'queue'} {target.name} "
        count = int(binding.routing_key) * _POINTS
        return (_hash(f"{prefix}{number}") for number in range(count))


def _hash(text: str) -> int:
    """The same in every process, unlike Python's own hash of a string."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8)
    return int.from_bytes(digest.digest(), "big")


KINDS: Mapping[str, Callable[[Mapping[str, object]], Kind]] = {
    "direct": lambda _: Direct(),
    "fanout": lambda _: Fanout(),
    "topic": lambda _: Topic(),
    "headers": lambda _: Headers(),
    "x-consistent-hash": ConsistentHash,
    "x-message-deduplication": lambda _: Fanout(),
}
DELAYED_KIND = "x-delayed-message"
DEDUPLICATION_KIND = "x-message-deduplication"


def new_kind(kind: str, arguments: Mapping[str, object]) -> Kind:
    """The bindings of a new exchange; PreconditionFailed when there is no such kind."""
    if kind == DELAYED_KIND:
        inner = arguments.get("x-delayed-type")
        if not isinstance(inner, str) or inner not in KINDS:
            raise PreconditionFailed(
                "Invalid argument, 'x-delayed-type' must be an existing exchange type"
            )
        return KINDS[inner](arguments)
    if kind not in KINDS:
        raise PreconditionFailed(f"unknown exchange type '{kind}'")
    return KINDS[kind](arguments)
