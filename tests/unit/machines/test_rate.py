"""Meters: what a burst costs, and that pausing as told keeps the bound."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.machines.rate import TokenBucket, WindowedRate

T0 = 1_700_000_000_000


def test_within_the_bound_there_is_no_pause() -> None:
    meter = WindowedRate(1000, 11, 1000)
    assert all(meter.record(90, T0 + n * 100) == 0 for n in range(300))


def test_a_burst_pauses_until_the_average_is_back() -> None:
    meter = WindowedRate(1000, 11, 1000)
    # 30,000 in the first moment is 3,000 a second over the ten full windows: two spans too much.
    assert meter.record(30_000, T0) == 20_000


def test_a_quiet_window_is_forgiven() -> None:
    meter = WindowedRate(1000, 11, 1000)
    assert meter.record(20_000, T0) > 0
    assert meter.excess_ms(T0 + 11_000) == 0
    assert meter.record(1, T0 + 11_000) == 0


def test_a_clock_that_jumps_back_stands_still() -> None:
    meter = WindowedRate(1000, 11, 1000)
    meter.record(5000, T0)
    assert meter.record(0, T0 - 60_000) == meter.record(0, T0)


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 3000)), max_size=200))
def test_a_caller_that_pauses_as_told_keeps_the_bound(steps: list[tuple[int, int]]) -> None:
    meter, now, sent = WindowedRate(1000, 11, 1000), T0, 0
    for amount, idle_ms in steps:
        sent += amount
        now += meter.record(amount, now) + idle_ms
    # Over its whole life it sent no more than the bound allows, but for one span in advance.
    assert sent <= 1000 * ((now - T0) / 1000 + 11) + 1000


def test_a_bucket_lets_a_burst_through_and_then_makes_it_wait() -> None:
    bucket = TokenBucket(2, 11, 1000)  # 22 tokens
    assert bucket.record(20, T0) == 0
    assert bucket.record(10, T0) == 4000
    assert bucket.excess_ms(T0) == 4000
    assert bucket.excess_ms(T0 + 3000) == 1000
    assert bucket.excess_ms(T0 + 4000) == 0


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    bucket = TokenBucket(2, 11, 1000)
    bucket.record(0, T0)
    assert bucket.record(22, T0 + 10_000_000) == 0
    assert bucket.record(2, T0 + 10_000_000) == 1000
