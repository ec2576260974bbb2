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
    return sorted(row.value for row in spark.read.parquet(str(out)).collect())


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
