"""Records of KIP-848 groups in `__consumer_offsets`: values and Kafka's exact bytes.

Keys are non-flexible and start with the type; values are flexible (KIP-482), version 0:

    type 3   key: group                 value: group epoch i32, tags {0: metadata hash i64}
    type 4   key: group                 value: topics of (id uuid, name, partition count i32,
                                        racks, which nobody uses any more)
    type 5   key: group, member         value: instance id?, rack id?, client id, client host,
                                        topic names, topic regex?, rebalance timeout i32, server
                                        assignor?, tags {0: classic member metadata}
    type 6   key: group                 value: assignment epoch i32
    type 7   key: group, member         value: target, topics of (id uuid, partitions i32s)
    type 8   key: group, member         value: member epoch i32, previous epoch i32, state i8,
                                        assigned topics, topics pending revocation, both with
                                        tags {0: epoch of each partition i32s}
    type 16  key: group, regex          value: topic names, metadata version i64, timestamp i64
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from penstock.model.fields import FieldReader, FieldWriter
from penstock.model.group_record import (
    NO_EPOCHS,
    Assignment,
    Epochs,
    epoch_value,
    new_value,
    read_assignment,
    read_dated_assignment,
    read_value,
    record_key,
    target_value,
    write_dated_assignment,
)

_GROUP_EPOCH, _TOPICS, _MEMBER, _TARGET_EPOCH, _TARGET, _CURRENT, _REGEX = 3, 4, 5, 6, 7, 8, 16


class SubscribedTopic(NamedTuple):
    """What the group last knew of a topic it reads."""

    topic_id: uuid.UUID
    name: str
    partition_count: int


class ClassicMetadata(NamedTuple):
    """What a member that still speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class Subscription(NamedTuple):
    """Who a member is and what it wants to read."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMetadata | None = None


class CurrentAssignment(NamedTuple):
    """How far a member has come on the way to its target.

    `epochs` says since when it has each partition, those too that it is to give back (KIP-1251).
    """

    member_epoch: int
    previous_epoch: int
    state: int
    assigned: Assignment
    pending_revocation: Assignment
    epochs: Epochs = NO_EPOCHS

    def held(self) -> Assignment:
        """What the member has: what it is assigned, and what it has not given back yet."""
        held = dict(self.assigned)
        for topic_id, partitions in self.pending_revocation.items():
            held[topic_id] = tuple(sorted((*held.get(topic_id, ()), *partitions)))
        return held

    def since(self, topic_id: uuid.UUID, partition: int) -> int | None:
        """The epoch in which the member got a partition; None when it does not have it."""
        held = self.assigned.get(topic_id, ()), self.pending_revocation.get(topic_id, ())
        if not any(partition in partitions for partitions in held):
            return None
        return self.epochs.get((topic_id, partition), self.member_epoch)

    def with_all_given_back(self, member_epoch: int) -> CurrentAssignment:
        """Under another epoch, and with nothing left that it is to give back."""
        epochs = {
            (topic_id, index): since
            for (topic_id, index), since in self.epochs.items()
            if index in self.assigned.get(topic_id, ())
        }
        return self._replace(member_epoch=member_epoch, pending_revocation={}, epochs=epochs)


class ResolvedRegex(NamedTuple):
    """The topics a pattern matched, when it was last looked at."""

    topic_names: tuple[str, ...]
    metadata_version: int
    resolved_at_ms: int


class GroupEpochBumped(NamedTuple):
    group_id: str
    epoch: int | None


class SubscribedTopicsChanged(NamedTuple):
    group_id: str
    topics: tuple[SubscribedTopic, ...] | None


class MemberSubscribed(NamedTuple):
    group_id: str
    member_id: str
    subscription: Subscription | None


class TargetEpochReached(NamedTuple):
    group_id: str
    epoch: int | None


class TargetAssigned(NamedTuple):
    group_id: str
    member_id: str
    target: Assignment | None


class MemberReconciled(NamedTuple):
    group_id: str
    member_id: str
    current: CurrentAssignment | None


class RegexResolved(NamedTuple):
    group_id: str
    regex: str
    resolved: ResolvedRegex | None


ConsumerGroupRecord = (
    GroupEpochBumped
    | SubscribedTopicsChanged
    | MemberSubscribed
    | TargetEpochReached
    | TargetAssigned
    | MemberReconciled
    | RegexResolved
)


def encode(record: ConsumerGroupRecord) -> tuple[bytes, bytes | None]:
    """(key, value); the value is None for a tombstone."""
    match record:
        case GroupEpochBumped(group_id, epoch):
            return record_key(_GROUP_EPOCH, group_id), epoch_value(epoch)
        case SubscribedTopicsChanged(group_id, topics):
            return record_key(_TOPICS, group_id), _topics_value(topics)
        case MemberSubscribed(group_id, member_id, subscription):
            return record_key(_MEMBER, group_id, member_id), _subscription_value(subscription)
        case TargetEpochReached(group_id, epoch):
            return record_key(_TARGET_EPOCH, group_id), epoch_value(epoch)
        case TargetAssigned(group_id, member_id, target):
            return record_key(_TARGET, group_id, member_id), target_value(target)
        case MemberReconciled(group_id, member_id, current):
            return record_key(_CURRENT, group_id, member_id), _current_value(current)
        case RegexResolved(group_id, regex, resolved):
            return record_key(_REGEX, group_id, regex), _regex_value(resolved)


def decode(kind: int, key: FieldReader, value: bytes | None) -> ConsumerGroupRecord | None:
    """The record of a key whose type has been read; None for types that are not ours."""
    match kind:
        case 3:
            return GroupEpochBumped(key.string(), read_value(value, FieldReader.i32))
        case 4:
            return SubscribedTopicsChanged(key.string(), read_value(value, _read_topics))
        case 5:
            return MemberSubscribed(
                key.string(), key.string(), read_value(value, _read_subscription)
            )
        case 6:
            return TargetEpochReached(key.string(), read_value(value, FieldReader.i32))
        case 7:
            return TargetAssigned(key.string(), key.string(), read_value(value, read_assignment))
        case 8:
            return MemberReconciled(key.string(), key.string(), read_value(value, _read_current))
        case 16:
            return RegexResolved(key.string(), key.string(), read_value(value, _read_regex))
    return None


def _topics_value(topics: tuple[SubscribedTopic, ...] | None) -> bytes | None:
    if topics is None:
        return None

    def write(writer: FieldWriter, topic: SubscribedTopic) -> None:
        writer.uid(topic.topic_id).string(topic.name).i32(topic.partition_count)
        writer.strings(()).tags()  # no racks

    return new_value().array(topics, write).tags().done()


def _read_topics(reader: FieldReader) -> tuple[SubscribedTopic, ...]:
    return reader.array(_read_topic)


def _read_topic(reader: FieldReader) -> SubscribedTopic:
    topic = SubscribedTopic(reader.uid(), reader.string(), reader.i32())

    def skip_racks(fields: FieldReader) -> None:
        fields.i32()
        fields.strings()
        fields.tags()

    reader.array(skip_racks)
    reader.tags()
    return topic


def _subscription_value(subscription: Subscription | None) -> bytes | None:
    if subscription is None:
        return None
    writer = new_value().string(subscription.instance_id).string(subscription.rack_id)
    writer.string(subscription.client_id).string(subscription.client_host)
    writer.strings(subscription.topic_names).string(subscription.topic_regex)
    writer.i32(subscription.rebalance_timeout_ms).string(subscription.server_assignor)
    classic = subscription.classic
    if classic is None:
        return writer.tags().done()
    # A nullable structure in a tag starts with a byte that says it is there.
    tag = FieldWriter(flexible=True).i8(1).i32(classic.session_timeout_ms)

    def write(fields: FieldWriter, protocol: tuple[str, bytes]) -> None:
        fields.string(protocol[0]).blob(protocol[1]).tags()

    return writer.tags([(0, tag.array(classic.protocols, write).tags().done())]).done()


def _read_subscription(reader: FieldReader) -> Subscription:
    subscription = Subscription(
        reader.nullable_string(),
        reader.nullable_string(),
        reader.string(),
        reader.string(),
        reader.strings(),
        reader.nullable_string(),
        reader.i32(),
        reader.nullable_string(),
    )
    tag = reader.tags().get(0)
    if not tag or tag[0] != 1:
        return subscription
    fields = FieldReader(tag[1:], flexible=True)

    def read(fields: FieldReader) -> tuple[str, bytes]:
        protocol = (fields.string(), fields.blob())
        fields.tags()
        return protocol

    classic = ClassicMetadata(fields.i32(), fields.array(read))
    return subscription._replace(classic=classic)


def _current_value(current: CurrentAssignment | None) -> bytes | None:
    if current is None:
        return None
    writer = new_value().i32(current.member_epoch).i32(current.previous_epoch).i8(current.state)
    write_dated_assignment(writer, current.assigned, current.epochs)
    write_dated_assignment(writer, current.pending_revocation, current.epochs)
    return writer.tags().done()


def _read_current(reader: FieldReader) -> CurrentAssignment:
    member_epoch, previous_epoch, state = reader.i32(), reader.i32(), reader.i8()
    assigned, epochs = read_dated_assignment(reader)
    revoked, before = read_dated_assignment(reader)
    return CurrentAssignment(
        member_epoch, previous_epoch, state, assigned, revoked, {**epochs, **before}
    )


def _regex_value(resolved: ResolvedRegex | None) -> bytes | None:
    if resolved is None:
        return None
    writer = new_value().strings(resolved.topic_names)
    return writer.i64(resolved.metadata_version).i64(resolved.resolved_at_ms).tags().done()


def _read_regex(reader: FieldReader) -> ResolvedRegex:
    return ResolvedRegex(reader.strings(), reader.i64(), reader.i64())
