"""Leader epochs: who reigned from where."""

from __future__ import annotations

from penstock.log.epochs import LeaderEpochs


def epochs() -> LeaderEpochs:
    return LeaderEpochs([(0, 0), (2, 100), (5, 250)])


def test_an_epoch_ends_where_the_next_one_begins() -> None:
    found = {epoch: epochs().end_offset_for(epoch, 400) for epoch in range(-1, 7)}
    assert found == {
        -1: (-1, -1),
        0: (0, 100),
        1: (0, 100),
        2: (2, 250),
        3: (2, 250),
        4: (2, 250),
        5: (5, 400),
        6: (-1, -1),
    }


def test_an_epoch_before_the_first_known_one_ended_where_that_began() -> None:
    assert LeaderEpochs([(3, 50)]).end_offset_for(1, 99) == (1, 50)
    assert LeaderEpochs().end_offset_for(0, 99) == (-1, -1)


def test_an_epoch_is_assigned_once_and_only_forwards() -> None:
    reigns = epochs()
    assert not reigns.assign(5, 300)
    assert not reigns.assign(1, 300)
    assert not reigns.changed
    assert reigns.assign(6, 300)
    assert reigns.changed
    assert reigns.latest == 6


def test_a_reign_without_a_record_leaves_no_trace() -> None:
    reigns = epochs()
    reigns.assign(6, 250)
    assert reigns.entries == [(0, 0), (2, 100), (6, 250)]


def test_cutting_the_end_forgets_later_reigns() -> None:
    reigns = epochs()
    reigns.truncate_end(250)
    assert reigns.entries == [(0, 0), (2, 100)]


def test_moving_the_start_moves_the_reign_it_lies_in() -> None:
    reigns = epochs()
    reigns.truncate_start(0)
    assert not reigns.changed
    reigns.truncate_start(150)
    assert reigns.entries == [(2, 150), (5, 250)]
    reigns.truncate_start(250)
    assert reigns.entries == [(5, 250)]
    reigns.truncate_start(900)
    assert reigns.entries == [(5, 900)]


def test_every_offset_was_written_under_one_epoch() -> None:
    assert [epochs().epoch_at(at) for at in (0, 99, 100, 249, 250, 9999)] == [0, 0, 2, 2, 5, 5]
    assert LeaderEpochs().epoch_at(5) == -1
