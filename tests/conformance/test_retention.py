"""Retention and compaction, as clients see them: what old data disappears, what must stay."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from support.clients import Record
from support.clients.confluent import Confluent, consumer
from support.clients.transactional import ConfluentTransactions
from support.waiting import eventually

Name = Callable[[str], str]
MakeTopic = Callable[..., str]
PATIENCE_S = 45

COMPACT = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.01",
    "segment_ms": "500",
    "delete_retention_ms": "0",
}


def everything(bootstrap: str, topic: str, *, committed_only: bool = False) -> list[Record]:
    """All that is there now, up to the end that a reader is told."""
    level = "read_committed" if committed_only else "read_uncommitted"
    source = consumer(bootstrap, enable_partition_eof=True, isolation_level=level)
    source.assign([TopicPartition(topic, 0, 0)])
    found: list[Record] = []
    while True:
        message = source.poll(10)
        assert message is not None, "no end of partition within 10 s"
        if message.error():
            assert message.error().name() == "_PARTITION_EOF", message.error()
            source.close()
            return found
        found.append(Record(message.value(), message.key(), offset=message.offset()))


def table(records: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


def test_old_segments_are_deleted_by_time(confluent: Confluent, make_topic: MakeTopic) -> None:
    topic = make_topic(retention_ms=1000, segment_ms=100)
    confluent.produce(topic, [Record(b"%d" % n) for n in range(10)])

    def first() -> int:
        confluent.produce(topic, [Record(b"tick")])
        return confluent.watermarks(topic)[0]

    eventually(lambda: first() >= 10, within=PATIENCE_S, every=0.2)
    low, high = confluent.watermarks(topic)
    assert 10 <= low <= high


def test_old_segments_are_deleted_by_size(
    confluent: Confluent, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(retention_bytes=3_000_000, segment_bytes=1_048_576)
    for _ in range(10):
        confluent.produce(topic, [Record(b"x" * 900_000)])
    eventually(lambda: confluent.watermarks(topic)[0] >= 5, within=PATIENCE_S)
    low, high = confluent.watermarks(topic)
    assert high == 10
    assert (high - low) * 900_000 >= 2_000_000, "no more than asked for is deleted"
    kept = everything(bootstrap, topic)
    assert [record.offset for record in kept] == list(range(low, 10))


def test_a_reader_of_deleted_records_goes_on_at_the_first_that_is_left(
    confluent: Confluent, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(retention_bytes=2_000_000, segment_bytes=1_048_576)
    for _ in range(8):
        confluent.produce(topic, [Record(b"x" * 900_000)])
    eventually(lambda: confluent.watermarks(topic)[0] > 0, within=PATIENCE_S)

    def begins_there() -> bool:  # it may have moved on in between
        return everything(bootstrap, topic)[0].offset == confluent.watermarks(topic)[0]

    eventually(begins_there, within=PATIENCE_S)


def test_nothing_is_deleted_when_retention_is_without_limit(
    confluent: Confluent, make_topic: MakeTopic
) -> None:
    topic = make_topic(retention_ms=-1, retention_bytes=-1, segment_ms=100)
    control = make_topic(retention_ms=500, segment_ms=100)
    for each in (topic, control):
        confluent.produce(each, [Record(b"old", timestamp=1_000_000_000_000)])

    def control_is_gone() -> bool:
        for each in (topic, control):
            confluent.produce(each, [Record(b"tick")])
        return confluent.watermarks(control)[0] > 0

    eventually(control_is_gone, within=PATIENCE_S, every=0.2)
    assert confluent.watermarks(topic)[0] == 0


def test_retention_can_be_shortened_while_the_broker_runs(
    admin: AdminClient, confluent: Confluent, make_topic: MakeTopic
) -> None:
    topic = make_topic(segment_ms=100)
    confluent.produce(topic, [Record(b"old", timestamp=int(time.time() * 1000) - 3_600_000)])
    entry = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(10)

    def gone() -> bool:
        confluent.produce(topic, [Record(b"tick")])
        return confluent.watermarks(topic)[0] > 0

    eventually(gone, within=PATIENCE_S, every=0.2)


def compacted(confluent: Confluent, bootstrap: str, topic: str, keys: int) -> list[Record]:
    """Write to a key of its own until the others were compacted to `keys` records; those."""

    def done() -> list[Record] | None:
        confluent.produce(topic, [Record(b"tick", b"clock")])
        kept = [one for one in everything(bootstrap, topic) if one.key != b"clock"]
        return kept if len(kept) <= keys else None

    kept = eventually(done, within=PATIENCE_S, every=0.2, what="compaction")
    assert kept is not None
    return kept


def test_compaction_keeps_the_last_value_of_every_key_at_its_offset(
    confluent: Confluent, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(**COMPACT)
    for generation in range(5):
        confluent.produce(
            topic, [Record(b"%d" % generation, b"key %d" % n) for n in range(10)], codec="lz4"
        )
    kept = compacted(confluent, bootstrap, topic, 10)
    assert table(kept) == [(b"key %d" % n, b"4") for n in range(10)]
    assert [record.offset for record in kept] == list(range(40, 50)), "offsets never change"
    assert confluent.watermarks(topic)[0] == 0


def test_a_tombstone_removes_its_key_and_then_itself(
    confluent: Confluent, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(**COMPACT)
    confluent.produce(topic, [Record(b"1", b"stays"), Record(b"1", b"goes")])
    confluent.produce(topic, [Record(None, b"goes"), Record(b"2", b"stays")])
    kept = compacted(confluent, bootstrap, topic, 1)
    assert table(kept) == [(b"stays", b"2")]


def test_a_tombstone_stays_for_its_time(
    confluent: Confluent, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(**{**COMPACT, "delete_retention_ms": "3600000"})
    confluent.produce(topic, [Record(b"1", b"gone"), Record(b"1", b"here")])
    confluent.produce(topic, [Record(None, b"gone"), Record(b"2", b"here")])
    kept = compacted(confluent, bootstrap, topic, 2)
    assert table(kept) == [(b"gone", None), (b"here", b"2")]


def test_compaction_waits_for_the_lag_that_was_asked_for(
    confluent: Confluent, bootstrap: str, make_topic: MakeTopic
) -> None:
    patient = make_topic(**COMPACT, min_compaction_lag_ms=3_600_000)
    control = make_topic(**COMPACT)
    for topic in (patient, control):
        confluent.produce(topic, [Record(b"%d" % n, b"same") for n in range(5)])
    compacted(confluent, bootstrap, control, 1)
    assert len([one for one in everything(bootstrap, patient) if one.key == b"same"]) == 5


def test_compaction_respects_transactions(
    confluent: Confluent, bootstrap: str, make_topic: MakeTopic, name: Name
) -> None:
    """Aborted records go, committed ones win or lose by offset like any other."""
    topic = make_topic(**COMPACT)
    writer = ConfluentTransactions(bootstrap, name("tx"))

    def transaction(value: bytes, *, commit: bool) -> None:
        writer.begin()
        for key in (b"a", b"b"):
            writer.producer.produce(topic, value, key, 0)
        if commit:
            writer.commit()
        else:
            writer.abort()

    transaction(b"first", commit=True)
    transaction(b"second", commit=True)
    transaction(b"aborted", commit=False)
    kept = compacted(confluent, bootstrap, topic, 2)
    assert table(kept) == [(b"a", b"second"), (b"b", b"second")]
    again = [
        one for one in everything(bootstrap, topic, committed_only=True) if one.key != b"clock"
    ]
    assert table(again) == table(kept)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compaction_understands_every_codec(
    confluent: Confluent, bootstrap: str, make_topic: MakeTopic, codec: str
) -> None:
    topic = make_topic(**COMPACT)
    for value in (b"old", b"new"):
        confluent.produce(topic, [Record(value, b"%d" % n) for n in range(20)], codec=codec)
    kept = compacted(confluent, bootstrap, topic, 20)
    assert table(kept) == [(b"%d" % n, b"new") for n in range(20)]


def test_a_topic_may_be_both_compacted_and_deleted(
    confluent: Confluent, make_topic: MakeTopic
) -> None:
    topic = make_topic(**{**COMPACT, "cleanup_policy": "compact,delete", "retention_ms": "60000"})
    old = int(time.time() * 1000) - 3_600_000
    confluent.produce(topic, [Record(b"v", b"key %d" % n, timestamp=old) for n in range(10)])
    confluent.produce(topic, [Record(b"tick", b"clock")])
    eventually(lambda: confluent.watermarks(topic)[0] >= 10, within=PATIENCE_S)
