"""Batch reads of a real topic: rows, options, bounds, refusals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

Reading = Callable[..., Any]
NOON = int(time.time()) * 1000 - 3_600_000  # an hour ago: retention must not take it


def test_rows_are_those_of_sparks_kafka_source(reading: Reading, topic: Any, fill: Any) -> None:
    name = topic("plain", 2)
    before = time.time()
    fill(name, [{"key": b"k", "value": b"v", "partition": 1, "headers": [("h", b"1")]}])
    frame = reading(subscribe=name, includeHeaders="true")
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    (row,) = frame.collect()
    assert (bytes(row.key), bytes(row.value), row.topic, row.partition, row.offset) == (
        b"k", b"v", name, 1, 0,
    )  # fmt: skip
    assert row.timestampType == 0
    assert abs(row.timestamp.timestamp() - before) < 60
    assert [(h.key, bytes(h.value)) for h in row.headers] == [("h", b"1")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_is_read_once_under_each_codec(
    reading: Reading, topic: Any, fill: Any, codec: str
) -> None:
    name = topic(f"codec-{codec}", 3)
    values = [b"%06d" % at for at in range(3000)]
    fill(name, values, **{"compression.type": codec})
    rows = reading(subscribe=name, columns="value").collect()
    assert sorted(bytes(row.value) for row in rows) == values


def _values(frame: Any) -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def _stamped(values: range, partition: int = 0) -> list[dict[str, Any]]:
    """Records a second apart: value 0100 is 100 seconds after NOON."""
    return [
        {"value": b"%04d" % at, "partition": partition, "timestamp": NOON + at * 1000}
        for at in values
    ]


def test_bounds_by_offset_cut_inside_a_batch(reading: Reading, topic: Any, fill: Any) -> None:
    name = topic("bounds", 1)
    fill(name, _stamped(range(100, 200)))
    frame = reading(
        subscribe=name,
        startingOffsets=f'{{"{name}":{{"0":10}}}}',
        endingOffsets=f'{{"{name}":{{"0":20}}}}',
    )
    assert _values(frame) == [b"%04d" % at for at in range(110, 120)]


def test_a_timestamp_wins_over_timestamps_and_offsets(
    reading: Reading, topic: Any, fill: Any
) -> None:
    name = topic("times", 1)
    fill(name, _stamped(range(100, 200)))
    frame = reading(
        subscribe=name,
        startingTimestamp=str(NOON + 150_000),
        startingOffsetsByTimestamp=f'{{"{name}":{{"0":{NOON + 190_000}}}}}',
        startingOffsets="earliest",
        endingOffsetsByTimestamp=f'{{"{name}":{{"0":{NOON + 160_000}}}}}',
    )
    assert _values(frame) == [b"%04d" % at for at in range(150, 160)]


def test_a_time_after_the_last_record_fails_or_starts_at_the_end(
    reading: Reading, topic: Any, fill: Any
) -> None:
    name = topic("late", 1)
    fill(name, _stamped(range(10)))
    late = {"subscribe": name, "startingTimestamp": str(NOON + 99_000_000)}
    with pytest.raises(Exception, match="at or after its starting time"):
        reading(**late).count()
    assert reading(**late, startingOffsetsByTimestampStrategy="latest").count() == 0


def test_assign_pattern_and_several_topics_choose_partitions(
    reading: Reading, topic: Any, fill: Any
) -> None:
    one, two = topic("choose-a", 2), topic("choose-b", 2)
    fill(one, _stamped(range(5), 0) + _stamped(range(5, 10), 1))
    fill(two, _stamped(range(10, 15), 0))
    assert reading(subscribe=f"{one},{two}").count() == 15
    assert reading(subscribePattern=f"{one[:-6]}.*").count() == 10
    assigned = reading(assign=f'{{"{one}":[1],"{two}":[0]}}')
    assert _values(assigned) == [b"%04d" % at for at in range(5, 15)]


def test_tasks_are_split_by_min_partitions_and_max_records(
    reading: Reading, topic: Any, fill: Any
) -> None:
    name = topic("split", 1)
    fill(name, _stamped(range(100)))
    finer = reading(subscribe=name, minPartitions="4")
    assert finer.rdd.getNumPartitions() == 4
    assert _values(finer) == [b"%04d" % at for at in range(100)]
    assert reading(subscribe=name, maxRecordsPerPartition="30").rdd.getNumPartitions() == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "one of assign, subscribe, subscribePattern"),
        ({"subscribe": "a", "assign": "{}"}, "only one of"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "not valid in a batch query"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "not valid in a batch query"),
        ({"subscribe": "a", "startingOffsets": "{"}, "expected e.g."),
        ({"subscribe": "a", "kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        ({"subscribe": "a", "failOnDataLoss": "perhaps"}, "neither true nor false"),
        ({"subscribe": "a", "minPartitions": "0"}, "less than 1"),
        ({"subscribe": "a", "columns": "key,colour"}, "must name some of"),
        ({"subscribe": "no-such-topic-anywhere"}, "there is no topic"),
    ],
)
def test_wrong_options_are_refused_in_words(
    reading: Reading, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        reading(**options).count()


def test_only_committed_records_are_read_unless_asked(
    reading: Reading, topic: Any, bootstrap: str, name: Any
) -> None:
    from confluent_kafka import Producer

    target = topic("committed", 1)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name("tx")})
    producer.init_transactions(20)
    for word, commit in (("a", True), ("b", False), ("c", True), ("d", False), ("e", True)):
        producer.begin_transaction()
        producer.produce(target, word.encode())
        producer.flush(10)
        (producer.commit_transaction if commit else producer.abort_transaction)(20)
    assert _values(reading(subscribe=target)) == [b"a", b"c", b"e"]
    everything = reading(subscribe=target, **{"kafka.isolation.level": "read_uncommitted"})
    assert _values(everything) == [b"a", b"b", b"c", b"d", b"e"]


def test_deleted_records_fail_the_read_unless_loss_is_allowed(
    reading: Reading, topic: Any, fill: Any, bootstrap: str
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    name = topic("lost", 1)
    fill(name, _stamped(range(100)))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(name, 0, 40)]).values():
        future.result(20)
    from_zero = {"subscribe": name, "startingOffsets": f'{{"{name}":{{"0":0}}}}'}
    with pytest.raises(Exception, match="failOnDataLoss"):
        reading(**from_zero).count()
    rest = reading(**from_zero, failOnDataLoss="false")
    assert _values(rest) == [b"%04d" % at for at in range(40, 100)]


def test_the_format_is_found_without_being_registered(topic: Any, fill: Any, spark: Any) -> None:
    import pyspark_penstock

    assert pyspark_penstock.DefaultSource.name() == "penstock"
