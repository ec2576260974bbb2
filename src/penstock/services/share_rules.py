"""What a share group's settings mean for the records of its partitions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from penstock.model.group_config import GroupSettings
from penstock.model.queue_settings import QueueSettings

_DURATION = re.compile(
    r"by_duration:P(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>[\d.]+)S)?)?",
    re.I,
)
_UNIT_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRules:
    """The rules of one share group."""

    queue: QueueSettings
    read_committed: bool
    max_record_locks: int
    may_renew: bool
    offset_reset: str
    dead_letter_topic: str
    copies_dead_letters: bool

    @property
    def lock_ms(self) -> int:
        return self.queue.lock_ms or 0

    @property
    def reset_age_ms(self) -> int | None:
        """How old the first record may be, where the settings say it by a duration."""
        found = _DURATION.fullmatch(self.offset_reset)
        if found is None:
            return None
        return round(sum(float(found[unit] or 0) * span_ms for unit, span_ms in _UNIT_MS.items()))


@lru_cache(maxsize=256)
def share_rules(settings: GroupSettings) -> ShareRules:
    """The rules of a group with these settings."""
    return ShareRules(
        queue=QueueSettings(
            lock_ms=settings.share_record_lock_duration_ms,
            # Kafka's limit counts deliveries, the machine's how often a message may come back.
            delivery_limit=settings.share_delivery_count_limit - 1,
            dead_letters=bool(settings.errors_deadletterqueue_topic_name),
        ),
        read_committed=settings.share_isolation_level == "read_committed",
        max_record_locks=settings.share_partition_max_record_locks,
        may_renew=settings.share_renew_acknowledge_enable,
        offset_reset=settings.share_auto_offset_reset,
        dead_letter_topic=settings.errors_deadletterqueue_topic_name,
        copies_dead_letters=settings.errors_deadletterqueue_copy_record_enable,
    )
