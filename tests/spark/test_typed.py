"""Values decoded in the source, and what becomes of those that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

import fastavro
import pytest

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
    import json

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
