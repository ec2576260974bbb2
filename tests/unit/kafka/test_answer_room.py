"""The bound on what answers hold in memory."""

from __future__ import annotations

from penstock.kafka.answer_room import AnswerRoom

MIB = 1 << 20


def test_what_is_wanted_is_granted_while_there_is_room() -> None:
    room = AnswerRoom(10 * MIB)
    assert room.reserve(4 * MIB) == 4 * MIB
    assert room.reserve(4 * MIB) == 4 * MIB


def test_only_what_is_left_is_granted() -> None:
    room = AnswerRoom(10 * MIB)
    room.hold(7 * MIB)
    assert room.reserve(50 * MIB) == 3 * MIB


def test_a_little_is_granted_even_when_there_is_no_room() -> None:
    room = AnswerRoom(10 * MIB)
    room.hold(500 * MIB)
    assert room.reserve(50 * MIB) == 64 * 1024
    assert room.reserve(100) == 100


def test_what_was_given_back_can_be_had_again() -> None:
    room = AnswerRoom(10 * MIB)
    granted = room.reserve(50 * MIB)
    assert room.reserve(MIB) == 64 * 1024
    room.release(granted)
    room.release(64 * 1024)
    assert room.reserve(50 * MIB) == 10 * MIB
