"""Quotas: kept, found by the most specific entity, and counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.errors import InvalidRequest, ThrottlingQuotaExceeded
from penstock.model.quota import QuotaFilter, QuotaOperation
from penstock.services import quotas as module
from support.admin import Admin, admin
from support.scenario import scenario

T0 = 1_700_000_000_000


def put(name: str, value: float) -> list[QuotaOperation]:
    return [QuotaOperation(name, value, False)]


def take_away(name: str) -> list[QuotaOperation]:
    return [QuotaOperation(name, 0, True)]


def paused(broker: Admin, user: str, client_id: str, amount: float, now_ms: int = T0) -> int:
    return broker.quotas.record("producer_byte_rate", user, client_id, amount, now_ms)


@scenario
async def test_without_a_quota_nobody_pauses() -> None:
    async with admin() as broker:
        assert paused(broker, "User:ann", "app", 1e12) == 0
        assert broker.quotas.record_connection("10.0.0.1", T0) == 0
        broker.quotas.check_mutations("User:ann", "app", T0)


@scenario
async def test_a_quota_of_one_kind_does_not_touch_the_others() -> None:
    async with admin() as broker:
        await broker.quotas.alter([("user", "ann")], put("consumer_byte_rate", 1))
        assert paused(broker, "User:ann", "app", 1e9) == 0
        assert broker.quotas.record("consumer_byte_rate", "User:ann", "app", 1000, T0) > 0


@scenario
async def test_the_most_specific_quota_applies() -> None:
    async with admin() as broker:
        alter = broker.quotas.alter
        await alter([("client-id", None)], put("producer_byte_rate", 1))
        assert paused(broker, "ann", "app", 20) == 10_000
        await alter([("client-id", "app")], put("producer_byte_rate", 2))
        assert paused(broker, "ann", "app", 30) == 5_000
        await alter([("user", "ann")], put("producer_byte_rate", 1000))
        assert paused(broker, "ann", "app", 30) == 0
        assert paused(broker, "bob", "app", 30) == 5_000
        await alter([("user", "ann"), ("client-id", "app")], put("producer_byte_rate", 1))
        assert paused(broker, "ann", "app", 20) == 10_000
        assert paused(broker, "ann", "other", 20) == 0


@scenario
async def test_clients_of_one_user_share_its_quota_and_users_do_not() -> None:
    async with admin() as broker:
        await broker.quotas.alter([("user", None)], put("producer_byte_rate", 1))
        assert paused(broker, "ann", "one", 10) == 0
        assert paused(broker, "ann", "two", 10) == 10_000
        assert paused(broker, "bob", "one", 10) == 0


@scenario
async def test_a_default_for_clients_counts_every_client_by_itself() -> None:
    async with admin() as broker:
        await broker.quotas.alter([("client-id", None)], put("producer_byte_rate", 1))
        assert paused(broker, "ann", "one", 10) == 0
        assert paused(broker, "bob", "two", 10) == 0
        assert paused(broker, "bob", "one", 10) == 10_000


@scenario
async def test_request_time_never_pauses_longer_than_a_window() -> None:
    async with admin() as broker:
        await broker.quotas.alter([("user", "ann")], put("request_percentage", 0.5))
        assert broker.quotas.record("request_percentage", "User:ann", "app", 900, T0) == 1000


@scenario
async def test_mutations_over_the_quota_are_refused_until_it_is_paid_back() -> None:
    async with admin() as broker:
        await broker.quotas.alter([("user", "ann")], put("controller_mutation_rate", 1))
        kind = "controller_mutation_rate"
        broker.quotas.check_mutations("User:ann", "app", T0)
        assert broker.quotas.record(kind, "User:ann", "app", 15, T0) == 4000
        with pytest.raises(ThrottlingQuotaExceeded):
            broker.quotas.check_mutations("User:ann", "app", T0 + 3999)
        broker.quotas.check_mutations("User:ann", "app", T0 + 4000)


@scenario
async def test_connections_are_counted_by_address() -> None:
    async with admin() as broker:
        await broker.quotas.alter([("ip", None)], put("connection_creation_rate", 1))
        await broker.quotas.alter([("ip", "10.0.0.9")], put("connection_creation_rate", 1000))
        pauses = [broker.quotas.record_connection("10.0.0.1", T0) for _ in range(12)]
        assert pauses == [0] * 10 + [1000, 2000]
        assert broker.quotas.record_connection("10.0.0.2", T0) == 0
        assert max(broker.quotas.record_connection("10.0.0.9", T0) for _ in range(100)) == 0


@scenario
async def test_quotas_are_kept_and_removed(tmp_path: Path) -> None:
    async with admin(tmp_path / "c.sqlite") as broker:
        await broker.quotas.alter(
            [("user", "ann")],
            [*put("producer_byte_rate", 5), *put("request_percentage", 1.5)],
        )
        await broker.quotas.alter([("user", "bob")], put("producer_byte_rate", 5))
    async with admin(tmp_path / "c.sqlite") as broker:
        await broker.quotas.alter([("user", "bob")], take_away("producer_byte_rate"))
        await broker.quotas.alter([("user", "ann")], take_away("producer_byte_rate"))
        assert paused(broker, "ann", "app", 1e9) == 0
    async with admin(tmp_path / "c.sqlite") as broker:
        assert broker.quotas.describe() == [((("user", "ann"),), {"request_percentage": 1.5})]


@scenario
async def test_descriptions_are_filtered() -> None:
    async with admin() as broker:
        alter, describe = broker.quotas.alter, broker.quotas.describe
        both = (("client-id", "app"), ("user", "ann"))
        await alter(both, put("producer_byte_rate", 1))
        await alter([("user", "ann")], put("producer_byte_rate", 2))
        await alter([("user", None)], put("producer_byte_rate", 3))
        user = QuotaFilter("user", "ann")
        assert [entity for entity, _ in describe([user])] == [both, (("user", "ann"),)]
        assert [entity for entity, _ in describe([user], strict=True)] == [(("user", "ann"),)]
        default = QuotaFilter("user", None, default=True)
        assert [entity for entity, _ in describe([default])] == [(("user", None),)]
        assert describe([], strict=True) == []
        assert len(describe()) == 3


@scenario
async def test_checking_only_keeps_nothing() -> None:
    async with admin() as broker:
        await broker.quotas.alter([("user", "a")], put("producer_byte_rate", 1), validate_only=True)
        with pytest.raises(InvalidRequest):
            await broker.quotas.alter([("user", "a")], put("nope", 1), validate_only=True)
        assert broker.quotas.describe() == []


@scenario
async def test_invented_client_ids_do_not_fill_the_memory() -> None:
    async with admin() as broker:
        await broker.quotas.alter([("client-id", None)], put("producer_byte_rate", 1))
        for n in range(3 * module._METERS_KEPT):
            paused(broker, "ann", f"client-{n}", 1, T0 + n * 10)
        assert len(broker.quotas._found) <= module._METERS_KEPT
        assert len(broker.quotas._meters) <= module._METERS_KEPT
