"""The columnar decoder gives what the compiled record reader gives, whatever the records are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pa = pytest.importorskip("pyarrow")

from aiokafka.record.default_records import (  # noqa: E402
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from penstock.spark import columnar, decoding  # noqa: E402
from penstock.spark.cluster import TopicPartition  # noqa: E402
from penstock.spark.errors import CorruptBatch  # noqa: E402
from penstock.spark.fetching import Fetched, Range  # noqa: E402
from support.effort import examples  # noqa: E402

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
BASE = 1_700_000_000_000

cells = st.one_of(st.none(), st.binary(max_size=40), st.just(b"x" * 100), st.just(b"y" * 9000))
records = st.lists(st.tuples(cells, cells, st.integers(-1000, 100_000)), min_size=1, max_size=60)


def _batch(rows: list[tuple[Any, Any, int]], codec: int = 0, base: int = 0) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    for at, (key, value, later) in enumerate(rows):
        builder.append(at, BASE + later, key, value, [])
    made = bytearray(builder.build())
    made[:8] = base.to_bytes(8, "big")
    return bytes(made)


def _decoded(batch: bytes, start: int, end: int) -> list[dict[str, Any]]:
    wanted = Range(TopicPartition("t", 0), start, end)
    pieces = iter([Fetched(memoryview(batch), [], 0)])
    found: list[dict[str, Any]] = []
    for rows in decoding.decode(pieces, wanted, SCHEMA):
        found += rows.to_pylist()
    return found


@settings(max_examples=examples(150))
@given(rows=records, repeat=st.integers(1, 40), codec=st.sampled_from([0, 1, 2, 3, 4]))
def test_columns_are_those_of_the_record_reader(
    rows: list[tuple[Any, Any, int]], repeat: int, codec: int
) -> None:
    # Repeating makes runs of records of equal length, and runs that end.
    rows = (rows * repeat)[:1200]
    batches = [_batch(part, codec) for part in (rows, rows[: len(rows) // 2 + 1])]
    headers = [decoding.HEADER.unpack_from(batch) for batch in batches]
    bodies = [
        columnar.body_of(memoryview(batch), header[5])
        for batch, header in zip(batches, headers, strict=True)
    ]
    found = columnar.cells_of(bodies, [header[12] for header in headers])
    expected = [record for batch in batches for record in DefaultRecordBatch(batch)]
    assert found.keys().to_pylist() == [record.key for record in expected]
    assert found.values().to_pylist() == [record.value for record in expected]
    assert found.offset_deltas.tolist() == [record.offset for record in expected]
    firsts = [header[7] for header in headers for _ in range(header[12])]
    stamps = [first + delta for first, delta in zip(firsts, found.timestamp_deltas, strict=True)]
    assert stamps == [record.timestamp for record in expected]


@pytest.mark.parametrize(("start", "end"), [(0, 1000), (5, 6), (100, 999), (0, 0), (1000, 2000)])
def test_a_range_is_cut_out_of_a_large_batch(start: int, end: int) -> None:
    batch = _batch([(b"%d" % at, b"v%d" % at, at) for at in range(1000)])
    found = _decoded(batch, start, end)
    assert [row["offset"] for row in found] == list(range(start, min(end, 1000)))
    assert [row["value"] for row in found] == [b"v%d" % at for at in range(start, min(end, 1000))]


def test_small_and_large_batches_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, base, batches = [3, 500, 1, 2, 400, 7], 0, b""
    for size in sizes:
        batches += _batch([(None, b"%d" % (base + at), 0) for at in range(size)], base=base)
        base += size
    found = _decoded(batches, 0, base)
    assert [(row["offset"], row["value"]) for row in found] == [
        (at, b"%d" % at) for at in range(base)
    ]


def test_timestamps_may_be_years_apart() -> None:
    batch = _batch([(None, b"a", 0), (None, b"b", 40 * 365 * 86_400_000), (None, b"c", -BASE)])
    stamps = [row["timestamp"].timestamp() * 1000 - BASE for row in _decoded(batch, 0, 3)]
    assert stamps == [0, 40 * 365 * 86_400_000, -BASE]


@settings(max_examples=examples(200))
@given(at=st.integers(61, 3000), byte=st.integers(0, 255), count=st.integers(1, 400))
def test_damage_is_an_error_or_other_values_but_never_a_crash(
    at: int, byte: int, count: int
) -> None:
    """Checksums catch damage first; `kafka.check.crcs=false` lets it come this far."""
    batch = bytearray(_batch([(b"k", b"v" * (n % 20), n) for n in range(300)]))
    batch[min(at, len(batch) - 1)] = byte
    try:
        found = columnar.cells_of([bytes(batch[61:])], [count])
        assert len(found.keys()) == len(found.values()) == count
    except CorruptBatch:
        pass
