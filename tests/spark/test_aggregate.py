"""Windows, sessions, running totals, duplicates, joins and tops of windows, on order events."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.pipeline import load, run
from penstock.spark.pipeline.document import PipelineInvalid

NOON = int(datetime(2026, 11, 15, 12, tzinfo=UTC).timestamp())
SCHEMA = "id BIGINT, customer STRING, item STRING, amount DOUBLE, time TIMESTAMP"


def _order(at: int, minute: float, customer: str, item: str, amount: float) -> bytes:
    when = datetime.fromtimestamp(NOON + minute * 60, UTC).isoformat()
    order = {"id": at, "customer": customer, "item": item, "amount": amount, "time": when}
    return json.dumps(order).encode()


def _file(source: str, sink: str, more: str, top: str = "") -> str:
    return f"""
checkpoint = "DIR/checkpoint"
watermark = "time 5 minutes"
{top}
[source]
bootstrap = "BOOTSTRAP"
topic = "{source}"
[decode]
schema = "{SCHEMA}"
on_error = "drop"
[trigger]
available_now = true
{more}
[sink]
{sink}
"""


def _values(records: Any, topic: str, partitions: int = 1) -> list[dict[str, Any]]:
    return [json.loads(record.value()) for record in records(topic, partitions)]


def test_running_totals_are_kept_in_a_compacted_topic(
    spark: Any, topic: Any, fill: Any, records: Any, pipeline: Any, name: Any
) -> None:
    source, target = topic("orders", 1), name("totals")
    fill(source, [_order(at, at, f"c{at % 2}", "tea", 1.0) for at in range(10)])
    sink = f'kind = "topic"\ntopic = "{target}"\nkey = "customer"\n'
    sink += 'topic_settings = { "cleanup.policy" = "compact" }'
    more = '[aggregate]\nby = ["customer"]\n'
    more += 'select = { total = "sum(amount)", orders = "count(*)" }'
    text = _file(source, sink, more, 'output = "update"')
    run(pipeline(text), spark=spark)
    fill(source, [_order(10, 10, "c1", "tea", 5.0)])
    run(pipeline(text), spark=spark)
    newest = {record.key(): json.loads(record.value()) for record in records(target, 1)}
    assert newest[b"c0"] == {"customer": "c0", "total": 5.0, "orders": 5}
    assert newest[b"c1"] == {"customer": "c1", "total": 10.0, "orders": 6}


def test_windows_of_orders_without_their_repetitions_are_upserted_into_a_table(
    spark: Any, topic: Any, fill: Any, pipeline: Any, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    source = topic("orders", 1)
    orders = [_order(at, at, "c", "tea" if at % 2 else "jam", 1.0) for at in range(20)]
    fill(source, [*orders, *orders[5:10]])
    sink = 'kind = "delta"\npath = "DIR/lake"\nmode = "upsert"\nkeys = ["start", "item"]'
    more = '[aggregate]\nby = ["item"]\ntime = "time"\nwindow = "10 minutes"\n'
    more += 'select = { total = "sum(amount)" }'
    top = 'output = "update"\ndedup = ["id"]\n'
    # Two stateful operators in one query: Spark then only closes windows, so it appends.
    text = _file(source, sink, more, top.replace("update", "append"))
    run(pipeline(text), spark=spark)
    fill(source, [_order(99, 40, "c", "end", 0.0)])
    run(pipeline(text), spark=spark)
    rows = DeltaTable(str(tmp_path / "lake")).to_pyarrow_table().to_pylist()
    found = {(row["start"].minute, row["item"]): row["total"] for row in rows}
    assert found == {(0, "jam"): 5.0, (0, "tea"): 5.0, (10, "jam"): 5.0, (10, "tea"): 5.0}


def test_sessions_end_after_a_gap_and_the_top_of_a_window_is_ranked(
    spark: Any, topic: Any, fill: Any, records: Any, pipeline: Any, name: Any
) -> None:
    source, sessions, best = topic("orders", 1), name("sessions"), name("best")
    fill(
        source,
        [
            _order(1, 0, "anna", "tea", 3.0),
            _order(2, 2, "anna", "jam", 2.0),
            _order(3, 3, "ben", "oil", 9.0),
            _order(4, 9, "anna", "tea", 4.0),
            _order(5, 60, "zoe", "end", 0.0),
        ],
    )
    more = '[aggregate]\nby = ["customer"]\ntime = "time"\nsession = "5 minutes"\n'
    more += 'select = { spent = "sum(amount)", orders = "count(*)" }'
    run(pipeline(_file(source, f'kind = "topic"\ntopic = "{sessions}"', more)), spark=spark)
    found = [(row["customer"], row["spent"]) for row in _values(records, sessions)]
    assert sorted(found) == [("anna", 4.0), ("anna", 5.0), ("ben", 9.0)]
    more = '[aggregate]\nby = ["item"]\ntime = "time"\nwindow = "10 minutes"\ntop = 2\n'
    more += 'rank_by = "sold"\nselect = { sold = "sum(amount)" }'
    text = _file(source, f'kind = "topic"\ntopic = "{best}"', more)
    run(pipeline(text.replace("DIR/checkpoint", "DIR/checkpoint-best")), spark=spark)
    rows = [(row["rank"], row["item"], row["sold"]) for row in _values(records, best)]
    assert sorted(rows) == [(1, "oil", 9.0), (2, "tea", 7.0)]


def test_orders_are_joined_with_their_payments(
    spark: Any, topic: Any, fill: Any, records: Any, pipeline: Any, name: Any
) -> None:
    source, payments, target = topic("orders", 1), topic("payments", 1), name("paid")
    fill(source, [_order(at, at, "c", "tea", 1.0) for at in range(5)])
    for at, minute in ((1, 3), (2, 30), (4, 5)):
        when = datetime.fromtimestamp(NOON + minute * 60, UTC).isoformat()
        fill(payments, [json.dumps({"order_id": at, "paid_at": when}).encode()])
    more = f"""
[[streams]]
name = "payments"
topic = "{payments}"
schema = "order_id BIGINT, paid_at TIMESTAMP"
watermark = "paid_at 5 minutes"
[[steps]]
sql = '''
SELECT id, customer, paid_at FROM input JOIN payments
ON id = order_id AND paid_at BETWEEN time AND time + INTERVAL 10 MINUTES
'''
"""
    run(pipeline(_file(source, f'kind = "topic"\ntopic = "{target}"', more)), spark=spark)
    assert sorted(row["id"] for row in _values(records, target)) == [1, 4]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('time = "t"', ""), "time and window .or session. go together"),
        (('window = "1 hour"', 'window = "soon"'), "p.toml:11: aggregate.window: is not a dur"),
        (("top = 3", 'top = 3\nsession = "1 hour"'), "window or session"),
        (('rank_by = "n"', 'rank_by = "m"'), "rank_by must name a column"),
        (('watermark = "t 1 hour"', 'dedup = ["id"]'), "p.toml:2: dedup: needs watermark"),
    ],
)
def test_a_wrong_aggregate_is_refused(tmp_path: Path, change: Any, words: str) -> None:
    text = """checkpoint = "c"
watermark = "t 1 hour"
[source]
topic = "orders"
[sink]
kind = "topic"
topic = "best"
key = "n"
[aggregate]
time = "t"
window = "1 hour"
top = 3
rank_by = "n"
select = { n = "count(*)" }
"""
    file = tmp_path / "p.toml"
    file.write_text(text)
    load(file)
    file.write_text(text.replace(*change))
    with pytest.raises(PipelineInvalid, match=words):
        load(file)
