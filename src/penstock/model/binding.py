"""Bindings: from an exchange to a queue or another exchange, with a routing key and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.model.field_table import encode_table


class Destination(NamedTuple):
    """Where a binding leads, within its virtual host."""

    name: str
    is_exchange: bool = False


class Binding(NamedTuple):
    """One binding. Two are the same when all four parts are, the arguments by their bytes."""

    source: str
    destination: Destination
    routing_key: str
    arguments: bytes  # a field table, entries sorted by key

    @classmethod
    def of(
        cls,
        source: str,
        destination: Destination,
        routing_key: str,
        arguments: Mapping[str, object],
    ) -> Binding:
        return cls(source, destination, routing_key, canonical(arguments))


def canonical(arguments: Mapping[str, object]) -> bytes:
    """Arguments as bytes that are equal when the arguments are."""
    return encode_table(dict(sorted(arguments.items())))
