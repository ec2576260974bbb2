"""Fetch sessions: bounded, ordered, and silent about what did not change."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from penstock.errors import (
    FetchSessionNotFound,
    FetchSessionTopicIdMismatch,
    InvalidFetchSessionEpoch,
)
from penstock.kafka.fetch_sessions import FetchSessions, PartitionKey, WantedPartition


def _wanted(*partitions: int) -> OrderedDict[PartitionKey, WantedPartition]:
    return OrderedDict((("t", each), WantedPartition(0, 1000)) for each in partitions)


def test_a_session_remembers_its_partitions_and_takes_changes() -> None:
    sessions = FetchSessions(10)
    session = sessions.begin(0, _wanted(0, 1))
    resumed = sessions.resume(session.id, 1, _wanted(2), [("t", 0)])
    assert resumed is not None
    assert list(resumed.partitions) == [("t", 1), ("t", 2)]
    assert resumed.epoch == 2


def test_what_is_named_and_forgotten_at_once_is_forgotten_and_ends_an_empty_session() -> None:
    sessions = FetchSessions(10)
    session = sessions.begin(0, _wanted(0))
    assert sessions.resume(session.id, 1, _wanted(0), [("t", 0)]) is None
    assert len(sessions) == 0


def test_a_session_by_names_is_not_resumed_by_ids() -> None:
    sessions = FetchSessions(10)
    session = sessions.begin(0, _wanted(0))
    with pytest.raises(FetchSessionTopicIdMismatch):
        sessions.resume(session.id, 1, _wanted(), [], by_id=True)


def test_a_wrong_epoch_and_an_unknown_session_are_told_apart() -> None:
    sessions = FetchSessions(10)
    session = sessions.begin(0, _wanted(0))
    with pytest.raises(InvalidFetchSessionEpoch):
        sessions.resume(session.id, 5, _wanted(), [])
    with pytest.raises(FetchSessionNotFound):
        sessions.resume(session.id + 1, 1, _wanted(), [])


def test_the_session_idle_longest_makes_room_for_a_new_one() -> None:
    sessions = FetchSessions(2)
    first = sessions.begin(0, _wanted(0))
    second = sessions.begin(0, _wanted(0))
    sessions.resume(first.id, 1, _wanted(), [])
    sessions.begin(0, _wanted(0))
    assert len(sessions) == 2
    with pytest.raises(FetchSessionNotFound):
        sessions.resume(second.id, 1, _wanted(), [])


def test_a_partition_is_news_once_until_something_changes() -> None:
    sessions = FetchSessions(2)
    session = sessions.begin(0, _wanted(0, 1))
    assert session.is_news(("t", 0), 0, 0, (5, 5, 0))
    assert not session.is_news(("t", 0), 0, 0, (5, 5, 0))
    assert session.is_news(("t", 0), 0, 0, (6, 6, 0))
    assert session.is_news(("t", 0), 0, 100, (6, 6, 0))


def test_an_error_is_news_and_so_is_its_end() -> None:
    session = FetchSessions(2).begin(0, _wanted(0))
    session.is_news(("t", 0), 0, 0, (5, 5, 0))
    assert session.is_news(("t", 0), 1, 0, (5, 5, 0))
    assert session.is_news(("t", 0), 0, 0, (5, 5, 0))


def test_a_partition_that_had_data_waits_behind_the_others() -> None:
    session = FetchSessions(2).begin(0, _wanted(0, 1))
    session.is_news(("t", 0), 0, 100, (5, 5, 0))
    assert list(session.partitions) == [("t", 1), ("t", 0)]


def test_the_epoch_starts_again_after_its_largest_value() -> None:
    sessions = FetchSessions(2)
    session = sessions.begin(0, _wanted(0))
    session.epoch = 0x7FFFFFFF
    assert sessions.resume(session.id, 0x7FFFFFFF, _wanted(), []).epoch == 1
