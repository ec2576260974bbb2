"""The part of the catalogue that AMQP's world needs: virtual hosts and what is in them, and users.

The promises are those of `catalogue.py`: a write that returned survives a crash, and nothing is
checked here. Queues and exchanges that do not outlive the broker have rows too, so that everything
can be seen in one place; whoever loads the rows drops those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from penstock.model.binding import Binding


class VhostRow(NamedTuple):
    name: str
    created_at_ms: int


class UserRow(NamedTuple):
    name: str
    password: str | None  # as `services.passwords` writes it
    tags: tuple[str, ...]


class PermissionRow(NamedTuple):
    user: str
    vhost: str
    configure: str
    write: str
    read: str


class ExchangeRow(NamedTuple):
    vhost: str
    name: str
    kind: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Mapping[str, object]


class QueueRow(NamedTuple):
    vhost: str
    name: str
    topic: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    adopted: bool  # the topic was there before the queue, and stays when it goes
    arguments: Mapping[str, object]


class BindingRow(NamedTuple):
    vhost: str
    binding: Binding


class PolicyRow(NamedTuple):
    vhost: str
    name: str
    pattern: str
    definition: Mapping[str, object]
    priority: int
    apply_to: str


Row = VhostRow | UserRow | PermissionRow | ExchangeRow | QueueRow | BindingRow | PolicyRow


@dataclass(slots=True)
class MessagingContents:
    """All rows, as read at the start of a broker."""

    vhosts: list[VhostRow] = field(default_factory=list)
    users: list[UserRow] = field(default_factory=list)
    permissions: list[PermissionRow] = field(default_factory=list)
    exchanges: list[ExchangeRow] = field(default_factory=list)
    queues: list[QueueRow] = field(default_factory=list)
    bindings: list[BindingRow] = field(default_factory=list)
    policies: list[PolicyRow] = field(default_factory=list)


class MessagingCatalogue(Protocol):
    """Where the rows are kept. Errors of the disk are raised as StorageError."""

    async def load(self) -> MessagingContents:
        """Everything, once, at the start."""

    async def put(self, *rows: Row) -> None:
        """Create these rows or replace those with the same key, all or none."""

    async def delete(self, *rows: Row) -> None:
        """Forget the rows with the keys of these, all or none. Unknown ones are ignored."""

    async def delete_vhost(self, name: str) -> None:
        """Forget a virtual host and everything in it."""

    async def delete_user(self, name: str) -> None:
        """Forget a user and their permissions."""
