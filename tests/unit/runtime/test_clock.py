"""Clocks."""

from __future__ import annotations

import time

from penstock.runtime.clock import Clock, ManualClock, SystemClock


def test_the_system_clock_shows_the_time() -> None:
    clock: Clock = SystemClock()
    assert abs(clock.now_ms() - time.time() * 1000) < 1000
    assert clock.monotonic() <= clock.monotonic()


def test_a_manual_clock_moves_when_told() -> None:
    clock: Clock = ManualClock(5000)
    assert isinstance(clock, ManualClock)
    clock.advance(1500)
    assert (clock.now_ms(), clock.monotonic()) == (6500, 1.5)


def test_setting_the_wall_clock_back_does_not_turn_time_back() -> None:
    clock = ManualClock(5000)
    clock.advance(100)
    clock.set_wall(1000)
    assert (clock.now_ms(), clock.monotonic()) == (1000, 0.1)
