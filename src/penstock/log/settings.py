"""How one partition's files are cut, kept and cleaned: the log's share of a topic's settings.

Names and defaults are Kafka's; bounds are checked where settings are parsed, not here. Settings
are values: to change them, give the log another one.
"""

from __future__ import annotations

from dataclasses import dataclass

DELETE = "delete"
COMPACT = "compact"
UNLIMITED = -1

_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    """The settings of one log."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = UNLIMITED
    cleanup_policy: frozenset[str] = frozenset({DELETE})
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = (1 << 63) - 1
    min_cleanable_dirty_ratio: float = 0.5
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    max_message_bytes: int = 1_048_588
    durability: str = "fsync"  # "fsync": acknowledged is on the medium; "os": in the page cache

    @property
    def compacts(self) -> bool:
        return COMPACT in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return DELETE in self.cleanup_policy


DEFAULT_SETTINGS = LogSettings()
