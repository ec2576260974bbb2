"""Streaming reads: triggers, limits, restarts, loss, groups."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Topics = Callable[..., str]


def _source(spark: Any, bootstrap: str, name: str, **options: Any) -> Any:
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    options = {"subscribe": name, "startingOffsets": "earliest", **options}
    return reader.options(**options).load()


def _run(frame: Any, checkpoint: str, out: Path, **trigger: Any) -> Any:
    """One run to a Parquet table; the query, finished."""
    query = (
        frame.selectExpr("CAST(value AS STRING) value", "partition", "offset")
        .writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", checkpoint)
        .trigger(**(trigger or {"availableNow": True}))
        .start()
    )
    assert query.awaitTermination(60)
    return query


def _table(spark: Any, out: Path) -> list[str]:
    rows = spark.read.schema("value string").parquet(str(out)).collect()
    return sorted(row.value for row in rows)


def _numbers(low: int, high: int) -> list[bytes]:
    return [b"%05d" % at for at in range(low, high)]


def _texts(low: int, high: int) -> list[str]:
    return [f"{at:05d}" for at in range(low, high)]


def test_available_now_reads_what_is_there_in_limited_batches_and_goes_on_later(
    spark: Any, bootstrap: str, topic: Topics, fill: Any, checkpoint: str, tmp_path: Path
) -> None:
    name = topic("now", 2)
    fill(name, _numbers(0, 1000))
    frame = _source(spark, bootstrap, name, maxOffsetsPerTrigger="400")
    query = _run(frame, checkpoint, tmp_path / "out")
    batches = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    assert len(batches) == 3
    assert max(batches) <= 400
    assert _table(spark, tmp_path / "out") == _texts(0, 1000)
    fill(name, _numbers(1000, 1500))
    _run(_source(spark, bootstrap, name), checkpoint, tmp_path / "out")
    assert _table(spark, tmp_path / "out") == _texts(0, 1500)


def test_latest_is_where_the_query_first_began_even_if_batch_zero_never_finished(
    spark: Any, bootstrap: str, topic: Topics, fill: Any, checkpoint: str, tmp_path: Path
) -> None:
    name = topic("first", 1)
    fill(name, _numbers(0, 100))
    frame = _source(spark, bootstrap, name, startingOffsets="latest")
    _run(frame, checkpoint, tmp_path / "out")
    # As after a crash before the commit: batch 0 is planned, not committed.
    (Path(checkpoint) / "commits" / "0").unlink()
    fill(name, _numbers(100, 200))
    frame = _source(spark, bootstrap, name, startingOffsets="latest")
    _run(frame, checkpoint, tmp_path / "out")
    assert _table(spark, tmp_path / "out") == _texts(100, 200)


def test_partitions_added_while_the_query_is_away_are_read_from_their_start(
    spark: Any, bootstrap: str, topic: Topics, fill: Any, checkpoint: str, tmp_path: Path
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    name = topic("grows", 1)
    fill(name, _numbers(0, 50))
    _run(_source(spark, bootstrap, name), checkpoint, tmp_path / "out")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_partitions([NewPartitions(name, 2)]).values():
        future.result(20)
    fill(name, [{"value": value, "partition": 1} for value in _numbers(50, 100)])
    _run(_source(spark, bootstrap, name), checkpoint, tmp_path / "out")
    assert _table(spark, tmp_path / "out") == _texts(0, 100)


def test_progress_is_a_consumer_groups_lag_and_a_group_can_be_the_start(
    spark: Any, bootstrap: str, topic: Topics, fill: Any, name: Any, tmp_path: Path
) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient

    source, group = topic("grouped", 1), name("group")
    fill(source, _numbers(0, 300))
    frame = _source(spark, bootstrap, source, commitGroup=group, maxOffsetsPerTrigger="100")
    _run(frame, str(tmp_path / "one"), tmp_path / "out-one")
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    (committed,) = asked[group].result(20).topic_partitions
    # Spark tells the source about a batch when it plans the next, so the last one may be missing.
    assert committed.offset in (200, 300)
    frame = _source(spark, bootstrap, source, startingOffsets="group", **{"kafka.group.id": group})
    _run(frame, str(tmp_path / "two"), tmp_path / "out-two")
    assert _table(spark, tmp_path / "out-two") == _texts(committed.offset, 300) or (
        committed.offset == 300
    )


def test_bytes_per_trigger_limit_a_batch(
    spark: Any, bootstrap: str, topic: Topics, fill: Any, checkpoint: str, tmp_path: Path
) -> None:
    name = topic("bytes", 1)
    fill(name, [b"%05d" % at + b"x" * 1000 for at in range(1000)], **{"batch.size": 20_000})
    frame = _source(spark, bootstrap, name, maxBytesPerTrigger="300000")
    query = _run(frame, checkpoint, tmp_path / "out")
    batches = [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]
    assert sum(batches) == 1000
    assert all(batch <= 400 for batch in batches)
    assert len(batches) >= 3


def test_lag_is_in_the_progress_by_partition(
    spark: Any, bootstrap: str, topic: Topics, fill: Any, checkpoint: str, tmp_path: Path
) -> None:
    name = topic("lag", 1)
    fill(name, _numbers(0, 300))
    frame = _source(spark, bootstrap, name, maxOffsetsPerTrigger="100")
    query = _run(frame, checkpoint, tmp_path / "out")
    source = query.recentProgress[0]["sources"][0]
    ends = [
        json.loads(part) if isinstance(part, str) else part
        for part in (source["latestOffset"], source["endOffset"])
    ]
    assert ends[0][name]["0"] - ends[1][name]["0"] == 200


def test_records_that_vanish_between_runs_fail_the_query(
    spark: Any, bootstrap: str, topic: Topics, fill: Any, checkpoint: str, tmp_path: Path
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    name = topic("vanish", 1)
    fill(name, _numbers(0, 50))
    _run(_source(spark, bootstrap, name), checkpoint, tmp_path / "out")
    fill(name, _numbers(50, 150))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(name, 0, 100)]).values():
        future.result(20)
    with pytest.raises(Exception, match="failOnDataLoss"):
        _run(_source(spark, bootstrap, name), checkpoint, tmp_path / "out")
    allowed = _source(spark, bootstrap, name, failOnDataLoss="false")
    _run(allowed, checkpoint, tmp_path / "out")
    assert _table(spark, tmp_path / "out") == [*_texts(0, 50), *_texts(100, 150)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"endingOffsets": "latest"}, "not valid in a streaming query"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "is above"),
        ({"startingOffsets": "group"}, "needs kafka.group.id"),
    ],
)
def test_wrong_stream_options_are_refused(
    spark: Any,
    bootstrap: str,
    checkpoint: str,
    tmp_path: Path,
    options: dict[str, str],
    words: str,
) -> None:
    with pytest.raises(Exception, match=words):
        _run(_source(spark, bootstrap, "any", **options), checkpoint, tmp_path / "out")


@pytest.mark.own_broker
def test_a_broker_that_restarts_in_mid_query_is_waited_for(
    spark: Any, start_broker: Callable[..., Any], checkpoint: str, tmp_path: Path
) -> None:
    import time

    from support.broker import free_port

    from .conftest import fill_topic

    broker = start_broker(port=free_port())
    (tmp_path / "out").mkdir()
    fill_topic(broker.bootstrap, "restarts", _numbers(0, 100))
    query = (
        _source(spark, broker.bootstrap, "restarts")
        .selectExpr("CAST(value AS STRING) value")
        .writeStream.format("parquet")
        .options(path=str(tmp_path / "out"), checkpointLocation=checkpoint)
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    try:
        for low in (0, 100, 200):
            if low:
                broker.stop()
                broker.start()
                fill_topic(broker.bootstrap, "restarts", _numbers(low, low + 100))
            deadline = time.monotonic() + 90
            while _table(spark, tmp_path / "out") != _texts(0, low + 100):
                assert query.exception() is None
                assert time.monotonic() < deadline, query.lastProgress
                time.sleep(0.3)
    finally:
        query.stop()


def test_a_query_goes_on_with_a_wider_schema(
    spark: Any, bootstrap: str, topic: Topics, fill: Any, checkpoint: str, tmp_path: Path
) -> None:
    name = topic("wider", 1)

    def run(schema: str, columns: list[str]) -> None:
        frame = _source(spark, bootstrap, name, valueFormat="json", valueSchema=schema)
        query = (
            frame.select(*(f"value.{column}" for column in columns))
            .writeStream.format("json")
            .options(path=str(tmp_path / "out"), checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    fill(name, [b'{"id": 1}', b'{"id": 2, "item": "tea"}'])
    run("id BIGINT", ["id"])
    fill(name, [b'{"id": 3}', b'{"id": 4, "item": "salt"}'])
    run("id BIGINT, item STRING", ["id", "item"])
    rows = spark.read.schema("id BIGINT, item STRING").json(str(tmp_path / "out")).collect()
    assert sorted((row.id, row.item or "") for row in rows) == [
        (1, ""), (2, ""), (3, ""), (4, "salt"),
    ]  # fmt: skip


def test_records_are_written_once_or_at_least_once_as_asked(
    spark: Any, bootstrap: str, topic: Topics, fill: Any, records: Any, tmp_path: Path
) -> None:
    name = topic("either", 1)
    fill(name, _numbers(0, 50))
    for delivery in ("exactly-once", "at-least-once"):
        target = topic(f"out-{delivery}", 1)
        query = (
            _source(spark, bootstrap, name)
            .select("value")
            .writeStream.format("penstock")
            .options(**{"kafka.bootstrap.servers": bootstrap}, topic=target, delivery=delivery)
            .option("checkpointLocation", str(tmp_path / delivery))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        assert [record.value() for record in records(target, 1)] == _numbers(0, 50)
        # A transaction ends with a marker, which takes an offset: the way to tell them apart.
        (place,) = _ends(bootstrap, target).values()
        assert place.offset == (51 if delivery == "exactly-once" else 50)


def _ends(bootstrap: str, topic: str) -> dict[Any, Any]:
    from penstock.spark.cluster import LATEST, Cluster, TopicPartition

    cluster = Cluster(bootstrap)
    found: dict[Any, Any] = cluster.offsets_at({TopicPartition(topic, 0): LATEST})
    cluster.forget()
    return found


def test_a_wrong_option_of_a_stream_is_the_last_line_of_the_failure(
    spark: Any, bootstrap: str, topic: Any, checkpoint: str
) -> None:
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    frame = reader.options(subscribe=topic("wrong", 1), maxOffsetsPerTrigger="few").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    with pytest.raises(Exception, match="'few' is not a whole number") as caught:
        writer.trigger(availableNow=True).start().awaitTermination(60)
    assert "UnboundLocalError" not in str(caught.value)
