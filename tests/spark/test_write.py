"""Writes: columns, partitions as Java's producers choose them, all at once or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Topics = Callable[..., str]


def _write(frame: Any, bootstrap: str, **options: str) -> None:
    writer = frame.write.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    writer.mode("append").options(**options).save()


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_key_value_headers_partition_and_topic_columns(
    spark: Any, bootstrap: str, topic: Topics, records: Any, delivery: str
) -> None:
    one, two = topic("write-a", 2), topic("write-b", 2)
    rows = [(one, "k1", "v1", 1, [("h", b"x")]), (two, None, "v2", None, None)]
    kinds = (
        "topic string, key string, value string, partition int, "
        "headers array<struct<key:string,value:binary>>"
    )
    _write(spark.createDataFrame(rows, kinds), bootstrap, delivery=delivery)
    (first,) = records(one)
    assert (first.key(), first.value(), first.partition()) == (b"k1", b"v1", 1)
    assert first.headers() == [("h", b"x")]
    (second,) = records(two)
    assert (second.key(), second.value(), second.headers()) == (None, b"v2", None)


def test_rows_go_where_javas_partitioner_sends_their_keys(
    spark: Any, bootstrap: str, topic: Topics, records: Any
) -> None:
    from aiokafka.partitioner import murmur2

    name = topic("hashed", 5)
    frame = spark.range(500).selectExpr("concat('key-', id * id) key", "cast(id as string) value")
    _write(frame, bootstrap, topic=name, **{"kafka.compression.type": "lz4"})
    found = records(name, 5)
    assert len(found) == 500
    for record in found:
        assert record.partition() == (murmur2(record.key()) & 0x7FFFFFFF) % 5


def test_rows_without_keys_are_spread(
    spark: Any, bootstrap: str, topic: Topics, records: Any
) -> None:
    name = topic("spread", 4)
    _write(spark.range(4000).selectExpr("cast(id as string) value"), bootstrap, topic=name)
    found = records(name, 4)
    assert sorted(int(record.value()) for record in found) == list(range(4000))
    assert {record.partition() for record in found} == {0, 1, 2, 3}


def test_an_output_too_large_to_carry_along_is_parked_and_swept(
    spark: Any, bootstrap: str, topic: Topics, records: Any
) -> None:
    name = topic("parked", 2)
    # More than one fetch a task: the commit reads the next piece while it writes this one.
    frame = spark.range(0, 20000, 1, 2).selectExpr(
        "cast(id as string) key", "concat(id, repeat('x', 1000)) value"
    )
    options = {"delivery": "exactly-once", "stageInlineBytes": "100000"}
    _write(frame, bootstrap, topic=name, **options)
    found = records(name, 2)
    assert sorted(int(record.key()) for record in found) == list(range(20000))


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("cast(id as string) value", {}, "the option 'topic' is required"),
        ("cast(id as string) key", {"topic": "t"}, "the column 'value' is required"),
        ("id value", {"topic": "t"}, "is bigint; it must be string or binary"),
        ("'a' value, 1 colour", {"topic": "t"}, "cannot be written"),
        ("'a' value", {"topic": "t", "delivery": "twice"}, "none of exactly-once"),
    ],
)
def test_wrong_columns_are_refused_in_words(
    spark: Any, bootstrap: str, columns: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        _write(spark.range(1).selectExpr(*columns.split(", ")), bootstrap, **options)


def test_a_topic_cannot_be_overwritten(spark: Any, bootstrap: str) -> None:
    writer = spark.range(1).selectExpr("'a' value").write.format("penstock")
    writer.options(topic="t", **{"kafka.bootstrap.servers": bootstrap})
    with pytest.raises(Exception, match="cannot be overwritten"):
        writer.mode("overwrite").save()


def test_a_replayed_batch_is_recognised_and_left_alone(
    spark: Any, bootstrap: str, topic: Topics, fill: Any, records: Any, checkpoint: str
) -> None:
    from pathlib import Path

    source, target = topic("in", 2), topic("out", 2)
    fill(source, [b"%05d" % at for at in range(500)])

    def run() -> None:
        frame = (
            spark.readStream.format("penstock")
            .options(
                **{"kafka.bootstrap.servers": bootstrap},
                subscribe=source,
                startingOffsets="earliest",
                maxOffsetsPerTrigger="200",
            )
            .load()
        )
        query = (
            frame.select("key", "value")
            .writeStream.format("penstock")
            .options(**{"kafka.bootstrap.servers": bootstrap}, topic=target)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(90)

    run()
    assert len(records(target)) == 500
    commits = sorted(Path(checkpoint, "commits").glob("[0-9]*"), key=lambda p: int(p.name))
    commits[-1].unlink()  # as if the driver had died between our commit and Spark's
    run()
    values = sorted(record.value() for record in records(target))
    assert values == [b"%05d" % at for at in range(500)]
