"""Which quota applies to whom."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidRequest, UnsupportedVersion
from penstock.model.quota import (
    QuotaFilter,
    QuotaOperation,
    candidates,
    check_filters,
    check_operations,
    quota_entity,
)


def test_the_most_specific_entity_comes_first() -> None:
    order = [dict(entity) for entity, _ in candidates("ann", "app")]
    assert order == [
        {"user": "ann", "client-id": "app"},
        {"user": "ann", "client-id": None},
        {"user": "ann"},
        {"user": None, "client-id": "app"},
        {"user": None, "client-id": None},
        {"user": None},
        {"client-id": "app"},
        {"client-id": None},
    ]


def test_what_is_counted_together_follows_from_the_entity() -> None:
    counted = [counted_for for _, counted_for in candidates("ann", "app")]
    both, user, client = ("ann", "app"), ("ann", None), (None, "app")
    assert counted == [both, both, user, both, both, user, client, client]


def test_an_entity_is_the_same_in_any_order() -> None:
    one = quota_entity([("user", "a"), ("client-id", None)])
    assert one == quota_entity([("client-id", None), ("user", "a")])


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([], "empty"),
        ([("user", "")], "Empty user"),
        ([("planet", "earth")], "planet"),
        ([("user", "a"), ("user", "b")], "twice"),
        ([("ip", "10.0.0.1"), ("user", "a")], "combin"),
        ([("ip", "not an address")], "valid IP"),
    ],
)
def test_impossible_entities_are_refused(parts: list[tuple[str, str | None]], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        quota_entity(parts)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("producer_byte_rate", 0.0, "greater than 0"),
        ("producer_byte_rate", -1.0, "greater than 0"),
        ("producer_byte_rate", float("nan"), "greater than 0"),
        ("producer_byte_rate", 1.5, "fractional"),
        ("producer_byte_rate", 1e30, "too large"),
        ("nope", 1.0, "Invalid configuration key nope"),
        ("connection_creation_rate", 1.0, "Invalid configuration key"),
    ],
)
def test_impossible_quotas_are_refused(name: str, value: float, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        check_operations((("user", "a"),), [QuotaOperation(name, value, False)])


def test_removing_needs_no_valid_value() -> None:
    check_operations((("user", "a"),), [QuotaOperation("nope", -1.0, True)])
    check_operations((("user", "a"),), [QuotaOperation("request_percentage", 1.5, False)])
    check_operations((("ip", None),), [QuotaOperation("connection_creation_rate", 5.0, False)])


def test_filters_that_make_no_sense_are_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="planet"):
        check_filters([QuotaFilter("planet", None)])
    with pytest.raises(InvalidRequest, match="more than once"):
        check_filters([QuotaFilter("user", None), QuotaFilter("user", "a")])
    with pytest.raises(InvalidRequest, match="IP filter"):
        check_filters([QuotaFilter("user", None), QuotaFilter("ip", None)])
    with pytest.raises(InvalidRequest, match="empty entity type"):
        check_filters([QuotaFilter("", None)])


def test_a_filter_matches_a_name_the_default_or_any() -> None:
    assert QuotaFilter("user", "a").matches({"user": "a", "client-id": "x"})
    assert not QuotaFilter("user", "a").matches({"user": None})
    assert QuotaFilter("user", None, default=True).matches({"user": None})
    assert not QuotaFilter("user", None, default=True).matches({"user": "a"})
    assert QuotaFilter("user", None).matches({"user": None})
    assert not QuotaFilter("user", None).matches({"client-id": "x"})
