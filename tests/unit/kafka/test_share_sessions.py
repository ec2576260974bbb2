"""Share sessions: epochs, changes, and an end."""

from __future__ import annotations

import uuid

import pytest

from penstock.errors import (
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)
from penstock.kafka.share_sessions import FINAL_EPOCH, ShareSessions

ME, YOU = ("group", "me"), ("group", "you")
TOPIC = uuid.UUID(int=1)


def test_epochs_count_up_and_start_again() -> None:
    sessions = ShareSessions(2)
    session = sessions.begin(ME)
    assert sessions.resume(ME, 1) is session
    assert session.epoch == 2
    session.epoch = 0x7FFFFFFF
    sessions.resume(ME, 0x7FFFFFFF)
    assert session.epoch == 1


def test_wrong_epochs_and_unknown_members_are_refused() -> None:
    sessions = ShareSessions(2)
    sessions.begin(ME)
    with pytest.raises(InvalidShareSessionEpoch):
        sessions.resume(ME, 2)
    with pytest.raises(ShareSessionNotFound):
        sessions.resume(YOU, 1)


def test_the_final_epoch_ends_a_session_whatever_its_epoch() -> None:
    sessions = ShareSessions(2)
    sessions.begin(ME)
    sessions.resume(ME, FINAL_EPOCH)
    with pytest.raises(ShareSessionNotFound):
        sessions.resume(ME, 1)


def test_there_are_only_so_many_and_ones_own_does_not_count() -> None:
    sessions = ShareSessions(1)
    sessions.begin(ME)
    again = sessions.begin(ME)
    with pytest.raises(ShareSessionLimitReached):
        sessions.begin(YOU)
    assert sessions.close(again)
    sessions.begin(YOU)


def test_a_session_that_was_replaced_cannot_be_closed_by_its_old_connection() -> None:
    sessions = ShareSessions(2)
    old = sessions.begin(ME)
    new = sessions.begin(ME)
    assert not sessions.close(old)
    assert sessions.resume(ME, 1) is new


def test_partitions_come_and_go() -> None:
    session = ShareSessions(1).begin(ME)
    session.change([(TOPIC, 0), (TOPIC, 1)], [])
    session.change([(TOPIC, 1), (TOPIC, 2)], [(TOPIC, 0)])
    assert list(session.partitions) == [(TOPIC, 1), (TOPIC, 2)]
