"""The queue machine, one behaviour at a time. What all of them do together is a property test."""

from __future__ import annotations

import pytest

from penstock.errors import CorruptRecord
from penstock.machines.queue import Queue
from penstock.machines.queue_outcome import Marks, Outcome
from penstock.model.queue_journal import (
    Acked,
    Checkpoint,
    DeadLettered,
    Delivered,
    JournalRecord,
    Moved,
    Purged,
    Returned,
    Seen,
    Truncated,
    decode,
    encode,
)
from penstock.model.queue_settings import DeadReason, Overflow, QueueSettings


def live(settings: QueueSettings | None = None, *journal: JournalRecord) -> Queue:
    queue = Queue(settings or QueueSettings())
    for record in journal:
        queue.apply(record)
    queue.recovered()
    return queue


def perform(queue: Queue, outcome: Outcome) -> Outcome:
    for record in outcome.records:
        queue.apply(record)
    return outcome


def taken(queue: Queue, limit: int, now_ms: int = 0, holder: str | None = None) -> list[int]:
    return [at for low, high in queue.take(limit, now_ms, holder) for at in range(low, high)]


# --- first in, first out --------------------------------------------------------------------------


def test_messages_come_out_in_the_order_in_which_they_went_in() -> None:
    queue = live()
    queue.extend(5, 0)
    assert taken(queue, 2) == [0, 1]
    assert taken(queue, 10) == [2, 3, 4]
    assert queue.ready == 0
    assert queue.delivered == 5


def test_messages_that_come_back_go_out_first_and_in_their_old_order() -> None:
    queue = live()
    queue.extend(10, 0)
    queue.take(6)
    perform(queue, queue.give_back([4, 1, 2]))
    assert taken(queue, 5) == [1, 2, 4, 6, 7]
    assert queue.delivery_count(1) == 1
    assert queue.delivery_count(0) == 0


def test_a_message_given_back_unseen_was_never_delivered() -> None:
    queue = live()
    queue.extend(3, 0)
    queue.take(3)
    assert queue.give_back([1], counted=False).records == ()
    assert queue.delivery_count(1) == 0
    assert taken(queue, 3) == [1]


def test_acknowledgements_out_of_order_move_the_floor_when_the_gap_closes() -> None:
    queue = live()
    queue.extend(3000, 0)
    queue.take(3000)
    perform(queue, queue.ack(range(1, 3000)))
    assert queue.state.floor == 0
    perform(queue, queue.ack([0]))
    assert queue.state.floor == 3000
    assert not queue.state.states, "an empty queue remembers nothing of its messages"


def test_an_acknowledgement_of_something_not_delivered_changes_nothing() -> None:
    queue = live()
    queue.extend(4, 0)
    queue.take(2)
    perform(queue, queue.ack([0]))
    assert queue.ack([0, 3, 2]).records == ()
    assert queue.unsettled == 3


def test_acknowledging_a_range_is_one_record_with_one_range() -> None:
    queue = live()
    queue.extend(500, 0)
    queue.take(500)
    assert queue.ack(list(range(499, -1, -1))).records == (Acked(((0, 500),)),)


def test_purge_settles_what_is_ready_and_leaves_what_is_delivered() -> None:
    queue = live()
    queue.extend(10, 0)
    queue.take(4)
    perform(queue, queue.give_back([1]))
    record = queue.purge()
    assert record == Purged(((1, 2), (4, 10)))
    queue.apply(record)
    assert (queue.ready, queue.delivered) == (0, 3)
    assert queue.purge() is None


# --- priorities -----------------------------------------------------------------------------------


def test_higher_priorities_go_out_first_and_each_priority_in_order() -> None:
    queue = live(QueueSettings(max_priority=255))
    queue.extend(6, 0, Marks(bytes([0, 255, 3, 255, 0, 3])))
    assert taken(queue, 6) == [1, 3, 2, 5, 0, 4]


def test_a_returned_message_keeps_its_priority() -> None:
    queue = live(QueueSettings(max_priority=9))
    queue.extend(4, 0, Marks(bytes([1, 5, 5, 1])))
    assert taken(queue, 3) == [1, 2, 0]
    perform(queue, queue.give_back([0, 1]))
    assert taken(queue, 3) == [1, 0, 3]


def test_a_settled_message_below_the_floor_never_comes_out_of_its_level_again() -> None:
    queue = live(QueueSettings(max_priority=1, message_ttl_ms=10))
    queue.extend(3000, 0, Marks(bytes(3000)))
    queue.extend(3001, 5, Marks(b"\x01"))
    perform(queue, queue.tick(10))  # the 3,000 are expired but still lie in their array
    queue.extend(3002, 12, Marks(b"\x00"))
    assert taken(queue, 10) == [3000, 3001]


# --- time -----------------------------------------------------------------------------------------


def test_a_message_expires_wherever_it_is_in_the_queue() -> None:
    queue = live()
    queue.extend(3, 0, Marks(None, [(1, 50)]))
    assert queue.next_ms() == 50
    assert perform(queue, queue.tick(49)) == Outcome()
    assert perform(queue, queue.tick(50)).records == (Acked(((1, 2),)),)
    assert taken(queue, 3) == [0, 2]


def test_a_message_that_somebody_holds_expires_when_it_comes_back() -> None:
    queue = live(QueueSettings(dead_letters=True))
    queue.extend(2, 0, Marks(None, [(0, 50)]))
    queue.take(1)
    assert queue.tick(60) == Outcome()
    outcome = perform(queue, queue.give_back([0]))
    assert [(dead.ranges, dead.reason) for dead in outcome.dead] == [([(0, 1)], "expired")]
    assert taken(queue, 2) == [1]


def test_the_time_to_live_of_a_queue_needs_no_entry_for_each_message() -> None:
    queue = live(QueueSettings(message_ttl_ms=1000))
    queue.extend(1_000_000, 5)
    queue.extend(2_000_000, 6)
    assert queue.next_ms() == 1005
    assert perform(queue, queue.tick(1005)).records == (Acked(((0, 1_000_000),)),)
    assert queue.next_ms() == 1006
    assert queue.ready == 1_000_000


def test_a_time_to_live_set_later_holds_for_messages_that_are_there() -> None:
    queue = live()
    queue.extend(10, 0)
    queue.reconfigure(QueueSettings(message_ttl_ms=100))
    perform(queue, queue.tick(100))
    assert queue.ready == 0


def test_a_scheduled_message_waits_and_then_takes_its_place() -> None:
    queue = live()
    queue.extend(3, 0, Marks(None, (), [(0, 100)]))
    assert (queue.ready, queue.held) == (2, 1)
    assert taken(queue, 1) == [1]
    perform(queue, queue.tick(100))
    assert taken(queue, 5) == [0, 2]
    assert queue.delivery_count(0) == 0


def test_the_time_to_live_of_a_scheduled_message_begins_when_it_is_due() -> None:
    queue = live(QueueSettings(message_ttl_ms=10))
    queue.extend(1, 0, Marks(None, (), [(0, 100)]))
    perform(queue, queue.tick(100))
    assert queue.ready == 1
    perform(queue, queue.tick(109))
    assert queue.ready == 1
    perform(queue, queue.tick(110))
    assert queue.unsettled == 0


def test_a_lock_that_runs_out_returns_the_message_and_renewal_prevents_it() -> None:
    queue = live(QueueSettings(lock_ms=30))
    queue.extend(2, 0)
    queue.take(2, 0, "a")
    assert queue.renew([0], "a", 20) == [0]
    perform(queue, queue.tick(30))
    assert (queue.ready, queue.delivered) == (1, 1)
    assert taken(queue, 2, 30, "b") == [1]
    assert queue.ack([1], "a").records == (), "the late holder's word counts no more"
    perform(queue, queue.ack([1], "b"))
    perform(queue, queue.tick(50))
    assert queue.ready == 1
    assert queue.delivery_count(0) == 1


# --- limits ---------------------------------------------------------------------------------------


def test_a_message_that_comes_back_too_often_dies() -> None:
    queue = live(QueueSettings(delivery_limit=2, dead_letters=True))
    queue.extend(1, 0)
    for _ in range(2):
        queue.take(1)
        assert not perform(queue, queue.give_back([0])).dead
    queue.take(1)
    (dead,) = perform(queue, queue.give_back([0])).dead
    assert dead.reason is DeadReason.DELIVERY_LIMIT
    assert (queue.dying, queue.ready) == (1, 0)
    queue.apply(queue.bury(dead.ranges))
    assert queue.unsettled == 0


def test_the_oldest_messages_make_room_in_a_queue_that_is_too_long() -> None:
    queue = live(QueueSettings(max_length=3))
    queue.extend(5, 0)
    assert perform(queue, queue.make_room(demand=1)).records == (Acked(((0, 1),)),)
    assert perform(queue, queue.make_room()).records == (Acked(((1, 2),)),)
    assert taken(queue, 9) == [2, 3, 4]


def test_bytes_of_ready_messages_are_limited() -> None:
    queue = live(QueueSettings(max_length_bytes=10))
    queue.extend(4, 0, Marks(sizes=[4, 4, 4, 4]))
    perform(queue, queue.make_room())
    assert queue.ready_bytes == 8
    queue.take(1)
    assert queue.ready_bytes == 4


def test_a_limit_in_bytes_can_come_later() -> None:
    queue = live()
    queue.extend(4, 0)
    queue.take(1)
    queue.reconfigure(QueueSettings(max_length_bytes=10))
    queue.measure(0, [4, 4, 4, 4])
    assert queue.ready_bytes == 12
    perform(queue, queue.make_room())
    assert taken(queue, 9) == [2, 3]


def test_a_full_queue_that_rejects_has_no_room_for_publishers() -> None:
    queue = live(QueueSettings(max_length=3, overflow=Overflow.REJECT_PUBLISH))
    assert queue.room() == (3, None)
    queue.extend(3, 0)
    assert queue.room() == (0, None)
    assert queue.make_room() == Outcome()


# --- the journal ----------------------------------------------------------------------------------


def test_what_was_delivered_before_a_crash_counts_as_come_back() -> None:
    queue = live(None, Delivered(((0, 3),)), Acked(((1, 2),)))
    queue.extend(5, 0)
    assert taken(queue, 9) == [0, 2, 3, 4]
    assert [queue.delivery_count(at) for at in (0, 2, 3)] == [1, 1, 0]


def test_every_crash_while_delivered_counts() -> None:
    queue = live(None, Delivered(((0, 1),)), Delivered(((0, 1),)), Delivered(((0, 1),)))
    queue.extend(1, 0)
    assert queue.delivery_count(0) == 3
    again = live(None, queue.checkpoint(), Delivered(((0, 1),)))
    again.extend(1, 0)
    assert again.delivery_count(0) == 4


def test_counts_beyond_a_byte_survive_a_checkpoint() -> None:
    queue = live(None, Returned(((0, 2, 254),)))
    queue.extend(2, 0)
    for expected in (255, 256, 257):
        queue.take(2)
        perform(queue, queue.give_back([0, 1]))
        assert queue.delivery_count(1) == expected
    again = live(None, queue.checkpoint())
    again.extend(2, 0)
    assert again.delivery_count(0) == 257


def test_acknowledgements_of_messages_that_the_log_lost_are_not_believed_of_their_successors() -> (
    None
):
    queue = Queue(QueueSettings())
    queue.apply(Acked(((0, 2), (5, 9))))
    record = queue.state.orphans(4)
    assert record == Truncated(4)
    queue.apply(record)
    queue.recovered()
    queue.extend(10, 0)
    assert taken(queue, 10) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert Queue(QueueSettings()).state.orphans(0) is None


def test_a_moved_message_keeps_its_place_in_the_queue() -> None:
    queue = live()
    queue.extend(100, 0)
    queue.take(100)
    perform(queue, queue.ack([at for at in range(100) if at not in (3, 60)]))
    assert queue.state.unsettled_places(50) == [(3, 3)]
    queue.apply(Moved(((3, 100),)))
    queue.extend(101, 0)
    assert queue.state.place_of(3) == 100
    assert queue.state.needed_from() == 60
    perform(queue, queue.give_back([3, 60]))
    again = live(None, queue.checkpoint())
    again.extend(101, 0)
    assert taken(again, 5) == [3, 60]
    assert again.state.place_of(3) == 100
    perform(again, again.ack([3, 60]))
    assert again.state.needed_from() == 101


def test_what_retention_removed_is_settled() -> None:
    queue = live()
    queue.extend(10, 0)
    record = queue.state.missing_below(6)
    assert record == Acked(((0, 6),))
    queue.apply(record)
    assert taken(queue, 10) == [6, 7, 8, 9]


def test_a_queue_knows_from_where_messages_have_times_of_their_own() -> None:
    queue = live()
    queue.extend(10, 0)
    assert queue.seen() == Seen(10, -1)
    queue.extend(12, 0, Marks(None, [(11, 500)]))
    queue.extend(20, 0)
    assert queue.seen() == Seen(20, 10)
    perform(queue, queue.tick(500))
    assert queue.seen() == Seen(20, -1)


RECORDS: list[JournalRecord] = [
    Acked(((0, 1), (5, 1 << 40))),
    Returned(((0, 3, 1), (3, 4, 300))),
    Delivered(((7, 8),)),
    DeadLettered(((1, 2),)),
    Purged(()),
    Checkpoint(3, 10, -1, ((5, 6),), ((6, 8, 2),), ((8, 9),), ((4, 9),)),
    Truncated(77),
    Seen(9, -1),
    Moved(((1, 1000), (2, 1001))),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_of_the_journal_reads_as_it_was_written(record: JournalRecord) -> None:
    assert decode(encode(record)) == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_of_the_journal_that_is_cut_off_is_recognised(record: JournalRecord) -> None:
    data = encode(record)
    for length in range(len(data)):
        with pytest.raises(CorruptRecord):
            decode(data[:length])
    with pytest.raises(CorruptRecord):
        decode(data + b"\x00")


def test_messages_that_are_gone_before_they_expire_leave_nothing_behind() -> None:
    day_ms = 24 * 3_600_000
    queue = live()
    for base in range(0, 400_000, 1000):
        expiries = [(base + at, base + day_ms) for at in range(1000)]
        queue.extend(base + 1000, base, Marks(expiries=expiries))
        offsets = taken(queue, 1000)
        kept = offsets[:1] if base == 399_000 else []
        perform(queue, queue.ack([at for at in offsets if at not in kept]))
    assert queue._clock._expiring is not None
    assert len(queue._clock._expiring) < 100_000
    perform(queue, queue.give_back([399_000]))
    assert queue.next_ms() is not None
    assert perform(queue, queue.tick(399_000 + day_ms)).records == (Acked(((399_000, 399_001),)),)
