"""Records of share groups (KIP-932) in `__consumer_offsets`: values and Kafka's exact bytes.

Keys are non-flexible and start with the type; values are flexible (KIP-482), version 0:

    type 10  key: group, member         value: rack id?, client id, client host, topic names
    type 11  key: group                 value: group epoch i32, metadata hash i64 (unused here)
    type 12  key: group                 value: assignment epoch i32
    type 13  key: group, member         value: target, topics of (id uuid, partitions i32s)
    type 14  key: group, member         value: member epoch i32, previous epoch i32, state i8,
                                        assigned topics
    type 15  key: group                 value: topics being initialised, topics initialised, each
                                        of (id uuid, name, partitions i32s); topics being deleted,
                                        each of (id uuid, name)

What became of the records of a partition is not here but in the partition's journal for the group
(`queue_journal.py`), the same as a queue's.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from penstock.model.fields import FieldReader, FieldWriter
from penstock.model.group_record import (
    Assignment,
    epoch_value,
    new_value,
    read_assignment,
    read_value,
    record_key,
    target_value,
    write_assignment,
)

_MEMBER, _EPOCH, _TARGET_EPOCH, _TARGET, _CURRENT, _STARTED = 10, 11, 12, 13, 14, 15


class ShareSubscription(NamedTuple):
    """Who a member is and what it wants to read."""

    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]


class ShareAssignment(NamedTuple):
    """What a member was told to read, and in which epoch."""

    member_epoch: int
    previous_epoch: int
    assigned: Assignment


class StartedTopic(NamedTuple):
    """Partitions of a topic for which the group has a journal."""

    name: str
    partitions: tuple[int, ...]


StartedTopics = Mapping[uuid.UUID, StartedTopic]


class ShareMemberSubscribed(NamedTuple):
    group_id: str
    member_id: str
    subscription: ShareSubscription | None


class ShareGroupEpochBumped(NamedTuple):
    group_id: str
    epoch: int | None


class ShareTargetEpochReached(NamedTuple):
    group_id: str
    epoch: int | None


class ShareTargetAssigned(NamedTuple):
    group_id: str
    member_id: str
    target: Assignment | None


class ShareMemberAssigned(NamedTuple):
    group_id: str
    member_id: str
    current: ShareAssignment | None


class SharePartitionsStarted(NamedTuple):
    group_id: str
    topics: StartedTopics | None


ShareGroupRecord = (
    ShareMemberSubscribed
    | ShareGroupEpochBumped
    | ShareTargetEpochReached
    | ShareTargetAssigned
    | ShareMemberAssigned
    | SharePartitionsStarted
)
SHARE_GROUP_RECORDS = (
    ShareMemberSubscribed,
    ShareGroupEpochBumped,
    ShareTargetEpochReached,
    ShareTargetAssigned,
    ShareMemberAssigned,
    SharePartitionsStarted,
)


def encode(record: ShareGroupRecord) -> tuple[bytes, bytes | None]:
    """(key, value); the value is None for a tombstone."""
    match record:
        case ShareMemberSubscribed(group_id, member_id, subscription):
            return record_key(_MEMBER, group_id, member_id), _subscription_value(subscription)
        case ShareGroupEpochBumped(group_id, epoch):
            return record_key(_EPOCH, group_id), _group_epoch_value(epoch)
        case ShareTargetEpochReached(group_id, epoch):
            return record_key(_TARGET_EPOCH, group_id), epoch_value(epoch)
        case ShareTargetAssigned(group_id, member_id, target):
            return record_key(_TARGET, group_id, member_id), target_value(target)
        case ShareMemberAssigned(group_id, member_id, current):
            return record_key(_CURRENT, group_id, member_id), _current_value(current)
        case SharePartitionsStarted(group_id, topics):
            return record_key(_STARTED, group_id), _started_value(topics)


def decode(kind: int, key: FieldReader, value: bytes | None) -> ShareGroupRecord | None:
    """The record of a key whose type has been read; None for types that are not ours."""
    match kind:
        case 10:
            subscription = read_value(value, _read_subscription)
            return ShareMemberSubscribed(key.string(), key.string(), subscription)
        case 11:
            return ShareGroupEpochBumped(key.string(), read_value(value, _read_group_epoch))
        case 12:
            return ShareTargetEpochReached(key.string(), read_value(value, FieldReader.i32))
        case 13:
            return ShareTargetAssigned(
                key.string(), key.string(), read_value(value, read_assignment)
            )
        case 14:
            return ShareMemberAssigned(key.string(), key.string(), read_value(value, _read_current))
        case 15:
            return SharePartitionsStarted(key.string(), read_value(value, _read_started))
    return None


def _group_epoch_value(epoch: int | None) -> bytes | None:
    return None if epoch is None else new_value().i32(epoch).i64(0).tags().done()


def _read_group_epoch(reader: FieldReader) -> int:
    epoch = reader.i32()
    reader.i64()  # Kafka's hash of the topics, by which it sees that they changed
    return epoch


def _subscription_value(subscription: ShareSubscription | None) -> bytes | None:
    if subscription is None:
        return None
    writer = new_value().string(subscription.rack_id).string(subscription.client_id)
    return writer.string(subscription.client_host).strings(subscription.topic_names).tags().done()


def _read_subscription(reader: FieldReader) -> ShareSubscription:
    return ShareSubscription(
        reader.nullable_string(), reader.string(), reader.string(), reader.strings()
    )


def _current_value(current: ShareAssignment | None) -> bytes | None:
    if current is None:
        return None
    writer = new_value().i32(current.member_epoch).i32(current.previous_epoch).i8(0)
    write_assignment(writer, current.assigned)
    return writer.tags().done()


def _read_current(reader: FieldReader) -> ShareAssignment:
    epoch, previous, _ = reader.i32(), reader.i32(), reader.i8()
    return ShareAssignment(epoch, previous, read_assignment(reader))


def _started_value(topics: StartedTopics | None) -> bytes | None:
    if topics is None:
        return None

    def write(fields: FieldWriter, topic: tuple[uuid.UUID, StartedTopic]) -> None:
        fields.uid(topic[0]).string(topic[1].name).i32s(topic[1].partitions).tags()

    nothing: tuple[tuple[uuid.UUID, StartedTopic], ...] = ()
    writer = new_value().array(nothing, write).array(tuple(topics.items()), write)
    return writer.array(nothing, write).tags().done()


def _read_started(reader: FieldReader) -> StartedTopics:
    def read(fields: FieldReader) -> tuple[uuid.UUID, StartedTopic]:
        topic = (fields.uid(), StartedTopic(fields.string(), tuple(sorted(fields.i32s()))))
        fields.tags()
        return topic

    reader.array(read)  # a start under way at a crash begins anew
    return dict(reader.array(read))
