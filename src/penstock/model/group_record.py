"""What all records of groups share: keys, the frame of values, assignments, as Kafka writes them.

Keys are non-flexible and start with the type; values are flexible (KIP-482) and start with their
version, which is 0. An assignment is a mapping from topic id to ascending partition numbers,
without empty entries; its bytes are topics of (id uuid, partitions i32s). Where it matters since
which epoch a member has each partition (KIP-1251), tag 0 of a topic holds these, in the order of
the partitions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

from penstock.errors import CorruptRecord
from penstock.model.fields import FieldReader, FieldWriter

T = TypeVar("T")
Assignment = Mapping[uuid.UUID, tuple[int, ...]]
Epochs = Mapping[tuple[uuid.UUID, int], int]  # since when, by topic id and partition
NO_EPOCHS: Epochs = MappingProxyType({})
_EPOCHS_TAG = 0


def record_key(kind: int, *parts: str) -> bytes:
    writer = FieldWriter().i16(kind)
    for part in parts:
        writer.string(part)
    return writer.done()


def new_value() -> FieldWriter:
    return FieldWriter(flexible=True).i16(0)


def read_value(value: bytes | None, read: Callable[[FieldReader], T]) -> T | None:
    """What `read` makes of the value behind its version; None for a tombstone."""
    if value is None:
        return None
    reader = FieldReader(value, flexible=True)
    version = reader.i16()
    if version != 0:
        raise CorruptRecord(f"record of a group in version {version}, only 0 is known")
    return read(reader)


def epoch_value(epoch: int | None) -> bytes | None:
    return None if epoch is None else new_value().i32(epoch).tags().done()


def target_value(target: Assignment | None) -> bytes | None:
    if target is None:
        return None
    writer = new_value()
    write_assignment(writer, target)
    return writer.tags().done()


def write_assignment(writer: FieldWriter, assignment: Assignment) -> None:
    def write(fields: FieldWriter, topic: tuple[uuid.UUID, tuple[int, ...]]) -> None:
        fields.uid(topic[0]).i32s(topic[1]).tags()

    writer.array(tuple(assignment.items()), write)


def read_assignment(reader: FieldReader) -> Assignment:
    def read(fields: FieldReader) -> tuple[uuid.UUID, tuple[int, ...]]:
        topic = (fields.uid(), tuple(sorted(fields.i32s())))
        fields.tags()
        return topic

    return {topic_id: partitions for topic_id, partitions in reader.array(read) if partitions}


def write_dated_assignment(writer: FieldWriter, assignment: Assignment, epochs: Epochs) -> None:
    def write(fields: FieldWriter, topic: tuple[uuid.UUID, tuple[int, ...]]) -> None:
        topic_id, partitions = topic
        known = [epochs[topic_id, index] for index in partitions if (topic_id, index) in epochs]
        tags = []
        if len(known) == len(partitions):
            tags.append((_EPOCHS_TAG, FieldWriter(flexible=True).i32s(known).done()))
        fields.uid(topic_id).i32s(partitions).tags(tags)

    writer.array(tuple(assignment.items()), write)


def read_dated_assignment(reader: FieldReader) -> tuple[Assignment, Epochs]:
    """The assignment, and since when each partition is in it as far as that was written."""
    epochs: dict[tuple[uuid.UUID, int], int] = {}

    def read(fields: FieldReader) -> tuple[uuid.UUID, tuple[int, ...]]:
        topic_id, partitions = fields.uid(), fields.i32s()
        dated = fields.tags().get(_EPOCHS_TAG)
        if dated is not None:
            since = FieldReader(dated, flexible=True).i32s()
            epochs.update(
                ((topic_id, index), epoch) for index, epoch in zip(partitions, since, strict=False)
            )
        return topic_id, tuple(sorted(partitions))

    topics = {topic_id: indexes for topic_id, indexes in reader.array(read) if indexes}
    return topics, epochs
