"""Field tables keep every type and every byte, and refuse what is not one."""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import MalformedRequest
from penstock.model.field_table import (
    MAX_DEPTH,
    LongString,
    Timestamp,
    decode_table,
    decode_value,
    encode_table,
    encode_value,
    read_entries,
    skip_table,
    write_entries,
)

KEYS = st.text(max_size=60).filter(lambda text: len(text.encode()) <= 255)
SCALARS = st.one_of(
    st.text(max_size=50),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1).map(Timestamp),
    st.floats(allow_nan=False),
    st.binary(max_size=50),
    st.none(),
    st.decimals(min_value=-(10**5), max_value=10**5, places=3),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
TABLES = st.dictionaries(KEYS, VALUES, max_size=8)


@given(TABLES)
def test_a_table_reads_back_as_it_was_written(table: dict[str, object]) -> None:
    encoded = encode_table(table)
    again = decode_table(encoded)
    assert again == table
    assert list(again) == list(table)
    assert skip_table(encoded, 0, len(encoded)) == len(encoded)


@given(TABLES)
def test_entries_that_nobody_touches_keep_their_bytes(table: dict[str, object]) -> None:
    encoded = encode_table(table)
    assert write_entries(read_entries(encoded)) == encoded


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"t\x01", True),
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"I\xff\xff\xff\xff", -1),
        (b"i\xff\xff\xff\xff", 2**32 - 1),
        (b"l" + b"\xff" * 8, -1),
        (b"L" + b"\xff" * 8, -1),
        (b"f" + struct.pack(">f", 0.5), 0.5),
        (b"d" + struct.pack(">d", 0.1), 0.1),
        (b"D\x02\x00\x00\x01\x3a", Decimal("3.14")),
        (b"T" + (1_700_000_000).to_bytes(8, "big"), Timestamp(1_700_000_000)),
        (b"V", None),
        (b"S\x00\x00\x00\x02\xff\xfe", LongString(b"\xff\xfe")),
        (b"x\x00\x00\x00\x02\xff\xfe", b"\xff\xfe"),
        (b"A\x00\x00\x00\x03t\x00V", [False, None]),
    ],
)
def test_every_type_octet_is_read(raw: bytes, value: object) -> None:
    read = decode_value(raw)
    assert read == value
    assert type(read) is type(value)


def test_a_double_survives_the_editing_of_its_neighbour() -> None:
    entries = read_entries(encode_table({"ratio": 0.1, "short": 5}))
    entries["ratio"] = b"d" + struct.pack(">d", 0.1)
    entries["short"] = b"s\x00\x05"
    entries["added"] = encode_value("x")
    again = read_entries(write_entries(entries))
    assert again["short"] == b"s\x00\x05"
    assert decode_value(again["ratio"]) == 0.1
    assert list(again) == ["ratio", "short", "added"]


def test_a_key_that_is_not_utf8_is_kept() -> None:
    raw = b"\x00\x00\x00\x04\x02\xff\xfeV"
    assert write_entries(read_entries(raw)) == raw


@pytest.mark.parametrize("tag", [b"F", b"A"])
def test_a_table_nested_too_deep_is_refused(tag: bytes) -> None:
    value = b"V"
    for _ in range(10_000):
        inner = b"\x01k" + value if tag == b"F" else value
        value = tag + struct.pack(">I", len(inner)) + inner
    table = struct.pack(">I", len(value) + 2) + b"\x01k" + value
    for read in (decode_table, read_entries, lambda raw: skip_table(raw, 0, len(raw))):
        with pytest.raises(MalformedRequest, match="nested"):
            read(table)


def test_a_table_may_be_nested_as_deep_as_the_limit() -> None:
    table: dict[str, object] = {}
    for _ in range(MAX_DEPTH - 1):
        table = {"k": table}
    assert decode_table(encode_table(table)) == table
    with pytest.raises(MalformedRequest):
        decode_table(encode_table({"k": table}))


@given(TABLES, st.integers(0, 400), st.integers(0, 255))
def test_a_damaged_table_is_read_or_refused_but_nothing_else(
    table: dict[str, object], at: int, byte: int
) -> None:
    raw = bytearray(encode_table(table))
    raw[at % len(raw)] = byte
    for damaged in (bytes(raw), bytes(raw[: at % len(raw)])):
        readable = _outcome(lambda d=damaged: decode_table(d))
        walkable = _outcome(lambda d=damaged: skip_table(d, 0, len(d)) == len(d) or _short())
        assert readable == walkable


def _short() -> None:
    raise MalformedRequest("bytes follow the table")


def _outcome(read: object) -> bool:
    try:
        read()  # type: ignore[operator]
    except MalformedRequest:
        return False
    return True
