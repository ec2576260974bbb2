"""The bytes that consumers put inside JoinGroup and SyncGroup when the protocol type is `consumer`.

To the classic group these bytes are opaque; the broker looks inside for two things only: which
topics a group reads (so that their offsets are neither expired nor deleted under it), and to carry
members between the classic and the KIP-848 protocol.

    subscription  version i16, topics strings, user data bytes?, v1+: owned topics of (name,
                  partitions i32s), v2+: generation i32, v3+: rack string?
    assignment    version i16, topics of (name, partitions i32s), user data bytes?

A version newer than known is read as the newest known: fields are only ever added at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.errors import CorruptRecord
from penstock.model.fields import FieldReader, FieldWriter

PROTOCOL_TYPE = "consumer"


class ConsumerSubscription(NamedTuple):
    """What a consumer says when it joins."""

    version: int
    topics: tuple[str, ...]
    owned: tuple[tuple[str, tuple[int, ...]], ...] = ()
    rack_id: str | None = None


def read_subscription(data: bytes) -> ConsumerSubscription:
    """Raises `CorruptRecord` when the bytes are something else."""
    reader = FieldReader(data)
    version = reader.i16()
    if version < 0:
        raise CorruptRecord(f"consumer subscription of version {version}")
    topics = reader.strings()
    reader.nullable_blob()
    owned = reader.array(_read_topic) if version >= 1 else ()
    if version >= 2:
        reader.i32()
    rack_id = reader.nullable_string() if version >= 3 else None
    return ConsumerSubscription(version, topics, owned, rack_id)


def read_assignment(data: bytes) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Topics and partitions of an assignment; empty bytes are an empty assignment."""
    if not data:
        return ()
    reader = FieldReader(data)
    if reader.i16() < 0:
        raise CorruptRecord("consumer assignment of a negative version")
    return reader.array(_read_topic)


def write_assignment(version: int, partitions: Mapping[str, tuple[int, ...]]) -> bytes:
    """The assignment bytes for a consumer whose subscription had `version`."""

    def write(writer: FieldWriter, topic: tuple[str, tuple[int, ...]]) -> None:
        writer.string(topic[0]).i32s(topic[1])

    writer = FieldWriter().i16(version).array(tuple(partitions.items()), write)
    return writer.blob(None).done()


def _read_topic(reader: FieldReader) -> tuple[str, tuple[int, ...]]:
    return reader.string(), reader.i32s()
