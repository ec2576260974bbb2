"""The last offset of every key in a stretch of log: what compaction keeps and what it drops."""

from __future__ import annotations

from hashlib import blake2b

_DIGEST_BYTES = 16
DEFAULT_KEYS = 500_000  # about 100 MB; a longer stretch is compacted in several goes


class OffsetMap:
    """Keys to offsets, bounded. Long keys are kept as digests of 16 bytes, as Kafka does."""

    __slots__ = ("_most_keys", "_offsets", "latest_offset")

    def __init__(self, most_keys: int = DEFAULT_KEYS) -> None:
        self._most_keys = most_keys
        self._offsets: dict[bytes, int] = {}
        self.latest_offset = -1  # every record up to here is in the map

    def __len__(self) -> int:
        return len(self._offsets)

    def __repr__(self) -> str:
        return f"OffsetMap({len(self)} keys up to {self.latest_offset})"

    def has_room_for(self, keys: int) -> bool:
        """Whether that many more fit. The first stretch always does, or nothing would move."""
        return not self._offsets or len(self._offsets) + keys <= self._most_keys

    def put(self, key: bytes, offset: int) -> None:
        if len(key) > _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        self._offsets[key] = offset

    def last_offset(self, key: bytes) -> int:
        """The last offset of that key, -1 when it does not occur."""
        if len(key) > _DIGEST_BYTES:
            key = blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(key, -1)
