"""Ranges of topics and tables, written elsewhere once, counted and summed on both sides."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline import dry_run, load, run
from penstock.spark.pipeline.document import PipelineInvalid
from penstock.spark.pipeline.replay import NotTheSame

NOW_S = int(time.time()) - 3600
ORDERS = "id BIGINT, item STRING"


def _time(at: int) -> str:
    return datetime.fromtimestamp(NOW_S + at, UTC).isoformat()


def _rows(low: int, high: int) -> list[dict[str, Any]]:
    return [
        {
            "key": f"k{at}",
            "value": json.dumps({"id": at, "item": f"i{at % 3}"}),
            "headers": [("n", str(at).encode())],
            "partition": at % 2,
            "timestamp": (NOW_S + at) * 1000,
        }
        for at in range(low, high)
    ]


def test_a_range_by_offset_goes_to_another_topic_with_everything_kept_and_only_once(
    spark: Any, topic: Any, fill: Any, records: Any, pipeline: Any, name: Any
) -> None:
    source, target = topic("source", 2), name("target")
    fill(source, _rows(0, 100))
    start, end = (json.dumps({source: {"0": at, "1": at + 5}}) for at in (10, 30))
    said = pipeline(f"""
kind = "replay"
keep_partitions = true
[source]
bootstrap = "BOOTSTRAP"
topic = "{source}"
start = '{start}'
end = '{end}'
[sink]
kind = "topic"
topic = "{target}"
""")
    assert dry_run(said, spark)["rows"] == 40
    done = run(said, spark=spark)
    assert done.read == done.written
    assert done.read.rows == 40
    assert not done.already

    def facts(name: str) -> set[Any]:
        return {
            (m.key(), m.value(), m.partition(), m.timestamp()[1], m.headers()[0])
            for m in records(name)
        }

    assert len(facts(target)) == 40
    assert facts(target) < facts(source)
    assert run(said, spark=spark).already
    assert len(records(target)) == 40


def test_a_range_by_time_becomes_a_table_and_the_table_a_topic(
    spark: Any, topic: Any, fill: Any, records: Any, pipeline: Any
) -> None:
    source, target = topic("source", 2), topic("target", 1)
    fill(source, _rows(0, 60))
    done = run(
        pipeline(f"""
kind = "replay"
[source]
bootstrap = "BOOTSTRAP"
topic = "{source}"
start = "{_time(20)}"
end = "{_time(40)}"
[decode]
schema = "{ORDERS}"
on_error = "drop"
[sink]
kind = "iceberg"
path = "DIR/lake"
table = "shop.orders"
"""),
        spark=spark,
    )
    assert done.written.rows == 20
    back = run(
        pipeline(f"""
kind = "replay"
[source]
bootstrap = "BOOTSTRAP"
table = "DIR/lake#shop.orders"
format = "iceberg"
where = "id % 2 = 0"
[sink]
kind = "topic"
topic = "{target}"
key = "item"
value = "to_json(struct(id))"
"""),
        spark=spark,
    )
    assert back.written.rows == 10
    found = records(target, 1)
    assert sorted(json.loads(m.value())["id"] for m in found) == list(range(20, 40, 2))
    assert {m.key() for m in found} <= {b"i0", b"i1", b"i2"}


def test_a_backfill_into_a_partitioned_delta_table_is_verified(
    spark: Any, topic: Any, fill: Any, pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    from penstock.spark.pipeline import replay
    from penstock.spark.pipeline.steps import table_frame

    source = topic("source", 2)
    fill(source, _rows(0, 50))
    said = pipeline(f"""
kind = "replay"
[source]
bootstrap = "BOOTSTRAP"
topic = "{source}"
[decode]
schema = "{ORDERS}"
on_error = "drop"
[sink]
kind = "delta"
path = "DIR/lake"
partition_by = ["item"]
""")
    assert run(said, spark=spark).written.rows == 50
    found = table_frame(spark, "delta", said.sink.path).groupBy("item").count().collect()
    assert {row["item"]: row["count"] for row in found} == {"i0": 17, "i1": 17, "i2": 16}
    # Somebody writes to the table in the middle of the second backfill: that is noticed.
    fill(source, _rows(50, 60))
    summed = replay._table_sum
    calls: list[int] = []

    def disturbed(*place: Any) -> Any:
        if calls:
            row = pa.table({"id": pa.array([7], pa.int64()), "item": ["x"]})
            write_deltalake(said.sink.path, row, mode="append")
        calls.append(1)
        return summed(*place)

    monkeypatch.setattr(replay, "_table_sum", disturbed)
    with pytest.raises(NotTheSame, match=r"read 60 rows .* but 61"):
        run(said, spark=spark)


def test_a_replay_onto_its_own_source_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "r.toml"
    text = 'kind = "replay"\n[source]\ntopic = "a"\n[sink]\nkind = "topic"\ntopic = "a"\n'
    file.write_text(text)
    with pytest.raises(PipelineInvalid, match=r"r\.toml:6: sink\.topic: is the topic that is read"):
        load(file)
    file.write_text(text.replace('topic = "a"\n[', 'topic = "a"\nstart = "soon"\n['))
    with pytest.raises(PipelineInvalid, match=r"r\.toml:4: source\.start"):
        load(file)


def test_what_has_no_value_or_cannot_be_decoded_is_dropped_as_in_a_flow(
    spark: Any, topic: Any, fill: Any, pipeline: Any
) -> None:
    source = topic("dropped", 1)
    fill(source, [b'{"id": 1}', b"no json", ("key", None), b'{"id": 2}'])
    text = f"""
kind = "replay"
[source]
bootstrap = "BOOTSTRAP"
topic = "{source}"
[decode]
schema = "id BIGINT"
on_error = "drop"
[sink]
kind = "parquet"
path = "DIR/lake"
"""
    assert run(pipeline(text), spark=spark).written.rows == 2
    backwards = f"""start = '{{"{source}": {{"0": 3}}}}'\nend = '{{"{source}": {{"0": 1}}}}'"""
    with pytest.raises(SparkConnectorError, match="the start is after the end"):
        run(pipeline(text.replace("[decode]", f"{backwards}\n[decode]")), spark=spark)
