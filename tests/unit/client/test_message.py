"""Messages, receipts and the one mapping of properties to headers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client import properties
from penstock.client.errors import InvalidArgument
from penstock.client.message import Message, Receipt
from penstock.client.outgoing import Wishes, prepare
from penstock.client.properties import Properties, read_properties, write_properties
from penstock.client.receipts import Receipts, WrittenBatch
from penstock.client.serializer import as_json

NOW_MS = 1_700_000_000_000


@given(
    st.builds(
        Properties,
        st.none() | st.text(),
        st.none() | st.text(),
        st.none() | st.text(),
        st.integers(0, 255),
        st.none() | st.integers(0, 10**15),
        st.none() | st.integers(0, 10**15),
        st.integers(0, 1000),
    )
)
def test_properties_survive_the_way_through_headers(written: Properties) -> None:
    assert read_properties(write_properties(written)) == written


def test_defaults_cost_no_header() -> None:
    assert write_properties(properties.NONE) == []
    assert prepare("t", b"x", None, Wishes(), NOW_MS).headers == []


@pytest.mark.parametrize("nonsense", [b"", b"abc", b"-5", b"9" * 30, b"1.5", None])
def test_a_strangers_nonsense_is_taken_as_absent(nonsense: bytes | None) -> None:
    headers = [("expiration", nonsense), ("priority", nonsense), ("penstock.due", nonsense)]
    assert read_properties(headers) == properties.NONE


def test_headers_come_back_as_text_and_lose_nothing() -> None:
    message = Message(headers=[("a", b"\xff\x00"), ("b", None), ("priority", b"3")])
    assert message.headers == {"a": "\udcff\x00", "b": ""}
    again = Message(headers=message.headers)
    assert dict(again.raw_headers)["a"] == b"\xff\x00"
    assert message.priority == 3


def test_time_to_live_counts_from_the_timestamp_or_from_when_it_is_due() -> None:
    message = Message(b"", timestamp=NOW_MS / 1000, ttl=10)
    assert not message.is_expired(NOW_MS + 9_999)
    assert message.is_expired(NOW_MS + 10_000)
    later = Message(b"", timestamp=NOW_MS / 1000, ttl=10, deliver_at=NOW_MS / 1000 + 100)
    assert not later.is_expired(NOW_MS + 109_999)
    assert later.deliver_at == datetime.fromtimestamp(NOW_MS / 1000 + 100, UTC)
    assert not Message(b"").is_expired(NOW_MS)


def test_spans_and_moments_are_seconds_timedeltas_or_datetimes() -> None:
    wishes = Wishes(ttl=timedelta(minutes=1), delay=1.5, timestamp=datetime(2024, 1, 1, tzinfo=UTC))
    outgoing = prepare("t", b"", None, wishes, NOW_MS)
    found = read_properties(outgoing.headers)
    assert (found.ttl_ms, found.due_ms) == (60_000, NOW_MS + 1500)
    assert outgoing.timestamp_ms == 1_704_067_200_000


@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        (Wishes(ttl=-1), "ttl cannot be -1"),
        (Wishes(delay=1, deliver_at=2), "not both"),
        (Wishes(timestamp=-5), "timestamp cannot be"),
        (Wishes(timestamp=1_700_000_000_000), "seconds since 1970"),
        (Wishes(priority=300), "priority is 0 to 255"),
        (Wishes(key=5), "a key is text or bytes"),  # type: ignore[arg-type]
        (Wishes(headers={5: "x"}), "name of a header is text"),  # type: ignore[dict-item]
    ],
)
def test_what_cannot_be_meant_is_refused(wishes: Wishes, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        prepare("t", b"", None, wishes, NOW_MS)


def test_a_message_that_was_read_can_be_published_elsewhere() -> None:
    read = Message.stored("a", 3, 9, NOW_MS, b"k", b"v", [("h", b"1"), ("message-id", b"m")])
    out = prepare("b", read, None, Wishes(headers={"h": "2", "more": "x"}), NOW_MS)
    assert (out.topic, out.partition, out.timestamp_ms) == ("b", -1, -1)
    assert (out.key, out.value, out.message_id) == (b"k", b"v", "m")
    assert out.headers == [("h", b"1"), ("message-id", b"m"), ("more", b"x")]


def test_receipts_are_made_when_somebody_looks() -> None:
    receipts = Receipts(
        [WrittenBatch("t", 0, 10, [0, 2]), WrittenBatch("t", 1, 5, [1])], ["a", None, "c"]
    )
    assert [(r.partition, r.offset, r.message_id) for r in receipts] == [
        (0, 10, "a"),
        (1, 5, "t-1-5"),
        (0, 11, "c"),
    ]
    assert receipts[-1] == Receipt("t", 0, 11, message_id="c")
    assert len({receipts[0], receipts[0].as_duplicate()}) == 1
    assert "duplicate" in repr(receipts[0].as_duplicate())


def test_json_knows_the_types_people_have() -> None:
    from decimal import Decimal
    from uuid import UUID

    value = {
        "at": datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
        "sum": Decimal("1.10"),
        "id": UUID(int=7),
        "tags": {"b", "a"},
        "name": "ü",
    }
    assert as_json(value).decode() == (
        '{"at":"2024-01-02T03:04:05+00:00","sum":"1.10",'
        '"id":"00000000-0000-0000-0000-000000000007","tags":["a","b"],"name":"ü"}'
    )
