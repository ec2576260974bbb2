"""What a subscription hands out and what it may commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.client.filter import Filter
from penstock.client.message import Message
from penstock.client.progress import Progress
from penstock.model.ids import TopicPartition
from support.effort import examples

PLACE = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
NOW = 1_700_000_000_000


class Piece:
    def __init__(
        self, place: TopicPartition, messages: Sequence[Message], next_offset: int
    ) -> None:
        self.place = place
        self.next_offset = next_offset
        self._messages = messages

    def messages(self) -> Iterable[Message]:
        return self._messages


def message(offset: int, place: TopicPartition = PLACE, **wishes: object) -> Message:
    delay = wishes.pop("delay", None)
    if delay is not None:
        wishes["deliver_at"] = NOW / 1000 + delay  # type: ignore[operator]
    made = Message(str(offset), timestamp=NOW / 1000, **wishes)  # type: ignore[arg-type]
    made.topic, made.partition, made.offset = place[0], place[1], offset
    return made


def piece(first: int, end: int, place: TopicPartition = PLACE) -> Piece:
    return Piece(place, [message(offset, place) for offset in range(first, end)], end)


def begun(*places: TopicPartition) -> Progress:
    progress = Progress()
    for place in places:
        progress.begin(place, 0)
    return progress


def committable(progress: Progress, *, with_current: bool = False) -> int | None:
    return progress.position(PLACE, with_current=with_current)


def test_only_what_was_asked_past_counts_as_done() -> None:
    progress = begun(PLACE)
    progress.take(piece(0, 3), NOW)
    assert committable(progress) == 0
    first = progress.next(NOW)
    assert first is not None
    assert committable(progress) == 0
    assert committable(progress, with_current=True) == 1
    progress.finish()
    assert committable(progress) == 1
    progress.next(NOW)
    progress.next(NOW)
    assert committable(progress, with_current=True) == 3
    assert committable(progress) == 1
    progress.finish()
    assert committable(progress) == 3
    assert progress.next(NOW) is None


def test_the_end_of_a_chunk_is_passed_too_when_its_tail_shows_nothing() -> None:
    progress = begun(PLACE)
    progress.take(Piece(PLACE, [message(0)], 5), NOW)  # 1 to 4 are markers, or were aborted
    progress.next(NOW)
    progress.finish()
    assert committable(progress) == 5


def test_a_chunk_may_begin_before_what_was_asked_for() -> None:
    progress = Progress()
    progress.begin(PLACE, 2)
    progress.take(piece(0, 4), NOW)
    assert [m.offset for m in iter(lambda: progress.next(NOW), None)] == [2, 3]


def test_filtered_and_expired_messages_count_as_done() -> None:
    progress = Progress(Filter("priority == 1"))
    progress.begin(PLACE, 0)
    messages = [message(0), message(1, priority=1), message(2, priority=1, ttl=1), message(3)]
    progress.take(Piece(PLACE, messages, 4), NOW + 2000)
    found = progress.next(NOW)
    assert found is not None
    assert found.offset == 1
    assert progress.next(NOW) is None
    progress.finish()
    assert committable(progress) == 4


def test_what_is_not_due_is_passed_by_others_and_holds_the_commit() -> None:
    progress = begun(PLACE)
    progress.take(Piece(PLACE, [message(0, delay=1), message(1)], 2), NOW)
    due = progress.next_due_ms()
    assert due is not None
    found = progress.next(NOW)
    assert found is not None
    assert found.offset == 1
    progress.finish()
    assert committable(progress) == 0
    assert progress.next(NOW) is None
    late = progress.next(due)
    assert late is not None
    assert late.offset == 0
    assert committable(progress) == 0
    progress.finish()
    assert committable(progress) == 2


def test_one_that_expires_while_it_waits_is_done_with() -> None:
    progress = begun(PLACE)
    progress.take(Piece(PLACE, [message(0, delay=1, ttl=1)], 1), NOW)
    due = progress.next_due_ms()
    assert due is not None
    assert progress.next(due + 5_000) is None
    assert committable(progress) == 1


def test_what_is_given_up_is_not_handed_out_any_more() -> None:
    progress = begun(PLACE, OTHER)
    progress.take(piece(0, 3), NOW)
    progress.take(piece(0, 2, OTHER), NOW)
    progress.next(NOW)
    progress.end(PLACE)
    progress.finish()
    assert progress.position(PLACE, with_current=True) is None
    assert [m.partition for m in iter(lambda: progress.next(NOW), None)] == [1, 1]
    progress.take(piece(3, 5), NOW)  # came too late
    assert progress.next(NOW) is None


def test_beginning_elsewhere_forgets_what_was_fetched() -> None:
    progress = begun(PLACE)
    progress.take(piece(0, 5), NOW)
    progress.next(NOW)
    progress.begin(PLACE, 2)
    progress.finish()
    assert committable(progress) == 2
    progress.take(piece(2, 4), NOW)
    assert [m.offset for m in iter(lambda: progress.next(NOW), None)] == [2, 3]


@settings(max_examples=examples(200))
@given(st.data())
def test_nothing_is_lost_whenever_it_stops(data: st.DataObject) -> None:
    """Whenever a reader stops and another goes on from the committed offset, every message that was
    not finished is handed out again."""
    total = data.draw(st.integers(1, 25))
    delays = data.draw(st.lists(st.sampled_from([0, 0, 1, 5]), min_size=total, max_size=total))
    log = [message(n, delay=delays[n]) if delays[n] else message(n) for n in range(total)]
    finished: set[int] = set()
    position, now = 0, NOW
    for _ in range(data.draw(st.integers(1, 4))):
        progress = Progress()
        progress.begin(PLACE, position)
        at = position
        in_work: list[int] = []
        for _ in range(data.draw(st.integers(0, 40))):
            finished.update(in_work)
            in_work = []
            progress.finish()
            if progress.wants_more and at < total:
                end = min(total, at + data.draw(st.integers(1, 6)))
                progress.take(Piece(PLACE, log[at:end], end), now)
                at = end
            got = progress.next(now)
            if got is not None:
                in_work = [got.offset]
            now += data.draw(st.integers(0, 2000))
        found = committable(progress)
        assert found is not None
        position = found
        assert all(offset in finished for offset in range(position))
    progress = Progress(keep_expired=True)
    progress.begin(PLACE, position)
    progress.take(Piece(PLACE, log[position:], total), now + 10_000_000_000)
    rest = {m.offset for m in iter(lambda: progress.next(now + 10_000_000_000), None)}
    assert finished | rest == set(range(total))
