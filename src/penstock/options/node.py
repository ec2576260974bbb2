"""Who this broker is, where it listens and what it promises."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.options.option import Address, address, boolean, integer, path, text


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class NodeOptions:
    """Broker."""

    data: Path = path(
        "penstock-data", "Directory that holds the log and the catalogue.", headline=True
    )
    memory: bool = boolean(
        False, "Keep nothing on disk; everything is gone when the broker stops.", headline=True
    )
    kafka: Address | None = address(
        Address("127.0.0.1", 9092), "Where Kafka clients connect.", headline=True
    )
    amqp: Address | None = address(
        Address("127.0.0.1", 5672), "Where AMQP clients connect.", headline=True
    )
    http: Address | None = address(
        Address("127.0.0.1", 8080), "Health, metrics and the JSON API.", headline=True
    )
    advertised_kafka: Address | None = address(
        None,
        "Address clients are told to use, when it is not the one listened on (NAT, containers).",
        headline=True,
    )
    node_id: int = integer(1, "Number of this broker.", minimum=0, headline=True)
    durability: str = text(
        "fsync",
        "What acknowledged means: fsync = on disk, os = in the page cache.",
        choices=("fsync", "os"),
        dynamic=True,
        headline=True,
        topic="penstock.durability",
    )
    verbosity: str = text(
        "info",
        "How much the broker writes to standard error.",
        choices=("debug", "info", "warning", "error"),
        headline=True,
    )
