"""Figures of a client, for Prometheus.

    penstock_client_published_messages_total   destination          messages that are safe
    penstock_client_publish_failures_total     destination, error   messages that are not
    penstock_client_publish_seconds            destination          from the call until it is safe
    penstock_client_received_messages_total    source               messages handed out
    penstock_client_processed_messages_total   source, outcome      handled: ok or error
    penstock_client_process_seconds            source               how long that took
    penstock_client_pending_messages                                on their way, not safe yet
    penstock_client_pending_bytes

They are made once for each registry; the clients of a program share them.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

if TYPE_CHECKING:
    from penstock.client.room import Room

_meters: weakref.WeakKeyDictionary[CollectorRegistry, Meter] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def meter_of(registry: CollectorRegistry | bool) -> Meter | None:
    """The meter of a registry; True is the default one, False is none.

    >>> meter_of(False) is None
    True
    """
    if registry is False:
        return None
    chosen = REGISTRY if registry is True else registry
    with _lock:
        if chosen not in _meters:
            _meters[chosen] = Meter(chosen)
        return _meters[chosen]


class Meter:
    """The figures of all clients that report to one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        name = "penstock_client_"
        self._published = Counter(
            f"{name}published_messages",
            "Messages that are safe.",
            ["destination"],
            registry=registry,
        )
        self._failures = Counter(
            f"{name}publish_failures",
            "Messages that could not be published.",
            ["destination", "error"],
            registry=registry,
        )
        self._publish_seconds = Histogram(
            f"{name}publish_seconds",
            "Time from publishing until the message is safe.",
            ["destination"],
            registry=registry,
        )
        self._received = Counter(
            f"{name}received_messages", "Messages handed out.", ["source"], registry=registry
        )
        self._processed = Counter(
            f"{name}processed_messages",
            "Messages that were handled.",
            ["source", "outcome"],
            registry=registry,
        )
        self._process_seconds = Histogram(
            f"{name}process_seconds", "Time to handle a message.", ["source"], registry=registry
        )
        self._rooms: weakref.WeakSet[Room] = weakref.WeakSet()
        Gauge(
            f"{name}pending_messages", "Messages on their way, not safe yet.", registry=registry
        ).set_function(lambda: sum(room.messages for room in list(self._rooms)))
        Gauge(
            f"{name}pending_bytes", "Bytes on their way, not safe yet.", registry=registry
        ).set_function(lambda: sum(room.bytes for room in list(self._rooms)))

    def watch(self, room: Room) -> None:
        """Count what is on its way there, as long as it exists."""
        self._rooms.add(room)

    def landed(
        self, destination: str, seconds: float, failure: BaseException | None, count: int = 1
    ) -> None:
        if failure is None:
            self._published.labels(destination).inc(count)
            self._publish_seconds.labels(destination).observe(seconds)
        else:
            self._failures.labels(destination, type(failure).__name__).inc(count)

    def received(self, source: str) -> None:
        self._received.labels(source).inc()

    def processed(self, source: str, seconds: float, failure: BaseException | None) -> None:
        self._processed.labels(source, "ok" if failure is None else "error").inc()
        self._process_seconds.labels(source).observe(seconds)
