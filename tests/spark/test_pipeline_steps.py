"""Steps that are not SQL, values that are not JSON, tables that are not Spark's."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from penstock.spark.errors import SparkConnectorError
from penstock.spark.pipeline import run

AVRO = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def _avro(at: int, item: str | None) -> bytes:
    out = io.BytesIO()
    row = {"id": at, "item": item, "at": 1_700_000_000_000 + at}
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), row)
    return out.getvalue()


def _file(source: str, target: str, decode: str, more: str) -> str:
    return f"""
checkpoint = "DIR/checkpoint"
[source]
bootstrap = "BOOTSTRAP"
topic = "{source}"
[decode]
{decode}
[trigger]
available_now = true
[sink]
kind = "topic"
topic = "{target}"
{more}
"""


def test_avro_values_are_decoded_judged_and_quarantined_like_json(
    spark: Any, topic: Any, fill: Any, records: Any, pipeline: Any, name: Any
) -> None:
    source, target, bad = topic("avro", 1), name("out"), name("bad")
    fill(source, [_avro(1, "tea"), b"\x00\x00 not avro", _avro(2, None), _avro(3, "jam")])
    decode = f"format = 'avro'\nschema = '{json.dumps(AVRO)}'\nkeep = ['offset']"
    more = f'[[quality]]\nname = "item"\nrule = "item IS NOT NULL"\n[quarantine]\ntopic = "{bad}"'
    shown: list[Any] = []
    run(pipeline(_file(source, target, decode, more)), spark=spark, show=shown.append)
    rows = [json.loads(record.value()) for record in records(target, 1)]
    assert [(row["id"], row["item"], row["offset"]) for row in rows] == [
        (1, "tea", 0),
        (3, "jam", 3),
    ]
    assert rows[0]["at"].startswith("2023-11-14T22:13:20.001")
    reasons = {m.value(): dict(m.headers())["penstock.reason"] for m in records(bad, 1)}
    assert reasons == {
        b"\x00\x00 not avro": b"value is not avro of the schema",
        _avro(2, None): b"item",
    }
    assert shown[0].reasons == {"value is not avro of the schema": 1, "item": 1}


def test_a_python_function_and_an_iceberg_table_are_steps(
    spark: Any, topic: Any, fill: Any, records: Any, pipeline: Any, name: Any, tmp_path: Path
) -> None:
    from penstock.spark.lake.files import FileSet
    from penstock.spark.lake.table import open_table

    table = open_table("iceberg", str(tmp_path / "lake"), "shop.items", ())
    rows = pa.RecordBatch.from_pydict({"item": ["tea", "jam"], "shelf": [1, 2]})
    files = FileSet(table.data, (), keep_columns=True, target_bytes=1 << 20)
    files.add(rows)
    table.append(files.finish(), rows.schema, "s", 0, {})
    (tmp_path / "shout.py").write_text(
        "from pyspark.sql import functions as f\n\n"
        "def shout(rows):\n"
        "    loud = f.udf(lambda text: text.upper() + SIGN, 'string')\n"
        "    return rows.withColumn('item', loud('item'))\n\n"
        "SIGN = '!'\n"
    )
    source, target = topic("steps", 1), name("out")
    fill(source, [json.dumps({"item": item}).encode() for item in ("tea", "oil", "jam")])
    more = """
[[steps]]
table = "items"
path = "DIR/lake#shop.items"
format = "iceberg"
[[steps]]
sql = "SELECT input.item, shelf FROM input JOIN items ON input.item = items.item"
[[steps]]
python = "DIR/shout.py:shout"
"""
    decode = 'schema = "item STRING"\non_error = "drop"'
    run(pipeline(_file(source, target, decode, more)), spark=spark)
    found = sorted(json.loads(record.value())["item"] for record in records(target, 1))
    assert found == ["JAM!", "TEA!"]
    with pytest.raises(
        SparkConnectorError,
        match="steps.0.python: there is no file DIR/none.py".replace("DIR", str(tmp_path)),
    ):
        run(
            pipeline(_file(source, target, decode, '[[steps]]\npython = "DIR/none.py:f"')),
            spark=spark,
        )
    with pytest.raises(SparkConnectorError, match=r"UNRESOLVED_COLUMN.*colour"):
        run(
            pipeline(_file(source, target, decode, '[[steps]]\nsql = "SELECT colour FROM input"')),
            spark=spark,
        )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("def f(rows)\n", "step .*wrong.py:f: SyntaxError: expected ':'"),
        ("1 / 0\n", r"wrong.py:f: ZeroDivisionError: division by zero \(wrong.py:1\)"),
        ("f = 5\n", "wrong.py:f: is no function"),
        ("def f(rows):\n    return nope(rows)\n", "name 'nope' is not defined"),
        ("def f(rows):\n    pass\n", "wrong.py:f: returned NoneType, not a DataFrame"),
        ("def f(rows):\n    return rows.select('nope')\n", "nope"),
    ],
)
def test_a_mistake_in_a_python_step_is_a_sentence(
    spark: Any, topic: Any, pipeline: Any, tmp_path: Path, name: Any, code: str, words: str
) -> None:
    (tmp_path / "wrong.py").write_text(code)
    step = '[[steps]]\npython = "DIR/wrong.py:f"'
    made = pipeline(_file(topic("steps", 1), name("out"), 'format = "string"', step))
    with pytest.raises(SparkConnectorError, match=words):
        run(made, spark=spark)


JSON = 'schema = "id BIGINT, value DOUBLE, tags ARRAY<STRING>"\non_error = "drop"'
RULE = '[quarantine]\ntopic = "bad"\n[[quality]]\nrule = '


@pytest.mark.parametrize(
    ("decode", "more", "words"),
    [
        (JSON.replace("DOUBLE", "DUBLE"), "", r"decode.schema: \[UNSUPPORTED_DATATYPE\].*DUBLE"),
        (JSON + '\nkeep = ["value"]', "", "two columns are called 'value'"),
        (JSON, '[[steps]]\nsql = "SELECT 1 FRM x"', r"steps.0: \[PARSE_SYNTAX_ERROR\]"),
        (JSON, '[[steps]]\nsql = "SELECT no FROM input"', "steps.0: .*`no` cannot be resolved"),
        (JSON, RULE + '"id >"', r"quality.0.rule: \[PARSE_SYNTAX_ERROR\]"),
        (JSON, RULE + '"value"', "quality.0.rule: 'value' is double, neither true nor false"),
        (JSON, 'key = "no"', "sink.key: .*`no` cannot be resolved"),
        (JSON, 'value = "a b c"', "sink.value: "),
    ],
)
def test_what_spark_refuses_names_its_place_in_the_file(
    spark: Any, topic: Any, pipeline: Any, name: Any, decode: str, more: str, words: str
) -> None:
    made = pipeline(_file(topic("wrong", 1), name("out"), decode, more))
    with pytest.raises(SparkConnectorError, match=words):
        run(made, spark=spark)


@pytest.mark.parametrize(
    ("more", "key", "value"),
    [
        ("", None, b'{"id":7,"value":1.5,"tags":["a"]}'),
        ('key = "id"\nvalue = "value"', b"7", b"1.5"),
        ('key = "tags"\nvalue = "struct(id)"', b'["a"]', b'{"id":7}'),
        ('[[steps]]\nsql = "SELECT id AS key, value FROM input"', b"7", b"1.5"),
    ],
)
def test_keys_and_values_may_be_of_any_type(
    spark: Any, topic: Any, fill: Any, records: Any, pipeline: Any, name: Any, more: str,
    key: bytes | None, value: bytes,
) -> None:  # fmt: skip
    source, target = topic("any", 1), name("out")
    fill(source, [b'{"id": 7, "value": 1.5, "tags": ["a"]}'])
    run(pipeline(_file(source, target, JSON, more)), spark=spark)
    (record,) = records(target, 1)
    assert (record.key(), record.value()) == (key, value)


def test_the_cause_is_found_in_the_middle_of_what_spark_says() -> None:
    from penstock.spark.pipeline.work import first_cause

    text = """[STREAM_FAILED] Query failed: Failed to commit: Traceback (most recent call last):
  File "x.py", line 1, in commit
    write()
NotADirectoryError: [Errno 20] Not a directory: 'lake'
	at org.apache.spark.Some.thing(Some.scala:1)
org.apache.spark.SparkException: Job aborted
"""
    assert first_cause(text) == "NotADirectoryError: [Errno 20] Not a directory: 'lake'"
