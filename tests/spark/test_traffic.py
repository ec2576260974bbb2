"""The traffic report says what went through the log: counted by hand on the other side."""

from __future__ import annotations

import struct
import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from penstock.spark.pipeline import dry_run, run
from penstock.spark.pipeline.commits import parse_commit


def _rows(count: int, when: int) -> list[dict[str, Any]]:
    return [{"key": "k", "value": b"x" * 99, "timestamp": when + at} for at in range(count)]


def test_traffic_lag_latency_and_dead_letters_are_found_in_the_log(
    spark: Any, bootstrap: str, topic: Any, fill: Any, pipeline: Any, tmp_path: Path, name: Any
) -> None:
    import pandas as pd

    now = int(time.time() * 1000)
    first, third = (now // 60_000 * 60_000 - back * 60_000 for back in (10, 8))  # two minutes
    stem = name("traffic")
    orders, dead, group = topic(f"{stem}.orders", 1), topic(f"{stem}.dead", 1), name("billing")
    fill(orders, _rows(100, first) + _rows(50, third))
    why = [("penstock.reason", b"negative"), ("penstock.topic", orders.encode())]
    fill(dead, [{"value": b"bad", "headers": why, "timestamp": third}] * 3)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(orders, 0, 120)], asynchronous=False)
    consumer.close()
    committed = int(time.time() * 1000)
    said = pipeline(f"""
kind = "traffic"
bootstrap = "BOOTSTRAP"
topics = "{stem}.*"
report = "DIR/report"
bucket = "1 minute"
""")
    assert dry_run(said, spark)["topics"] == {orders: 150, dead: 3}
    done = run(said, spark=spark)
    assert (done.records, done.topics, done.groups, done.dead_letters) == (153, 2, 1, 3)
    report = tmp_path / "report"
    volume = pd.read_csv(report / "throughput.csv")
    mine = volume[volume["topic"] == orders]
    assert mine["records"].tolist() == [100, 50]
    assert mine["bytes"].tolist() == [10_000, 5_000]
    lag = pd.read_csv(report / "lag.csv")
    assert lag["lag"].iloc[-1] == 30
    late = pd.read_csv(report / "latency.csv")
    # Record 119 is the twentieth of the third minute; it was committed between the two clocks.
    assert now <= third + 19 + late["p50_ms"].iloc[0] <= committed
    letters = pd.read_csv(report / "dead-letters.csv")
    assert letters[["origin", "reason", "records"]].values.tolist() == [[orders, "negative", 3]]
    page = (report / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 6
    for picture in ("throughput", "bytes", "size", "latency", "lag", "dead-letters"):
        assert (report / f"{picture}.png").read_bytes().startswith(b"\x89PNG")


def _text(words: str) -> bytes:
    return struct.pack(">h", len(words)) + words.encode()


def test_commits_of_all_versions_are_read_and_the_rest_is_left_alone() -> None:
    key = struct.pack(">h", 1) + _text("g") + _text("t") + struct.pack(">i", 3)
    wanted = ("g", "t", 3, 42, 1234)
    tail = struct.pack(">q", 1234)
    old = struct.pack(">hq", 1, 42) + _text("m") + tail + tail
    now = struct.pack(">hqi", 3, 42, 7) + _text("") + tail
    flexible = struct.pack(">hqi", 4, 42, 7) + b"\x02m" + tail + b"\x00"
    assert [parse_commit(key, value) for value in (old, now, flexible)] == [wanted] * 3
    assert parse_commit(struct.pack(">h", 2) + _text("g"), now) is None
    assert parse_commit(key, None) is None
    assert parse_commit(key, b"\x00\x03") is None
