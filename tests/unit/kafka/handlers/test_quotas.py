"""DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from support.admin import ALTER_QUOTAS, DESCRIBE_QUOTAS, Admin, admin
from support.scenario import scenario

EXACT, DEFAULT, ANY = range(3)
Entity = dict[str, str | None]


def entry(entity: Entity, *operations: tuple[str, float | None]) -> dict[str, Any]:
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in operations
        ],
    }


async def alter(broker: Admin, *entries: dict[str, Any], **more: Any) -> list[ErrorCode]:
    version = more.pop("version", 1)
    answer = await broker.ask(ALTER_QUOTAS, version, entries=entries, **more)
    assert all(bool(row.error_message) == (row.error_code.value != 0) for row in answer.entries)
    return [row.error_code for row in answer.entries]


async def describe(
    broker: Admin, *components: tuple[str, int, str | None], version: int = 1, strict: bool = False
) -> Any:
    rows = [{"entity_type": t, "match_type": m, "match": n} for t, m, n in components]
    return await broker.ask(DESCRIBE_QUOTAS, version, components=rows, strict=strict)


@pytest.mark.parametrize("version", range(2))
@scenario
async def test_quotas_are_set_described_and_removed(version: int) -> None:
    async with admin() as broker:
        both: Entity = {"user": "ann", "client-id": None}
        codes = await alter(
            broker,
            entry(both, ("producer_byte_rate", 1000.0), ("request_percentage", 12.5)),
            entry({"ip": "10.0.0.1"}, ("connection_creation_rate", 5.0)),
            version=version,
        )
        assert codes == [ErrorCode.none, ErrorCode.none]
        answer = await describe(broker, ("user", EXACT, "ann"), version=version)
        (row,) = answer.entries
        assert {part.entity_type: part.entity_name for part in row.entity} == both
        values = {each.key: each.value for each in row.values}
        assert values == {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
        await alter(broker, entry(both, ("producer_byte_rate", None), ("request_percentage", None)))
        assert (await describe(broker, ("user", ANY, None))).entries == ()
        assert len((await describe(broker)).entries) == 1
        assert (await describe(broker, strict=True)).entries == ()


@pytest.mark.parametrize(
    ("entity", "operation"),
    [
        ({}, ("producer_byte_rate", 1.0)),
        ({"user": ""}, ("producer_byte_rate", 1.0)),
        ({"planet": "earth"}, ("producer_byte_rate", 1.0)),
        ({"user": "a", "ip": None}, ("producer_byte_rate", 1.0)),
        ({"ip": "10.0.0.1"}, ("producer_byte_rate", 1.0)),
        ({"user": "a"}, ("nope", 1.0)),
        ({"user": "a"}, ("producer_byte_rate", -1.0)),
        ({"user": "a"}, ("producer_byte_rate", 1.5)),
    ],
)
@scenario
async def test_what_cannot_be_is_refused(entity: Entity, operation: tuple[str, float]) -> None:
    async with admin() as broker:
        good = entry({"user": "good"}, ("producer_byte_rate", 1.0))
        codes = await alter(broker, entry(entity, operation), good)
        assert codes == [ErrorCode.invalid_request, ErrorCode.none]
        assert len(broker.quotas.describe()) == 1


@scenario
async def test_an_entity_named_twice_is_refused() -> None:
    async with admin() as broker:
        one = entry({"user": "a"}, ("producer_byte_rate", 1.0))
        assert await alter(broker, one, one) == [ErrorCode.invalid_request] * 2
        assert broker.quotas.describe() == []


@scenario
async def test_checking_keeps_nothing() -> None:
    async with admin() as broker:
        one = entry({"user": "a"}, ("producer_byte_rate", 1.0))
        assert await alter(broker, one, validate_only=True) == [ErrorCode.none]
        assert broker.quotas.describe() == []


@pytest.mark.parametrize(
    ("component", "error"),
    [
        (("planet", ANY, None), ErrorCode.unsupported_version),
        (("", ANY, None), ErrorCode.invalid_request),
        (("user", 5, None), ErrorCode.invalid_request),
        (("user", EXACT, None), ErrorCode.invalid_request),
        (("user", DEFAULT, "x"), ErrorCode.invalid_request),
        (("user", ANY, "x"), ErrorCode.invalid_request),
    ],
)
@scenario
async def test_filters_that_make_no_sense_are_refused(
    component: tuple[str, int, str | None], error: ErrorCode
) -> None:
    async with admin() as broker:
        answer = await describe(broker, component)
        assert (answer.error_code, answer.entries) == (error, None)
        assert answer.error_message
