"""A virtual host: its exchanges and bindings, its queues, and what each of them is called."""

from __future__ import annotations

from penstock.errors import NotFound
from penstock.machines.exchange import Exchange, Exchanges
from penstock.machines.exchange_kinds import DEDUPLICATION_KIND, DELAYED_KIND, KINDS
from penstock.machines.seen_ids import SeenIds
from penstock.services.queue import Queue

__all__ = ["EXCHANGE_KINDS", "STANDARD_EXCHANGES", "Exchange", "VirtualHost"]

EXCHANGE_KINDS = sorted([*KINDS, DELAYED_KIND, DEDUPLICATION_KIND])

# What every virtual host has from the start, and nobody can delete (AMQP 0-9-1 §3.1.3).
STANDARD_EXCHANGES = (
    ("amq.direct", "direct", False),
    ("amq.fanout", "fanout", False),
    ("amq.topic", "topic", False),
    ("amq.headers", "headers", False),
    ("amq.match", "headers", False),
    ("amq.rabbitmq.trace", "topic", True),
)


class VirtualHost:
    """One virtual host. The services of exchanges and queues change it."""

    __slots__ = ("created_at_ms", "exchanges", "name", "queues", "seen")

    def __init__(self, name: str, created_at_ms: int) -> None:
        self.name = name
        self.created_at_ms = created_at_ms
        self.queues: dict[str, Queue] = {}
        self.exchanges = Exchanges(self.queues.__contains__)
        self.seen: dict[str, SeenIds] = {}  # by exchange, of those that want each message once
        for exchange, kind, internal in STANDARD_EXCHANGES:
            self.exchanges.add(Exchange(exchange, kind, internal=internal, arguments={}))

    def __repr__(self) -> str:
        return f"<VirtualHost {self.name!r} {len(self.queues)} queues>"

    def queue(self, name: str) -> Queue:
        queue = self.queues.get(name)
        if queue is None:
            raise NotFound(f"no queue '{name}' in vhost '{self.name}'")
        return queue

    def exchange(self, name: str) -> Exchange:
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise NotFound(f"no exchange '{name}' in vhost '{self.name}'")
        return exchange
