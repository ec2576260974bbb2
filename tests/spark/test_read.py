"""Batch reads of a real topic: rows, options, bounds, refusals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

Reading = Callable[..., Any]


def test_rows_are_those_of_sparks_kafka_source(reading: Reading, topic: Any, fill: Any) -> None:
    name = topic("plain", 2)
    before = time.time()
    fill(name, [{"key": b"k", "value": b"v", "partition": 1, "headers": [("h", b"1")]}])
    frame = reading(subscribe=name, includeHeaders="true")
    assert frame.columns == [
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers",
    ]  # fmt: skip
    (row,) = frame.collect()
    assert (bytes(row.key), bytes(row.value), row.topic, row.partition, row.offset) == (
        b"k", b"v", name, 1, 0,
    )  # fmt: skip
    assert row.timestampType == 0
    assert abs(row.timestamp.timestamp() - before) < 60
    assert [(h.key, bytes(h.value)) for h in row.headers] == [("h", b"1")]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_record_is_read_once_under_each_codec(
    reading: Reading, topic: Any, fill: Any, codec: str
) -> None:
    name = topic(f"codec-{codec}", 3)
    values = [b"%06d" % at for at in range(3000)]
    fill(name, values, **{"compression.type": codec})
    rows = reading(subscribe=name, columns="value").collect()
    assert sorted(bytes(row.value) for row in rows) == values
