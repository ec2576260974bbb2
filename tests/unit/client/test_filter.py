"""The language of content filters."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.errors import InvalidArgument
from penstock.client.filter import Filter, is_like
from penstock.client.message import Message

MESSAGE = Message(
    b"12345",
    topic="orders",
    partition=2,
    offset=7,
    key="user-17",
    headers={"type": "order", "amount": 12.5, "x-region": "eu", "ok": True, "quote": 'a"b'},
    priority=5,
    ttl=60,
    message_id="m-1",
    correlation_id="c-1",
)


@pytest.mark.parametrize(
    "expression",
    [
        'headers.type == "order"',
        "headers.type = 'order'",
        "headers.type != 'mail'",
        "headers.amount > 12",
        "headers.amount == 12.5",
        "12.5 <= headers.amount",
        "headers.x-region in ('eu', 'us')",
        'headers["x-region"] not in ("us")',
        "headers.ok",
        "headers.ok == true",
        "not (headers.ok == false)",
        "headers.type exists and not headers.nothing exists",
        "key like 'user-%' and key not like 'admin%'",
        "key like 'user-__'",
        "priority >= 5 and priority < 6",
        "ttl == 60 and size == 5",
        "topic == 'orders' and partition == 2 and offset = 7",
        "message_id == 'm-1' and correlation_id like 'c-_'",
        "retry_count == 0 and not reply_to exists",
        "priority == 1 or priority == 5 and key exists",
        "((((priority == 5))))",
        "NOT priority == 1 AND key EXISTS",
        r"headers.quote == 'a\"b'",
        "priority in (1, 5, 9)",
    ],
)
def test_these_match(expression: str) -> None:
    assert Filter(expression).matches(MESSAGE)


@pytest.mark.parametrize(
    "expression",
    [
        "headers.nothing == 'x'",
        "headers.nothing != 'x'",  # what is absent is unlike everything, and not unequal either
        "headers.nothing in ('x')",
        "headers.nothing not in ('x')",
        "headers.type > 5",  # no number
        "headers.type == true",
        "reply_to like '%'",
        "priority == 5 and not key exists",
        "headers.type",
        "key like 'user'",
        "headers.ok < true",
    ],
)
def test_these_do_not_match(expression: str) -> None:
    assert not Filter(expression).matches(MESSAGE)


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("", "expected"),
        ("nothing == 1", "there is no field 'nothing'; there are topic"),
        ("priority ==", "expected"),
        ("priority == 5 5", "'5' is not expected here"),
        ("(priority == 5", r"'\)' is expected"),
        ("priority == 5)", "not expected"),
        ("headers == 1", "'.' is expected"),
        ("headers[x] == 1", "in quotes"),
        ("key like 5", "wants a text"),
        ("key in ()", "is expected"),
        ("key not 5", "after 'not'"),
        ("__import__('os')", "no field '__import__'"),
        ("priority + 1 == 6", "no part of the language"),
        ("key == 'open", "no part of the language"),
        ("(" * 60 + "key exists" + ")" * 60, "levels deep"),
        ("key exists or " * 400 + "key exists", "at most 4096"),
        ("and", "not expected"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_place(expression: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        Filter(expression)


def test_a_mean_pattern_takes_no_time() -> None:
    text = "a" * 5_000
    started = time.perf_counter()
    assert not is_like(text, "%a" * 100 + "b")
    assert time.perf_counter() - started < 10


@given(st.text("ab%_", max_size=8), st.text("ab", max_size=8))
def test_like_is_what_a_regular_expression_says(pattern: str, text: str) -> None:
    import re

    wild = {"%": ".*", "_": "."}
    expected = re.fullmatch("".join(wild.get(c, c) for c in pattern), text) is not None
    assert is_like(text, pattern) is expected


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_a_refusal(text: str) -> None:
    try:
        found = Filter(text)
    except InvalidArgument:
        return
    assert found.matches(MESSAGE) in (True, False)
