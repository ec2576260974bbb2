"""Records of `__consumer_offsets` as values and as Kafka's exact bytes.

A key starts with an i16 that says what the record is; a value starts with an i16 version; a null
value is a tombstone. Kafka's own tools read what is written here, and what Kafka wrote is read.

    type 0,1  key: group string, topic string, partition i32            non-flexible
              value v3: offset i64, leader epoch i32, metadata string, commit timestamp i64
              (v0 and v2 lack the epoch, v1 has an expire timestamp i64 at the end, v4 is flexible)
    type 2    key: group string
              value v3: protocol type string, generation i32, protocol string?, leader string?,
              state timestamp i64, members array of (member id string, instance id string?,
              client id string, client host string, rebalance timeout i32, session timeout i32,
              subscription bytes, assignment bytes)
    type 3-8 and 16   KIP-848, in `consumer_group_records.py`
    type 10-15        share groups, KIP-932, in `share_group_records.py`

Records of types this broker does not know (streams groups of a newer Kafka) decode to None and are
left alone.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.errors import CorruptRecord
from penstock.model import consumer_group_records as modern
from penstock.model import share_group_records as sharing
from penstock.model.fields import FieldReader, FieldWriter
from penstock.model.ids import NO_EPOCH, NO_TIMESTAMP

_OFFSET_COMMIT_V0, _OFFSET_COMMIT, _GROUP_METADATA = 0, 1, 2
_OFFSET_VALUE_VERSION = 3
_GROUP_VALUE_VERSION = 3


class CommittedOffset(NamedTuple):
    """Where a group stands in one partition."""

    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    committed_at_ms: int = NO_TIMESTAMP
    expires_at_ms: int = NO_TIMESTAMP  # set by very old clients only (retention_time, commit v2-4)


class OffsetCommitted(NamedTuple):
    """A group committed an offset; None when the offset is forgotten."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


class StoredMember(NamedTuple):
    """A member of a classic group, as kept with the group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """A classic group at the end of a rebalance, whole."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since_ms: int
    members: tuple[StoredMember, ...]


class GroupStored(NamedTuple):
    """A classic group reached a generation; None when the group is forgotten."""

    group_id: str
    value: StoredGroup | None


OffsetsTopicRecord = (
    OffsetCommitted | GroupStored | modern.ConsumerGroupRecord | sharing.ShareGroupRecord
)
_LOWEST_SHARING, _HIGHEST_SHARING = 10, 15


def encode(record: OffsetsTopicRecord) -> tuple[bytes, bytes | None]:
    """(key, value) as they stand in the log."""
    if isinstance(record, OffsetCommitted):
        key = FieldWriter().i16(_OFFSET_COMMIT).string(record.group_id).string(record.topic)
        return key.i32(record.partition).done(), _offset_value(record.value)
    if isinstance(record, GroupStored):
        key = FieldWriter().i16(_GROUP_METADATA).string(record.group_id)
        return key.done(), _group_value(record.value)
    if isinstance(record, sharing.SHARE_GROUP_RECORDS):
        return sharing.encode(record)
    return modern.encode(record)


def decode(key: bytes, value: bytes | None) -> OffsetsTopicRecord | None:
    """The record of (key, value); None when it is of a kind that is not ours."""
    reader = FieldReader(key)
    kind = reader.i16()
    if kind in (_OFFSET_COMMIT_V0, _OFFSET_COMMIT):
        group_id, topic, partition = reader.string(), reader.string(), reader.i32()
        return OffsetCommitted(group_id, topic, partition, _read_offset_value(value))
    if kind == _GROUP_METADATA:
        return GroupStored(reader.string(), _read_group_value(value))
    if _LOWEST_SHARING <= kind <= _HIGHEST_SHARING:
        return sharing.decode(kind, reader, value)
    return modern.decode(kind, reader, value)


def _offset_value(value: CommittedOffset | None) -> bytes | None:
    if value is None:
        return None
    if value.expires_at_ms != NO_TIMESTAMP:  # only version 1 has room for it
        writer = FieldWriter().i16(1).i64(value.offset).string(value.metadata)
        return writer.i64(value.committed_at_ms).i64(value.expires_at_ms).done()
    writer = FieldWriter().i16(_OFFSET_VALUE_VERSION).i64(value.offset).i32(value.leader_epoch)
    return writer.string(value.metadata).i64(value.committed_at_ms).done()


def _read_offset_value(value: bytes | None) -> CommittedOffset | None:
    if value is None:
        return None
    reader = FieldReader(value)
    version = _version(reader, 4, "offset commit")
    reader.flexible = version >= 4
    offset = reader.i64()
    leader_epoch = reader.i32() if version >= 3 else NO_EPOCH
    metadata = reader.string()
    committed_at_ms = reader.i64()
    expires_at_ms = reader.i64() if version == 1 else NO_TIMESTAMP
    return CommittedOffset(offset, leader_epoch, metadata, committed_at_ms, expires_at_ms)


def _group_value(value: StoredGroup | None) -> bytes | None:
    if value is None:
        return None
    writer = FieldWriter().i16(_GROUP_VALUE_VERSION).string(value.protocol_type)
    writer.i32(value.generation).string(value.protocol).string(value.leader)
    return writer.i64(value.state_since_ms).array(value.members, _write_member).done()


def _write_member(writer: FieldWriter, member: StoredMember) -> None:
    writer.string(member.member_id).string(member.instance_id)
    writer.string(member.client_id).string(member.client_host)
    writer.i32(member.rebalance_timeout_ms).i32(member.session_timeout_ms)
    writer.blob(member.subscription).blob(member.assignment)


def _read_group_value(value: bytes | None) -> StoredGroup | None:
    if value is None:
        return None
    reader = FieldReader(value)
    version = _version(reader, 4, "group metadata")
    reader.flexible = version >= 4
    protocol_type, generation = reader.string(), reader.i32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    state_since_ms = reader.i64() if version >= 2 else NO_TIMESTAMP

    def read_member(fields: FieldReader) -> StoredMember:
        member_id = fields.string()
        instance_id = fields.nullable_string() if version >= 3 else None
        client_id, client_host = fields.string(), fields.string()
        rebalance_timeout_ms = fields.i32() if version >= 1 else -1
        session_timeout_ms = fields.i32()
        member = StoredMember(
            member_id,
            instance_id,
            client_id,
            client_host,
            # Version 0 had one time-out for both.
            session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
            session_timeout_ms,
            fields.blob(),
            fields.blob(),
        )
        if version >= 4:
            fields.tags()
        return member

    members = reader.array(read_member)
    return StoredGroup(protocol_type, generation, protocol, leader, state_since_ms, members)


def _version(reader: FieldReader, newest: int, what: str) -> int:
    version = reader.i16()
    if not 0 <= version <= newest:
        raise CorruptRecord(f"{what} record of version {version}, the newest known is {newest}")
    return version
