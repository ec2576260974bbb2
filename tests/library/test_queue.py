"""Queues, in both homes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

import penstock
from penstock import Client, Queue, QueueMessage
from support.naming import unique
from support.waiting import eventually

pytestmark = pytest.mark.own_broker

PATIENCE = 20.0


@pytest.fixture
def queue(mq: Client) -> Queue:
    return mq.queue(unique("queue"))


def take(queue: Queue) -> QueueMessage:
    message = queue.get(timeout=PATIENCE)
    assert message is not None, f"nothing came from {queue!r}"
    return message


def ready(queue: Queue, count: int) -> None:
    eventually(lambda: queue.stats().ready == count, what=f"{count} ready, not {queue.stats()}")


# --- publishing and taking ------------------------------------------------------------------------


def test_what_is_published_is_taken_once_and_in_order(queue: Queue) -> None:
    receipts = queue.publish_many([str(n) for n in range(5)])
    assert len({receipt.message_id for receipt in receipts}) == 5
    assert receipts[0].topic == queue.name
    for n in range(5):
        message = take(queue)
        assert message.text == str(n)
        message.ack()
    assert queue.get() is None


def test_every_field_of_a_message_arrives(queue: Queue) -> None:
    queue.publish(
        {"id": 7},
        serializer="json",
        key="user-1",
        headers={"source": "web", "raw": b"\x00\xff"},
        priority=3,
        ttl=60,
        message_id="m-1",
        correlation_id="c-1",
        reply_to="answers",
        timestamp=1_700_000_000.0,
    )
    message = take(queue)
    assert message.json() == {"id": 7}
    assert (message.key, message.headers["source"]) == (b"user-1", "web")
    assert dict(message.raw_headers)["raw"] == b"\x00\xff"
    assert (message.priority, message.ttl) == (3, 60.0)
    assert (message.message_id, message.correlation_id) == ("m-1", "c-1")
    assert (message.reply_to, message.timestamp_ms) == ("answers", 1_700_000_000_000)
    assert (message.queue, message.topic, message.retry_count) == (queue.name, queue.name, 0)
    message.ack()


def test_a_message_that_is_too_large_is_refused_and_the_next_one_is_not(queue: Queue) -> None:
    with pytest.raises(penstock.MessageTooLarge):
        queue.publish(bytes((16 << 20) + 1))
    queue.publish("small")
    assert take(queue).text == "small"


def test_futures_bring_receipts(queue: Queue) -> None:
    futures = [queue.send(str(n), message_id=f"m{n}") for n in range(50)]
    assert [future.result(PATIENCE).message_id for future in futures] == [
        f"m{n}" for n in range(50)
    ]
    ready(queue, 50)


def test_consuming_goes_on_with_what_comes(queue: Queue) -> None:
    queue.publish_many(["a", "b"])
    with queue.consume(prefetch=10) as messages:
        for expected in ("a", "b"):
            message = next(messages)
            assert message.text == expected
            message.ack()
        queue.publish("c")
        assert next(messages).text == "c"
    ready(queue, 1)  # the last one was not acknowledged
    assert take(queue).delivery_count == 1


def test_iteration_ends_when_it_is_quiet_for_long(queue: Queue) -> None:
    queue.publish_many(["a", "b"])
    with queue.consume(idle_timeout=0.5, auto_ack=True) as messages:
        assert [message.text for message in messages] == ["a", "b"]
    assert queue.stats().ready == 0


def test_auto_ack_spares_what_an_exception_interrupted(queue: Queue) -> None:
    queue.publish_many(["a", "b", "c"])

    def work() -> None:
        with queue.consume(auto_ack=True) as messages:
            for message in messages:
                if message.text == "b":
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    ready(queue, 2)
    assert take(queue).text == "b"


def test_prefetch_bounds_what_is_unsettled(queue: Queue) -> None:
    queue.publish_many([str(n) for n in range(10)])
    with queue.consume(prefetch=3) as messages:
        held = [next(messages) for _ in range(3)]
        assert messages.get(0.3) is None
        assert (queue.stats().ready, queue.stats().in_flight) == (7, 3)
        held[0].ack()
        assert next(messages).text == "3"
    with pytest.raises(penstock.InvalidArgument, match="prefetch"):
        queue.consume(prefetch=0)


def test_consumers_share_the_work(queue: Queue) -> None:
    found: list[list[str]] = [[], []]
    consumers = [queue.consume(prefetch=1) for _ in found]

    def work(index: int) -> None:
        for message in consumers[index]:
            found[index].append(message.text)
            message.ack()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
    for thread in threads:
        thread.start()
    try:
        queue.publish_many([str(n) for n in range(100)])
        eventually(lambda: sum(map(len, found)) == 100)
        eventually(lambda: queue.stats().consumers == 2)
    finally:
        for consumer in consumers:
            consumer.close()
        for thread in threads:
            thread.join(10)
    assert sorted(int(text) for part in found for text in part) == list(range(100))
    assert all(found)


def test_an_exclusive_consumer_is_alone(queue: Queue) -> None:
    with queue.consume(exclusive=True), pytest.raises(penstock.PenstockError):
        queue.consume()


def test_the_consumer_of_higher_priority_is_served_first(queue: Queue) -> None:
    with queue.consume(prefetch=5) as low, queue.consume(prefetch=5, priority=5) as high:
        queue.publish_many([str(n) for n in range(5)])
        assert [next(high).text for _ in range(5)] == [str(n) for n in range(5)]
        assert low.get(0.2) is None


def test_get_waits_as_long_as_told(queue: Queue) -> None:
    assert queue.get() is None
    threading.Timer(0.3, queue.publish, ["late"]).start()
    assert take(queue).text == "late"


def test_closing_from_another_thread_ends_the_iteration(queue: Queue) -> None:
    messages = queue.consume()
    found: list[QueueMessage] = []
    thread = threading.Thread(target=lambda: found.extend(messages))
    thread.start()
    queue.publish("a")
    eventually(lambda: found)
    messages.close()
    thread.join(10)
    assert not thread.is_alive()
    with pytest.raises(penstock.Closed):
        messages.get()


def test_deleting_the_queue_ends_its_consumers(mq: Client, queue: Queue) -> None:
    messages = queue.consume()
    queue.publish("a")
    assert next(messages).text == "a"
    assert queue.delete() >= 0
    assert next(messages, None) is None
    assert queue.name not in mq.queues()
    with pytest.raises(penstock.NotFound):
        queue.publish("nobody there")


# --- settling -------------------------------------------------------------------------------------


def test_a_message_is_settled_once(queue: Queue) -> None:
    queue.publish("a")
    message = take(queue)
    assert not message.is_settled
    message.ack()
    assert message.is_settled
    for again in (message.ack, message.nack, message.reject):
        with pytest.raises(penstock.Conflict, match="settled already"):
            again()


def test_nack_gives_it_back_to_its_old_place(queue: Queue) -> None:
    queue.publish_many(["a", "b"])
    take(queue).nack()
    ready(queue, 2)
    again = take(queue)
    assert (again.text, again.delivery_count, again.retry_count) == ("a", 1, 1)


def test_nack_with_a_delay_brings_it_back_later(queue: Queue) -> None:
    queue.publish_many(["a", "b"], message_id=None)
    nacked = time.monotonic()
    take(queue).nack(delay=1.0)
    message = take(queue)
    assert message.text == "b"
    message.ack()
    again = take(queue)
    assert time.monotonic() - nacked >= 0.9
    assert (again.text, again.retry_count) == ("a", 1)
    again.nack(delay=timedelta(milliseconds=50))
    third = take(queue)
    assert third.retry_count == 2
    third.ack()
    ready(queue, 0)


def test_nack_without_requeue_is_a_rejection(queue: Queue) -> None:
    queue.publish("a")
    take(queue).nack(requeue=False)
    assert take(queue.dead_letters).text == "a"


def test_a_message_that_nobody_settles_comes_back(mq: Client) -> None:
    queue = mq.queue(unique("queue"), visibility_timeout=1)
    queue.publish("a")
    with queue.consume() as messages:
        assert next(messages).text == "a"
        with queue.consume() as others:
            again = others.get(PATIENCE)
            assert again is not None
            assert again.delivery_count == 1
            again.ack()


# --- dead letters ---------------------------------------------------------------------------------


def test_dead_letters_tell_why_and_where_they_died(queue: Queue) -> None:
    queue.publish("a", headers={"mine": "kept"}, message_id="m-1")
    try:
        raise ValueError("the price is wrong")
    except ValueError as error:
        take(queue).reject(error)
    dead = take(queue.dead_letters)
    assert (dead.text, dead.message_id, dead.headers["mine"]) == ("a", "m-1", "kept")
    assert dead.error == "the price is wrong"
    assert dead.headers["penstock.error-type"] == "ValueError"
    assert "raise ValueError" in dead.headers["penstock.error-trace"]
    [death] = dead.deaths
    assert (death["queue"], death["reason"], death["count"]) == (queue.name, "rejected", 1)
    dead.ack()


def test_a_rejection_may_be_told_in_words_or_not_at_all(queue: Queue) -> None:
    queue.publish_many(["a", "b"])
    take(queue).reject("no such customer")
    take(queue).reject()
    told = {message.text: message for message in (take(queue.dead_letters) for _ in range(2))}
    assert told["a"].error == "no such customer"
    assert told["b"].error is None
    assert [death["reason"] for death in told["b"].deaths] == ["rejected"]


def test_redrive_sends_them_back_as_they_were(queue: Queue) -> None:
    queue.publish_many(["a", "b", "c"])
    for _ in range(3):
        take(queue).reject("not today")
    ready(queue.dead_letters, 3)
    assert queue.redrive(limit=1).moved == 1
    ready(queue, 1)
    assert queue.redrive().moved == 2
    ready(queue, 3)
    message = take(queue)
    assert (message.deaths, message.error) == ([], None)  # as before it died
    message.reject("again")
    assert take(queue.dead_letters).error == "again"


def test_redrive_to_another_queue(mq: Client, queue: Queue) -> None:
    other = mq.queue(unique("other"))
    queue.publish("a")
    take(queue).reject("no")
    ready(queue.dead_letters, 1)
    assert queue.redrive(to=other.name).moved == 1
    assert take(other).text == "a"


def test_a_message_delivered_too_often_dies(mq: Client) -> None:
    queue = mq.queue(unique("queue"), max_deliveries=3)
    queue.publish("poison")
    for delivery in range(3):
        message = take(queue)
        assert message.delivery_count == delivery
        message.nack()
    dead = take(queue.dead_letters)
    assert dead.text == "poison"
    assert dead.deaths[0]["reason"] == "delivery_limit"
    with pytest.raises(penstock.InvalidArgument, match="max_deliveries"):
        mq.queue(unique("queue"), max_deliveries=0)


def test_dead_letters_may_go_elsewhere_or_nowhere(mq: Client) -> None:
    graveyard = mq.queue(unique("graveyard"), dead_letter=False)
    queue = mq.queue(unique("queue"), dead_letter=graveyard.name)
    queue.publish("a")
    take(queue).reject("no")
    dead = take(graveyard)
    assert (dead.text, dead.error) == ("a", "no")
    dead.reject("even here")
    eventually(lambda: graveyard.stats().in_flight == 0)
    assert graveyard.get() is None
    with pytest.raises(penstock.InvalidArgument, match="no dead letters"):
        _ = graveyard.dead_letters


# --- time -----------------------------------------------------------------------------------------


def test_expired_messages_die(mq: Client) -> None:
    queue = mq.queue(unique("queue"))
    queue.publish("short", ttl=0.2)
    queue.publish("long", ttl=60)
    dead = take(queue.dead_letters)
    assert dead.text == "short"
    assert dead.deaths[0]["reason"] == "expired"
    assert take(queue).text == "long"


def test_a_queue_may_expire_all_its_messages(mq: Client) -> None:
    queue = mq.queue(unique("queue"), ttl=timedelta(milliseconds=200), dead_letter=False)
    queue.publish_many(["a", "b"])
    eventually(lambda: queue.stats().ready == 0)
    assert queue.get() is None


def test_a_delayed_message_comes_when_it_is_due(queue: Queue) -> None:
    published = time.monotonic()
    queue.publish("now")
    queue.publish("later", delay=2.5)
    queue.publish("soon", deliver_at=time.time() + 0.5)
    found = [take(queue) for _ in range(3)]
    assert [message.text for message in found] == ["now", "soon", "later"]
    assert time.monotonic() - published >= 2.4


def test_an_unused_queue_goes(mq: Client) -> None:
    name = unique("queue")
    mq.queue(name, expires=0.5)
    eventually(lambda: name not in mq.queues())


# --- priorities, duplicates, limits ---------------------------------------------------------------


def test_what_is_urgent_comes_first(mq: Client) -> None:
    queue = mq.queue(unique("queue"), max_priority=9)
    for priority in (1, 9, 5, 9, 0):
        queue.publish(str(priority), priority=priority)
    with queue.consume(prefetch=1) as messages:
        found = []
        for _ in range(5):
            message = next(messages)
            found.append(message.text)
            message.ack()
    assert found == ["9", "9", "5", "1", "0"]
    with pytest.raises(penstock.InvalidArgument, match="max_priority"):
        mq.queue(unique("queue"), max_priority=1000)


def test_the_same_id_is_taken_once_within_the_window(mq: Client) -> None:
    queue = mq.queue(unique("queue"), deduplication_window=60)
    for _ in range(3):
        queue.publish("a", message_id="order-7")
    queue.publish("b", message_id="order-8")
    ready(queue, 2)
    assert [take(queue).text, take(queue).text] == ["a", "b"]


def test_a_full_queue_refuses(mq: Client) -> None:
    queue = mq.queue(unique("queue"), max_length=2, overflow="reject")
    queue.publish_many(["a", "b"])
    with pytest.raises(penstock.QueueFull, match=queue.name):
        queue.publish("c")
    take(queue).ack()
    eventually(lambda: _fits(queue))


def _fits(queue: Queue) -> bool:
    try:
        queue.publish("d")
    except penstock.QueueFull:
        return False
    return True


def test_a_full_queue_may_drop_its_oldest(mq: Client) -> None:
    queue = mq.queue(unique("queue"), max_length=2, overflow="drop-head")
    queue.publish_many(["a", "b", "c"])
    dead = take(queue.dead_letters)
    assert (dead.text, dead.deaths[0]["reason"]) == ("a", "maxlen")
    assert take(queue).text == "b"


def test_a_full_queue_may_bury_the_newest(mq: Client) -> None:
    queue = mq.queue(unique("queue"), max_length=1, overflow="dead-letter")
    queue.publish("a")
    with pytest.raises(penstock.QueueFull):
        queue.publish("b")
    assert take(queue.dead_letters).text == "b"
    with pytest.raises(penstock.InvalidArgument, match="overflow"):
        mq.queue(unique("queue"), overflow="explode")


def test_bytes_count_too(mq: Client) -> None:
    queue = mq.queue(unique("queue"), max_length_bytes=1000, overflow="reject")
    queue.publish(b"x" * 900)
    with pytest.raises(penstock.QueueFull):
        queue.publish_many([b"x" * 900] * 10)


# --- looking --------------------------------------------------------------------------------------


def test_stats_count(queue: Queue) -> None:
    assert queue.stats().ready == 0
    queue.publish_many(["a", "b", "c"])
    queue.publish("later", delay=60)
    time.sleep(0.05)
    with queue.consume(prefetch=1) as messages:
        next(messages)
        stats = queue.stats()
    assert (stats.name, stats.ready, stats.in_flight) == (queue.name, 2, 1)
    assert stats.consumers == 1
    assert stats.oldest_age is not None
    assert 0.0 < stats.oldest_age < 600
    assert stats.size_bytes is not None
    assert stats.size_bytes > 0


def test_peek_leaves_everything_where_it_is(queue: Queue) -> None:
    queue.publish("a", key="k", headers={"h": "1"}, message_id="m-1", correlation_id="c-1")
    queue.publish(b"\x00\xff")
    seen = queue.peek()
    assert [message.payload for message in seen] == [b"a", b"\x00\xff"]
    assert (seen[0].key, seen[0].headers, seen[0].message_id) == (b"k", {"h": "1"}, "m-1")
    assert seen[0].correlation_id == "c-1"
    assert [message.payload for message in queue.peek(1)] == [b"a"]
    ready(queue, 2)


def test_purge_drops_what_is_ready(queue: Queue) -> None:
    queue.publish_many(["a", "b", "c"])
    held = take(queue)
    assert queue.purge() == 2
    held.nack()
    assert take(queue).text == "a"


def test_queues_are_listed_and_taken_as_they_are(mq: Client) -> None:
    name = unique("queue")
    mq.queue(name, max_priority=5)
    assert name in mq.queues()
    mq.queue(name).publish("a", priority=5)  # without options: as it is
    assert take(mq.queue(name, max_priority=5)).text == "a"
    with pytest.raises(penstock.Conflict, match="x-max-priority"):
        mq.queue(name, max_priority=7)
    with pytest.raises(penstock.InvalidArgument, match="name"):
        mq.queue("")


def test_a_queue_has_no_partitions(queue: Queue) -> None:
    with pytest.raises(penstock.InvalidArgument, match="partition"):
        queue.publish("a", partition=1)


def test_what_goes_through_a_queue_can_be_read_as_a_stream(mq: Client) -> None:
    """A queue is a log with the state of each message beside it."""
    name = unique("queue")
    mq.queue(name, retention=3600).publish("a", key="k", headers={"h": "1"}, message_id="m-1")
    take(mq.queue(name)).ack()
    [message] = mq.read(topic_of(name))
    assert (message.text, message.message_id, message.headers) == ("a", "m-1", {"h": "1"})


def topic_of(queue: str) -> str:
    from penstock.model.queue_names import topic_of_queue

    return topic_of_queue("/", queue)


# --- backpressure and trouble ---------------------------------------------------------------------


def test_backpressure_holds_for_queues_too(open_mq: Callable[..., Client]) -> None:
    mq = open_mq(backpressure="raise", max_pending_messages=1)
    queue = mq.queue(unique("queue"))
    with pytest.raises(penstock.QueueFull, match="on their way"):
        queue.publish_many([b"x"] * 1000)
    dropping = open_mq(backpressure="drop", max_pending_messages=1).queue(unique("queue"))
    receipts = [future.result(PATIENCE) for future in [dropping.send(b"x") for _ in range(300)]]
    assert any(receipt.dropped for receipt in receipts)
    assert not all(receipt.dropped for receipt in receipts)


def test_after_close_nothing_is_taken(open_mq: Callable[..., Client]) -> None:
    mq = open_mq()
    queue = mq.queue(unique("queue"))
    future = queue.send("on its way")
    mq.close()
    assert future.result(0).topic == queue.name
    for call in (lambda: queue.publish("x"), queue.get, queue.stats, queue.consume):
        with pytest.raises(penstock.Closed):
            call()
