"""Commits of consumer groups, as the log of `__consumer_offsets` has them.

    key    version 0 or 1, group, topic, partition        (version 2 and above: no commit)
    value  version, offset, [leader epoch, from 3 on], metadata, commit time in ms, ...

The topic is compacted, so of old commits only the last of each partition is left.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC = "__consumer_offsets"
COLUMNS = "group STRING, topic STRING, partition INT, offset BIGINT, at BIGINT"
_SHORT, _INT, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")


def parse_commit(key: bytes | None, value: bytes | None) -> tuple[Any, ...] | None:
    """(group, topic, partition, offset, milliseconds), or None when it is something else."""
    if not key or not value or _SHORT.unpack_from(key, 0)[0] > 1:
        return None
    try:
        group, at = _text(key, 2)
        topic, at = _text(key, at)
        (partition,) = _INT.unpack_from(key, at)
        (version,) = _SHORT.unpack_from(value, 0)
        (offset,) = _LONG.unpack_from(value, 2)
        at = 14 if version >= 3 else 10
        if version >= 4:
            size, at = _size(value, at)
            at += max(size - 1, 0)
        else:
            (size,) = _SHORT.unpack_from(value, at)
            at += 2 + max(size, 0)
        (when,) = _LONG.unpack_from(value, at)
    except (struct.error, UnicodeDecodeError, IndexError):
        return None
    return group, topic, partition, offset, when


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = _SHORT.unpack_from(data, at)
    return data[at + 2 : at + 2 + size].decode(), at + 2 + size


def _size(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned variable-length number."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def commits_frame(records: DataFrame) -> DataFrame:
    """Commits as rows: group, topic, partition, offset, at (a timestamp)."""
    from pyspark.sql import functions as f

    # Spark reads type hints as its own kind of declaration, so this function has none.
    parsed = f.udf(lambda key, value: parse_commit(key, value), COLUMNS)
    columns = parsed(f.col("key"), f.col("value"))
    rows = records.select(columns.alias("c")).where("c IS NOT NULL").select("c.*")
    return rows.withColumn("at", f.timestamp_millis(f.col("at")))
