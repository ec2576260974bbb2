"""Properties stay the publisher's bytes; the view over them tells the same as pamqp does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands

from penstock.errors import MalformedRequest
from penstock.model import message_properties
from penstock.model.field_table import encode_value
from penstock.model.message_properties import EXPIRATION, HEADERS, REPLY_TO, USER_ID

TEXTS = st.text(st.characters(codec="ascii", exclude_characters="\0"), min_size=1, max_size=40)
PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "content_type": TEXTS,
        "headers": st.dictionaries(TEXTS, TEXTS | st.integers(0, 100), min_size=1, max_size=4),
        "delivery_mode": st.sampled_from([1, 2]),
        "priority": st.integers(0, 255),
        "correlation_id": TEXTS,
        "reply_to": TEXTS,
        "expiration": st.integers(0, 10**9).map(str),
        "message_id": TEXTS,
        "timestamp": st.integers(0, 2**32),
        "type": TEXTS,
        "user_id": TEXTS,
        "app_id": TEXTS,
    },
)


@given(PROPERTIES)
def test_what_is_built_is_what_is_read(values: dict[str, object]) -> None:
    view = message_properties.parse(message_properties.build(**values))  # type: ignore[arg-type]
    for name in ("content_type", "delivery_mode", "priority", "correlation_id", "reply_to"):
        assert getattr(view, name) == values.get(name)
    for name in ("expiration", "message_id", "timestamp", "type", "user_id", "app_id"):
        assert getattr(view, name) == values.get(name)
    assert view.headers == values.get("headers", {})
    assert view.has_headers == ("headers" in values)


@given(PROPERTIES)
def test_pamqp_reads_what_is_built(values: dict[str, object]) -> None:
    raw = message_properties.build(**values)  # type: ignore[arg-type]
    read = commands.Basic.Properties()
    read.unmarshal(int.from_bytes(raw[:2], "big"), raw[2:])
    for name in ("content_type", "delivery_mode", "priority", "message_id", "user_id", "headers"):
        assert getattr(read, name) == values.get(name)


@given(PROPERTIES)
def test_an_edit_leaves_the_other_properties_alone(values: dict[str, object]) -> None:
    view = message_properties.parse(message_properties.build(**values))  # type: ignore[arg-type]
    lighter = {k: v for k, v in values.items() if k not in ("expiration", "user_id")}
    assert view.without(EXPIRATION | USER_ID) == message_properties.build(**lighter)  # type: ignore[arg-type]
    answered = {**values, "reply_to": "amq.gen-1"}
    assert view.with_text(REPLY_TO, "amq.gen-1") == message_properties.build(**answered)  # type: ignore[arg-type]


def test_headers_are_added_replaced_and_removed_entry_by_entry() -> None:
    raw = message_properties.build(headers={"keep": 0.1, "drop": 1}, expiration="5")
    view = message_properties.parse(raw)
    entries = view.header_entries
    del entries["drop"]
    entries["x-death"] = encode_value([{"count": 1}])
    again = message_properties.parse(view.with_headers(entries, without=EXPIRATION))
    assert again.headers == {"keep": 0.1, "x-death": [{"count": 1}]}
    assert again.expiration is None
    assert not message_properties.parse(again.with_headers({})).flags & HEADERS


def test_an_empty_string_is_a_property_too() -> None:
    raw = message_properties.build(message_id="")
    assert message_properties.parse(raw).message_id == ""
    assert message_properties.parse(raw).without(EXPIRATION) == raw


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x10",
        b"\x10\x00",  # delivery mode announced, not there
        b"\x10\x00\x02\x00",  # a byte too many
        b"\x80\x00\x05abc",
        b"\x00\x40\x00\x00",
        b"\x20\x00\x00\x00\x00\x09\x01kV",
        b"\x00\x01",  # a second flags word, which no client sends
        b"\x00\x02",
    ],
)
def test_malformed_properties_are_refused(raw: bytes) -> None:
    with pytest.raises(MalformedRequest):
        message_properties.parse(raw)


@given(st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    try:
        view = message_properties.parse(raw)
    except MalformedRequest:
        return
    assert view.without(0) == raw
    assert isinstance(view.headers, dict)
