"""Pipelines from a file, on a real Spark: tables, topics, quarantine, dry run, wrong files."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from penstock.spark.pipeline import load
from penstock.spark.pipeline.document import PipelineInvalid
from penstock.spark.pipeline.flow import TooManyBadRows, dry_run, run

ORDERS = "id BIGINT, item STRING, amount DOUBLE"


def _orders(low: int, high: int, **more: Any) -> list[bytes]:
    return [
        json.dumps({"id": at, "item": f"i{at % 3}", "amount": at / 2, **more}).encode()
        for at in range(low, high)
    ]


def _file(source: str, sink: str, more: str = "", schema: str = ORDERS) -> str:
    return f"""
checkpoint = "DIR/checkpoint"
[source]
bootstrap = "BOOTSTRAP"
topic = "{source}"
[decode]
schema = "{schema}"
on_error = "null"
[trigger]
available_now = true
[sink]
{sink}
{more}
"""


def rows_of(kind: str, path: Path, name: str = "t") -> list[dict[str, Any]]:
    """All rows of a table, read without Spark."""
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    from penstock.spark.lake.table import IcebergLake

    if kind == "delta":
        table = DeltaTable(str(path)).to_pyarrow_table()
    elif kind == "iceberg":
        table = IcebergLake(str(path), name).open().scan().to_arrow()
    else:
        files = sorted(path.rglob("*.parquet"))
        table = pa.concat_tables([pq.read_table(f) for f in files], promote_options="default")
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _replay_last_batch(checkpoint: Path) -> None:
    """As after a crash between the table's commit and Spark's."""
    commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_a_topic_becomes_a_table_once_although_a_batch_is_replayed(
    spark: Any, topic: Any, fill: Any, pipeline: Any, tmp_path: Path, kind: str
) -> None:
    name = topic("lake", 2)
    fill(name, _orders(0, 300))
    said = pipeline(_file(name, f'kind = "{kind}"\npath = "DIR/lake"\ntable = "shop.orders"'))
    assert run(said, spark=spark) == 300
    _replay_last_batch(tmp_path / "checkpoint")
    run(said, spark=spark)
    # A column more: the table grows with it.
    fill(name, _orders(300, 400, note="new"))
    wider = f'kind = "{kind}"\npath = "DIR/lake"\ntable = "shop.orders"'
    run(pipeline(_file(name, wider, schema=ORDERS + ", note STRING")), spark=spark)
    lake = tmp_path / "lake"
    rows = rows_of(kind, lake, "shop.orders")
    assert Counter(row["id"] for row in rows) == Counter(range(400))
    assert Counter(row["note"] for row in rows) == {None: 300, "new": 100}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_upsert_keeps_the_newest_row_of_each_key(
    spark: Any, topic: Any, fill: Any, pipeline: Any, tmp_path: Path, kind: str
) -> None:
    name = topic("upsert", 1)
    sink = f'kind = "{kind}"\npath = "DIR/lake"\ntable = "t"\nmode = "upsert"\nkeys = ["item"]'
    sink += '\norder_by = "id"'
    fill(name, _orders(0, 30))
    run(pipeline(_file(name, sink)), spark=spark)
    fill(name, _orders(30, 32))
    run(pipeline(_file(name, sink)), spark=spark)
    _replay_last_batch(tmp_path / "checkpoint")
    run(pipeline(_file(name, sink)), spark=spark)
    lake = tmp_path / "lake"
    rows = rows_of(kind, lake, "t")
    assert {row["item"]: row["id"] for row in rows} == {"i0": 30, "i1": 31, "i2": 29}
    assert len(rows) == 3


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_is_partitioned_and_knows_its_offsets(
    spark: Any, topic: Any, fill: Any, pipeline: Any, tmp_path: Path, kind: str
) -> None:
    from deltalake import DeltaTable

    from penstock.spark.lake.table import IcebergLake

    name = topic("parts", 1)
    fill(name, _orders(0, 90))
    sink = f'kind = "{kind}"\npath = "DIR/lake"\ntable = "t"\npartition_by = ["item"]'
    run(pipeline(_file(name, sink)), spark=spark)
    lake = tmp_path / "lake"
    assert Counter(row["item"] for row in rows_of(kind, lake)) == {"i0": 30, "i1": 30, "i2": 30}
    if kind == "delta":
        table = DeltaTable(str(lake))
        assert table.metadata().partition_columns == ["item"]
        said = table.history(1)[0]["penstock.offsets"]
    else:
        opened = IcebergLake(str(lake), "t").open()
        assert [field.name for field in opened.spec().fields] == ["item"]
        assert len(list(opened.scan(row_filter="item = 'i1'").plan_files())) == 1
        said = opened.properties["penstock.offsets"]
    assert json.loads(said)[0][name] == {"0": 90}


def test_good_rows_flow_on_and_bad_ones_are_quarantined_with_the_reason(
    spark: Any, topic: Any, fill: Any, records: Any, pipeline: Any, name: Any
) -> None:
    source, target, bad = topic("raw", 2), name("clean"), name("bad")
    fill(source, [*_orders(0, 100), b"no json", b'{"id":500,"item":"x","amount":-1}'])
    more = f"""
[[steps]]
sql = "SELECT item, amount * 2 AS doubled, id FROM input WHERE id >= 50"
[[quality]]
name = "positive"
rule = "amount >= 0"
[quarantine]
topic = "{bad}"
stop_above = 0.5
"""
    sink = f'kind = "topic"\ntopic = "{target}"\nkey = "item"'
    text = _file(source, sink, more).replace('on_error = "null"', 'on_error = "quarantine"')
    assert run(pipeline(text), spark=spark) == 102
    good = [json.loads(record.value()) for record in records(target)]
    assert sorted(row["id"] for row in good) == list(range(50, 100))
    assert all(row["doubled"] == row["id"] for row in good)
    assert {record.key() for record in records(target)} == {b"i0", b"i1", b"i2"}
    reasons = {record.value(): dict(record.headers()) for record in records(bad)}
    assert len(reasons) == 2
    assert reasons[b"no json"]["penstock.reason"] == b"value is not json of the schema"
    other = reasons[b'{"id":500,"item":"x","amount":-1}']
    assert other["penstock.reason"] == b"positive"
    assert other["penstock.topic"] == source.encode()


def test_too_many_bad_rows_stop_the_pipeline(
    spark: Any, topic: Any, fill: Any, pipeline: Any, name: Any
) -> None:
    source = topic("worse", 1)
    fill(source, [b"no json"] * 6 + _orders(0, 4))
    more = f'[quarantine]\ntopic = "{name("bad")}"\nstop_above = 0.5'
    text = _file(source, 'kind = "delta"\npath = "DIR/lake"', more)
    text = text.replace('on_error = "null"', 'on_error = "quarantine"')
    with pytest.raises(TooManyBadRows, match="60"):
        run(pipeline(text), spark=spark)


def test_a_dry_run_shows_schema_sample_and_verdicts_and_writes_nothing(
    spark: Any, topic: Any, fill: Any, pipeline: Any, tmp_path: Path
) -> None:
    name = topic("dry", 1)
    fill(name, _orders(0, 20))
    said = pipeline(_file(name, 'kind = "delta"\npath = "DIR/lake"'))
    found = dry_run(said, spark)
    assert found["schema"] == ["id bigint", "item string", "amount double"]
    assert found["good"] == 20
    assert len(found["sample"]) == 10
    assert "Scan" in found["plan"]
    assert not (tmp_path / "lake").exists()


def test_a_stop_ends_after_the_batch_and_a_restart_goes_on(
    spark: Any, bootstrap: str, topic: Any, fill: Any, records: Any, pipeline: Any, name: Any
) -> None:
    source, target = topic("stops", 1), name("copied")
    fill(source, _orders(0, 100))
    group = name("progress")
    text = _file(source, f'kind = "topic"\ntopic = "{target}"')
    text = text.replace("[source]", f'[source]\ngroup = "{group}"')
    said = pipeline(text.replace("available_now = true", 'every = "200 ms"'))
    stop = threading.Event()
    run(said, spark=spark, stop=stop, show=lambda figures: stop.set())
    fill(source, _orders(100, 150))
    run(pipeline(text), spark=spark)
    ids = [json.loads(record.value())["id"] for record in records(target, 1)]
    assert sorted(ids) == list(range(150))
    # Progress is a group's, the last batch included.
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    [place] = asked[group].result(20).topic_partitions
    assert place.offset == 150


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("topic = ", "topics = "), "orders.toml:5: source.topics: is unknown here"),
        (('kind = "delta"', 'kind = "excel"'), "orders.toml:12: sink.kind: 'excel' is none of"),
        (('path = "lake"', "path = 3"), "orders.toml:13: sink.path: 3 is not a string"),
        (('checkpoint = "c"', ""), "checkpoint: is missing"),
        (("available_now = true", 'every = "soon"'), "orders.toml:10: trigger.every: is not a dur"),
        (("[sink]", "[sink"), "orders.toml:11: "),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    text = """
checkpoint = "c"
[source]
bootstrap = "127.0.0.1:9092"
topic = "orders"
[decode]
schema = "id BIGINT"
on_error = "null"
[trigger]
available_now = true
[sink]
kind = "delta"
path = "lake"
"""
    file = tmp_path / "orders.toml"
    file.write_text(text)
    load(file)
    file.write_text(text.replace(*change))
    with pytest.raises(PipelineInvalid, match=words.replace(".", r"\.")):
        load(file)


def test_yaml_says_the_same_and_errors_have_lines_too(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    text = "checkpoint: c\nsource:\n  topic: orders\nsink:\n  kind: topic\n  topic: copy\n"
    file.write_text(text)
    assert load(file).sink.topic == "copy"
    file.write_text(text.replace("kind: topic", "kind: 3"))
    with pytest.raises(PipelineInvalid, match=r"p\.yaml:5: sink\.kind"):
        load(file)
