"""What may be asked of a classic group, and the limits it is asked under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.errors import BrokerError
from penstock.machines.decision import Timer


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """Bounds of classic groups, by Kafka's `group.*` settings.

    `initial_rebalance_delay_ms` is how long a new group waits for more members before it starts.
    Kafka's code says 3 s, its quick-start configuration 0; ours is 0, because a broker inside a
    test or a developer's machine should give the first consumer its partitions at once, and a
    second rebalance costs a small group less than the wait.
    """

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    max_size: int = 2**31 - 1
    # A member that is new has no id to heartbeat with while it waits, so it gets this long.
    new_member_join_timeout_ms: int = 300_000


class JoinGroup(NamedTuple):
    """A member wants to take part. `fresh_member_id` is used if it has no id yet."""

    member_id: str
    fresh_member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    member_id_required: bool = True  # JoinGroup v4+ (KIP-394)
    can_skip_assignment: bool = True  # JoinGroup v9+ (KIP-814)


class SyncGroup(NamedTuple):
    """A member asks for its assignment; the leader brings everybody's."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


class Heartbeat(NamedTuple):
    member_id: str
    instance_id: str | None
    generation: int


class Leaver(NamedTuple):
    """One of those who leave; an operator names a static member by its instance id alone."""

    member_id: str
    instance_id: str | None = None


class LeaveGroup(NamedTuple):
    members: tuple[Leaver, ...]


class LeaveReply(NamedTuple):
    """For each leaver, in order, what was wrong with it, or None."""

    members: tuple[tuple[Leaver, BrokerError | None], ...]


class TimerFired(NamedTuple):
    timer: Timer


GroupCommand = JoinGroup | SyncGroup | Heartbeat | LeaveGroup | TimerFired
