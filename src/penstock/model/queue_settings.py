"""How a queue treats its messages: what its arguments and the policy that matches it add up to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Overflow(StrEnum):
    """What happens to a message for which a queue has no room, or to the one it pushes out."""

    DROP_HEAD = "drop-head"  # the oldest ready message makes room
    REJECT_PUBLISH = "reject-publish"  # the publisher is told no
    REJECT_PUBLISH_DLX = "reject-publish-dlx"  # the same, and the message is dead-lettered


class DeadReason(StrEnum):
    """Why a message left its queue for the dead letters, in the words of `x-death`."""

    REJECTED = "rejected"
    EXPIRED = "expired"
    MAXLEN = "maxlen"
    DELIVERY_LIMIT = "delivery_limit"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The rules of one queue. None stands for no limit."""

    max_priority: int = 0  # 0: no priorities, first in, first out
    message_ttl_ms: int | None = None
    max_length: int | None = None  # of ready messages
    max_length_bytes: int | None = None  # of the bodies of ready messages
    overflow: Overflow = Overflow.DROP_HEAD
    dead_letters: bool = False  # whether there is a place for them
    delivery_limit: int | None = None  # a message that comes back more often is dead
    lock_ms: int | None = None  # how long a delivery is somebody's before it comes back by itself
    single_active_consumer: bool = False


DEFAULT_SETTINGS = QueueSettings()
