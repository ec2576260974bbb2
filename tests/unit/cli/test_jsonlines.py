"""Messages as lines of JSON, there and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.jsonlines import message_from_json, message_to_json
from penstock.cli.output import Failure


class FakeMessage:
    """What the client hands out, with every field given."""

    def __init__(self, key: Any, value: Any, headers: Any, timestamp: int = 5) -> None:
        self._fields = {"key": key, "value": value, "headers": headers}
        self._timestamp = timestamp

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 7

    def timestamp(self) -> tuple[int, int]:
        return 1, self._timestamp

    def key(self) -> Any:
        return self._fields["key"]

    def value(self) -> Any:
        return self._fields["value"]

    def headers(self) -> Any:
        return self._fields["headers"]


blobs = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)


@given(key=blobs, value=blobs, headers=st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3))
def test_what_is_printed_can_be_sent_again(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    line = message_to_json(FakeMessage(key, value, headers)).encode()
    fields = message_from_json(line, 1)
    assert fields["value"] == value
    assert fields.get("key") == key
    assert fields.get("headers", []) == headers
    assert fields["timestamp"] == 5


def test_bytes_that_are_no_text_are_base64() -> None:
    printed = json.loads(message_to_json(FakeMessage(b"\xff", b"\x00\xfe", None)))
    assert printed["key"] == {"base64": "/w=="}
    assert printed["value"] == {"base64": "AP4="}


def test_a_value_that_is_no_text_is_sent_as_json() -> None:
    assert message_from_json(b'{"value": [1, 2]}', 1)["value"] == b"[1, 2]"


def test_headers_may_be_an_object() -> None:
    fields = message_from_json(b'{"value": "x", "headers": {"trace": "abc"}}', 1)
    assert fields["headers"] == [("trace", b"abc")]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"not json", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[1]", "it is not an object"),
        (b'{"value": {"base64": "!"}}', "base64"),
        (b'{"value": "\\ud800"}', "half a surrogate pair"),
        (b'{"timestamp": "soon"}', "milliseconds since 1970"),
        (b'{"timestamp": 1e400}', "milliseconds since 1970"),
        (b'{"timestamp": 9999999999999999999999}', "milliseconds since 1970"),
        (b'{"headers": 5}', "headers are an object, or a list"),
        (b'{"headers": [["a"]]}', "headers are an object, or a list"),
    ],
)
def test_a_bad_line_is_named_by_its_number_and_says_why(line: bytes, why: str) -> None:
    with pytest.raises(Failure, match="line 12 cannot be sent") as failure:
        message_from_json(line, 12)
    assert why in str(failure.value)
