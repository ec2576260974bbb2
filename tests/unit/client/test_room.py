"""Backpressure."""

from __future__ import annotations

import threading

import pytest

from penstock.client.errors import InvalidArgument, QueueFull, TimedOut
from penstock.client.room import Room


def test_both_bounds_count() -> None:
    room = Room(2, 100, "drop")
    assert room.take(60)
    assert not room.take(60)
    assert room.take(40)
    assert not room.take(0)
    room.give_back(60)
    assert room.take(60)


def test_what_is_larger_than_all_room_passes_alone() -> None:
    room = Room(2, 100, "raise")
    assert room.take(500)
    with pytest.raises(QueueFull):
        room.take(1)
    room.give_back(500)
    assert room.messages == room.bytes == 0


def test_blocking_waits_until_something_arrives() -> None:
    room = Room(1, 100, "block")
    room.take(1)
    timer = threading.Timer(0.1, room.give_back, (1,))
    timer.start()
    assert room.take(1, timeout=10)
    with pytest.raises(TimedOut):
        room.take(1, timeout=0.05)
    timer.join()


def test_whoever_cannot_wait_is_told() -> None:
    room = Room(1, 100, "block")
    told: list[str] = []
    room.when_changed(lambda: told.append("at once"))
    assert told == ["at once"]
    room.take(1)
    room.when_changed(lambda: told.append("later"))
    assert told == ["at once"]
    room.give_back(1)
    assert told == ["at once", "later"]
    assert room.wait_empty(0)


def test_wrong_rules_are_refused() -> None:
    with pytest.raises(InvalidArgument, match='"block", "raise" or "drop"'):
        Room(1, 1, "explode")
    with pytest.raises(InvalidArgument, match="at least 1"):
        Room(0, 1, "block")
