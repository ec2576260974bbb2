"""Values decoded in the source, and what becomes of those that cannot be."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import uuid4

import fastavro
import pyarrow as pa
import pytest

from penstock.spark.pipeline.avro import _plain
from penstock.spark.typed import avro_columns, avro_decoder, decode_column

JSON = {"valueFormat": "json", "valueSchema": "id BIGINT, tags ARRAY<STRING>, at DOUBLE"}
AVRO = """{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "long"},
  {"name": "item", "type": ["null", "string"]},
  {"name": "placed", "type": {"type": "long", "logicalType": "timestamp-millis"}}
]}"""
ROWS = [b'{"id": 1, "tags": ["a"], "at": 1.5}', b"{", b'{"id": "x"}', b'{"id": 2}', None]


def test_json_becomes_a_struct_and_bad_values_null(
    reading: Callable[..., Any], topic: Any, fill: Any
) -> None:
    name = topic("typed", 1)
    fill(name, ROWS)
    frame = reading(subscribe=name, onError="null", **JSON)
    found = [row.value for row in frame.orderBy("offset").select("value").collect()]
    assert found[0].asDict() == {"id": 1, "tags": ["a"], "at": 1.5}
    assert found[3].asDict() == {"id": 2, "tags": None, "at": None}
    assert [found[at] for at in (1, 2, 4)] == [None, None, None]


def test_a_bad_value_fails_the_query_and_is_named(
    reading: Callable[..., Any], topic: Any, fill: Any
) -> None:
    name = topic("typed", 1)
    fill(name, ROWS)
    with pytest.raises(Exception, match=rf"topic {name}, partition 0, offset 1 cannot be decoded"):
        reading(subscribe=name, **JSON).collect()


def test_bad_values_go_to_a_topic_with_the_reason(
    reading: Callable[..., Any], topic: Any, fill: Any, records: Any
) -> None:
    name, dead = topic("typed", 1), topic("dead", 1)
    fill(name, ROWS)
    frame = reading(subscribe=name, onError=f"dlq:{dead}", **JSON)
    assert sorted(row.offset for row in frame.select("offset").collect()) == [0, 3, 4]
    letters = records(dead, 1)
    assert [letter.value() for letter in letters] == [b"{", b'{"id": "x"}']
    reasons = [dict(letter.headers())["penstock.reason"] for letter in letters]
    assert reasons[0].startswith(b"cannot be decoded")
    assert reasons[1].startswith(b"does not fit the schema")


@pytest.mark.parametrize("framing", [b"", b"\0\0\0\0\7"])
def test_avro_becomes_a_struct_with_or_without_confluents_framing(
    reading: Callable[..., Any], topic: Any, fill: Any, framing: bytes
) -> None:
    name = topic("avro", 1)
    body = BytesIO()
    order = {"id": 7, "item": "tea", "placed": 1_700_000_000_000}
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(AVRO)), order)
    fill(name, [framing + body.getvalue()])
    (row,) = reading(subscribe=name, valueFormat="avro", valueSchema=AVRO).collect()
    assert (row.value.id, row.value.item) == (7, "tea")
    assert row.value.placed.isoformat().startswith("2023-11-14T22:13:20")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"valueFormat": "xml"}, "none of json, avro"),
        ({"valueFormat": "json"}, "needs valueSchema"),
        ({**JSON, "onError": "shrug"}, "none of fail, null"),
        ({"valueFormat": "avro", "valueSchema": "id BIGINT"}, "not an Avro schema"),
    ],
)
def test_wrong_options_are_refused(
    reading: Callable[..., Any], options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        reading(subscribe="any", **options)


def _column(kind: pa.DataType, *values: str) -> tuple[list[Any], dict[int, str]]:
    """The values of a column `d` of this type in JSON, and what was wrong with some."""
    rows: list[bytes | None] = [value.encode() for value in values]
    column, reasons = decode_column(rows, json.loads, pa.struct([("d", kind)]))
    return [None if row is None else row["d"] for row in column.to_pylist()], reasons


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.timestamp("us", "UTC"), '"2026-11-15T10:00:00Z"', datetime(2026, 11, 15, 10)),
        (pa.timestamp("us", "UTC"), '"2026-11-15 12:00:00+02:00"', datetime(2026, 11, 15, 10)),
        (pa.timestamp("us", "UTC"), "90.5", datetime(1970, 1, 1, 0, 1, 30, 500_000)),
        (pa.timestamp("us"), '"2026-11-15T10:00:00"', datetime(2026, 11, 15, 10)),
        (pa.date32(), '"2026-11-15"', date(2026, 11, 15)),
        (pa.decimal128(10, 2), "1.005e1", Decimal("10.05")),
        (pa.decimal128(10, 2), '"7"', Decimal("7.00")),
        (pa.binary(), '"YWJj"', b"abc"),
        (pa.map_(pa.string(), pa.date32()), '{"a": "2026-11-15"}', [("a", date(2026, 11, 15))]),
        (pa.float64(), "1152921504606846977", 1152921504606846976.0),
        (pa.int64(), "3.0", 3),
    ],
)
def test_what_json_has_no_words_for_is_understood(
    kind: pa.DataType, value: str, expected: Any
) -> None:
    (found,), reasons = _column(kind, f'{{"d": {value}}}')
    assert reasons == {}
    assert (found.replace(tzinfo=None) if isinstance(found, datetime) else found) == expected


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("us", "UTC"), pa.date32(), pa.decimal128(10, 2), pa.int32(), pa.float64(),
        pa.string(), pa.bool_(), pa.list_(pa.int64()), pa.struct([("a", pa.int64())]),
    ],
)  # fmt: skip
def test_no_value_whatever_stops_the_others(kind: pa.DataType) -> None:
    odd = ["[]", "5", '"x"', "{", '{"d": 1e999}', '{"d": "\\ud800"}', '{"d": {"b": {}}}']
    values = ['{"d": null}', *odd, "null", "{}"]
    found, reasons = _column(kind, *values)
    assert len(found) == len(values)
    assert set(reasons) >= {1, 2, 3, 4}
    assert not set(reasons) & {0, 8, 9}


def test_a_fraction_is_no_whole_number() -> None:
    found, reasons = _column(pa.int64(), '{"d": 1}', '{"d": 1.5}', '{"d": 123456789012345678901}')
    assert found == [1, None, None]
    assert reasons[1] == "does not fit the schema: '1.5' is not a whole number"


def test_avros_logical_types_are_columns_too() -> None:
    schema = {
        "type": "record",
        "name": "Paid",
        "fields": [
            {
                "name": "sum",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "who", "type": {"type": "string", "logicalType": "uuid"}},
            {"name": "more", "type": {"type": "map", "values": "long"}},
        ],
    }
    assert avro_columns(schema) == (
        "`sum`: DECIMAL(9,2), `who`: STRING, `more`: MAP<STRING, BIGINT>"
    )
    who, body = uuid4(), BytesIO()
    row = {"sum": Decimal("7.50"), "who": who, "more": {"a": 1}}
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), row)
    kind = pa.struct(
        [
            ("sum", pa.decimal128(9, 2)),
            ("who", pa.string()),
            ("more", pa.map_(pa.string(), pa.int64())),
        ]
    )
    column, reasons = decode_column([body.getvalue()], avro_decoder(json.dumps(schema)), kind)
    assert reasons == {}
    assert column.to_pylist() == [{"sum": Decimal("7.50"), "who": str(who), "more": [("a", 1)]}]
    assert json.loads(json.dumps(row, default=_plain))["sum"] == "7.50"  # and in pipelines
