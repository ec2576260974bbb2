"""Messages as records and back."""

from __future__ import annotations

from penstock.model import message_properties
from penstock.model.queue_record import (
    DUE,
    Message,
    build_messages,
    read_messages,
    telling,
    without_bcc,
)
from penstock.model.records import build_batch


def test_a_message_comes_back_byte_for_byte() -> None:
    properties = message_properties.build(headers={"a": 0.1}, priority=3, expiration="60000")
    messages = [
        Message("ex", "key.1", properties, b"one"),
        Message("", "ü\udcff", b"\x00\x00", memoryview(b"two")),
    ]
    first, second = read_messages(build_messages(messages, 1234), "q")
    assert (first.exchange, first.routing_key, first.properties, first.body) == (
        "ex",
        "key.1",
        properties,
        b"one",
    )
    assert (second.offset, second.timestamp_ms) == (1, 1234)
    assert (second.routing_key, second.body) == ("ü\udcff", b"two")


def test_a_due_time_travels_with_the_message() -> None:
    batch = build_messages([Message("", "q", b"\x00\x00", b"")], 0, [[(DUE, b"99")]])
    (message,) = read_messages(batch, "q")
    assert message.due_ms == 99
    assert message.properties == b"\x00\x00"


def test_what_a_kafka_producer_wrote_is_a_message_too() -> None:
    batch = build_batch(
        [
            (
                b"user-1",
                b"body",
                [
                    ("trace", b"\xff"),
                    ("message-id", b"m1"),
                    ("priority", b"7"),
                    (DUE, b"nonsense"),
                ],
            ),
            (None, None, []),
        ],
        timestamp_ms=5_000,
    )
    first, second = read_messages(batch, "orders")
    properties = message_properties.parse(first.properties)
    assert (first.exchange, first.routing_key, first.body) == ("", "orders", b"body")
    assert properties.headers == {"trace": b"\xff", "kafka.key": "user-1"}
    assert (properties.message_id, properties.priority, properties.timestamp) == ("m1", 7, 5)
    assert properties.delivery_mode == 2
    assert first.due_ms is None
    assert second.body == b""


def test_what_a_queue_must_know_is_read_from_the_properties() -> None:
    properties = message_properties.build(
        priority=9,
        expiration="1500",
        message_id="m",
        headers={
            "x-delay": 3000,
            "x-deduplication-header": 17,
            "x-cache-ttl": "50",
            "CC": ["a", 1, "b"],
            "BCC": ["c"],
        },
    )
    told = telling(properties)
    assert told == (9, 1500, "m", 3000, "17", 50, ("a", "b", "c"))
    stripped = message_properties.parse(without_bcc(properties))
    assert "BCC" not in stripped.headers
    assert stripped.headers["CC"] == ["a", 1, "b"]
    assert telling(b"\x10\x00\x02") == (0, None, None, None, None, None, ())


def test_nonsense_in_properties_tells_nothing() -> None:
    properties = message_properties.build(
        expiration="soon", headers={"x-delay": -5, "CC": "not a list", "x-cache-ttl": 1.5}
    )
    assert telling(properties) == (0, None, None, None, None, None, ())
