"""Ids that were seen lately."""

from __future__ import annotations

from penstock.machines.seen_ids import SeenIds


def test_an_id_is_new_once_within_the_window() -> None:
    seen = SeenIds(window_ms=100)
    assert seen.is_new(b"a", 0)
    assert not seen.is_new(b"a", 99)
    assert seen.is_new(b"a", 100)


def test_a_duplicate_does_not_prolong_the_window() -> None:
    seen = SeenIds(window_ms=100)
    seen.is_new(b"a", 0)
    seen.is_new(b"a", 90)
    assert seen.is_new(b"a", 110)


def test_the_oldest_are_forgotten_when_there_is_no_room() -> None:
    seen = SeenIds(capacity=2)
    for message_id in (b"a", b"b", b"c"):
        assert seen.is_new(message_id, 0)
    assert len(seen) == 2
    assert not seen.is_new(b"c", 0)
    assert seen.is_new(b"a", 0)


def test_memory_is_given_back_when_the_window_has_passed() -> None:
    seen = SeenIds(window_ms=10)
    for now in range(0, 1000):
        seen.is_new(str(now).encode(), now)
    assert len(seen) <= 12


def test_an_id_can_be_forgotten_and_can_have_a_window_of_its_own() -> None:
    seen = SeenIds()
    seen.is_new(b"a", 0)
    seen.is_new(b"b", 0, window_ms=5)
    seen.forget(b"a")
    assert seen.is_new(b"a", 1)
    assert seen.is_new(b"b", 6)
