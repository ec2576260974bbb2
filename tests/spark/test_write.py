"""Writes: columns, partitions as Java's producers choose them, all at once or not at all."""

from __future__ import annotations

import time
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
    assert not _staging_topics(bootstrap)


def _staging_topics(bootstrap: str) -> set[str]:
    from confluent_kafka.admin import AdminClient

    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).topics
    return {name for name in topics if name.startswith("__penstock_staging")}


def test_a_failed_job_leaves_nothing_visible_and_nothing_parked(
    spark: Any, bootstrap: str, topic: Topics, records: Any
) -> None:
    name = topic("failed", 1)
    frame = spark.range(0, 3000, 1, 1).selectExpr(
        "concat(if(id = 2999, raise_error('enough'), id), repeat('x', 1000)) value"
    )
    options = {"delivery": "exactly-once", "stageInlineBytes": "100000"}
    with pytest.raises(Exception, match="enough"):
        _write(frame, bootstrap, topic=name, **options)
    assert records(name, 1) == []
    assert not _staging_topics(bootstrap)


def test_staging_topics_of_dead_sinks_are_swept_and_those_of_the_living_kept(
    bootstrap: str, name: Any
) -> None:
    from penstock.spark.cluster import LATEST, Cluster, TopicPartition
    from penstock.spark.encoding import Encoded
    from penstock.spark.staging import Stage, staging_topic, sweep_orphans

    cluster = Cluster(bootstrap)
    dead, living, full = name("dead"), name("living"), name("full")
    batch = Encoded(TopicPartition("any", 0), b"x" * 100, 1)
    for sink in (dead, living, full):
        stage = Stage(cluster, sink, "attempt", inline_bytes=1)
        stage.add(batch)
        stage.finish(1)
    for sink in (dead, living):
        place = TopicPartition(staging_topic(sink), 0)
        cluster.delete_records({place: cluster.offsets_at({place: LATEST})[place].offset})
    assert sweep_orphans(cluster, {living}) == [staging_topic(dead)]
    left = set(cluster.topics())
    assert staging_topic(living) in left
    assert staging_topic(full) in left
    cluster.delete_topics([staging_topic(living), staging_topic(full)])
    cluster.forget()


def test_parked_output_is_not_taken_by_retention(bootstrap: str, name: Any) -> None:
    from penstock.spark.cluster import EARLIEST, Cluster, TopicPartition
    from penstock.spark.encoding import Encoded
    from penstock.spark.staging import Stage, drop, staging_topic

    cluster, sink = Cluster(bootstrap), name("kept")
    stage = Stage(cluster, sink, "attempt", inline_bytes=1)
    stage.add(Encoded(TopicPartition("any", 0), b"x" * 100, 1))
    time.sleep(1.5)  # the broker of the tests looks every 0.3 s
    place = TopicPartition(staging_topic(sink), 0)
    assert cluster.offsets_at({place: EARLIEST})[place].offset == 0
    drop(cluster, sink)
    cluster.forget()


def test_a_job_with_a_name_and_number_is_written_once(
    spark: Any, bootstrap: str, topic: Topics, records: Any, name: Any
) -> None:
    """As in foreachBatch, which Spark calls again for a batch that it is not sure of."""
    target, sink = topic("numbered", 1), name("sink")
    for batch in (0, 1, 1, 0):
        frame = spark.createDataFrame([(f"batch {batch}",)], "value string")
        options = {"delivery": "exactly-once", "sinkId": sink, "batchId": str(batch)}
        _write(frame, bootstrap, topic=target, **options)
    assert [record.value() for record in records(target, 1)] == [b"batch 0", b"batch 1"]


def test_records_keep_to_what_the_topic_takes(
    spark: Any, bootstrap: str, topic: Topics, records: Any
) -> None:
    name = topic("narrow", 1, max_message_bytes="20000")
    frame = spark.range(0, 300, 1, 1).selectExpr("concat(id, repeat('x', 15000)) value")
    _write(frame.limit(20), bootstrap, topic=name)
    assert len(records(name, 1)) == 20


def test_rows_that_were_read_can_be_written_as_they_are(
    reading: Any, bootstrap: str, topic: Topics, fill: Any, records: Any
) -> None:
    source, target = topic("as-is", 2), topic("as-was", 2)
    an_hour_ago = int(time.time() - 3600) * 1000
    fill(source, [{"key": b"k", "value": b"v", "partition": 1, "timestamp": an_hour_ago}])
    frame = reading(subscribe=source, includeHeaders="true")
    _write(frame, bootstrap, topic=target, **{"kafka.acks": "1", "kafka.batch.size": "16384"})
    (record,) = records(target)
    assert (record.key(), record.value(), record.partition()) == (b"k", b"v", 1)
    assert record.timestamp()[1] == an_hour_ago


HEADERS = "it must be array<struct<key:string,value:binary>>"
NO_KEY = "array(struct(string(null) key,X'00' value))"
NO_HEADER = "array(cast(null as struct<key:string,value:binary>))"


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("cast(id as string) value", {}, "the option 'topic' is required"),
        ("cast(id as string) key", {"topic": "t"}, "the column 'value' is required"),
        ("id value", {"topic": "t"}, "is bigint; it must be string or binary"),
        ("'a' value, 1 colour", {"topic": "t"}, "cannot be written"),
        ("'a' value", {"topic": "t", "delivery": "twice"}, "none of exactly-once"),
        ("'a' value", {"topic": "t", "batchId": "1"}, "batchId needs sinkId"),
        ("'a' value, cast(null as string) topic", {}, "null topic present"),
        ("'a' value, 7 partition", {"topic": "__spark_refused"}, "partition 7"),
        ("'a' value, array(struct('h' key,'x' value)) headers", {"topic": "t"}, HEADERS),
        ("'a' value, array(struct('h' a,X'00' b)) headers", {"topic": "t"}, HEADERS),
        ("'a' value, map('h',X'00') headers", {"topic": "t"}, HEADERS),
        (f"'a' value, {NO_KEY} headers", {"topic": "__spark_refused"}, "without a key"),
        (f"'a' value, {NO_HEADER} headers", {"topic": "__spark_refused"}, "null header"),
        ("'a' value", {"topic": "t", "kafka.value.serializer": "x"}, "are written as binary"),
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


def test_a_sink_id_of_another_checkpoint_is_refused(bootstrap: str, name: Any) -> None:
    from penstock.spark import ledger
    from penstock.spark.cluster import Cluster
    from penstock.spark.producing import Producer

    cluster, sink = Cluster(bootstrap), name("sink")
    place = ledger.partition_of(cluster, sink)
    now_ms = time.time_ns() // 1_000_000
    Producer(cluster).send([ledger.entry(place, sink, 7, 1, "first query", now_ms)])
    assert ledger.is_done(cluster, sink, 7, "first query")
    assert not ledger.is_done(cluster, sink, 8, "first query")
    with pytest.raises(Exception, match="belongs to a query with another checkpoint"):
        ledger.is_done(cluster, sink, 0, "second query")
    assert sink in ledger.active_since(cluster, now_ms)
    assert sink not in ledger.active_since(cluster, now_ms + 1)
    cluster.forget()
