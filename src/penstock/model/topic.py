"""A topic: its name, its id, how many partitions it has, and what its owner configured.

A `Topic` is a value: every change makes a new one, so whoever holds one sees a consistent picture.
It says nothing about where the partitions are or what is in them. A topic that is deleted and
created again under the same name gets another id, by which stale clients and left-over directories
are recognised (KIP-516).
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from penstock.errors import InvalidTopicName

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
# The log of Kafka's controllers: its tools take a topic of this name for that, so nobody gets one.
METADATA_TOPIC = "__cluster_metadata"

MAX_NAME_LENGTH = 249  # a directory is named `<topic>-<partition>`, with room for a suffix in 255
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

NO_CONFIG: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic. `config` holds only what was set on it, never defaults."""

    name: str
    id: uuid.UUID
    partition_count: int
    replication_factor: int
    created_at_ms: int
    config: Mapping[str, str] = field(default_factory=lambda: NO_CONFIG)

    @property
    def internal(self) -> bool:
        """Whether the broker keeps its own state in this topic."""
        return self.name in INTERNAL_TOPICS

    def has_partition(self, partition: int) -> bool:
        return 0 <= partition < self.partition_count


def is_internal(name: str) -> bool:
    """Whether a topic of this name would be the broker's own."""
    return name in INTERNAL_TOPICS


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicName unless `name` may name a topic, by Kafka's rules.

    The same rules make a name safe as the start of a directory's name.
    """
    if not name:
        raise InvalidTopicName("a topic name cannot be empty")
    if name in (".", ".."):
        raise InvalidTopicName(f"a topic cannot be named {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicName(
            f"a topic name has at most {MAX_NAME_LENGTH} characters, this one has {len(name)}"
        )
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicName(
            f"{name!r} cannot name a topic: only ASCII letters, digits, '.', '_' and '-' may"
            " be used"
        )


def collision_key(name: str) -> str:
    """Names with equal keys collide in metric names, where `.` becomes `_`; one is refused."""
    return name.replace(".", "_")


def topic_id_text(topic_id: uuid.UUID) -> str:
    """A topic id as Kafka's tools print it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode("ascii").rstrip("=")


def topic_id_from_text(text: str) -> uuid.UUID:
    """The id that `topic_id_text` printed. ValueError when it is not one."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
