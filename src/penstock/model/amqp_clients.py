"""Who is connected to the AMQP door, and what for: a picture that the door draws when asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConsumer:
    """A consumer on a channel."""

    tag: str
    queue: str
    ack_required: bool
    exclusive: bool
    active: bool
    prefetch: int
    arguments: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientChannel:
    """An open channel of a connection."""

    number: int
    is_transactional: bool
    is_confirming: bool
    prefetch: int
    global_prefetch: int
    unacknowledged: int
    unconfirmed: int
    uncommitted: int
    consumers: Sequence[ClientConsumer]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConnection:
    """A client that has opened a virtual host."""

    name: str  # both ends, which is unique at any time
    host: str
    port: int
    peer_host: str
    peer_port: int
    user: str
    vhost: str
    state: str
    mechanism: str
    connected_at_ms: int
    channel_max: int
    frame_max: int
    heartbeat_s: int
    bytes_in: int
    bytes_out: int
    properties: Mapping[str, object]
    channels: Sequence[ClientChannel]
