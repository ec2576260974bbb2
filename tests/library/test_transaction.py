"""Transactions, in both homes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import penstock
from penstock import Client, Message, TopicPartition
from support.naming import unique


def texts(mq: Client, topic: str) -> list[str]:
    count = mq.admin.topic(topic).partition_count
    return [message.text for p in range(count) for message in mq.read(topic, p)]


@pytest.fixture
def tid() -> str:
    return unique("tx")


def test_a_transaction_counts_in_all_topics_at_once(
    mq: Client, topic: str, wide: str, tid: str
) -> None:
    with mq.transaction(tid) as tx:
        receipt = tx.publish(topic, "a", key="k", headers={"h": "1"})
        tx.publish_many(wide, ["b", "c"], key="k")
        assert receipt.offset == 0
        assert texts(mq, topic) == []
    assert texts(mq, topic) == ["a"]
    assert texts(mq, wide) == ["b", "c"]
    assert len(tx.receipts) == 3
    [message] = mq.read(topic)
    assert (message.key, message.headers) == (b"k", {"h": "1"})


def test_an_exception_aborts(mq: Client, topic: str, tid: str) -> None:
    def fail() -> None:
        with mq.transaction(tid) as tx:
            tx.publish(topic, "never")
            tx.send(topic, "nor this")
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        fail()
    assert texts(mq, topic) == []
    with mq.transaction(tid) as tx:
        tx.publish(topic, "after")
    assert texts(mq, topic) == ["after"]


def test_it_can_be_begun_and_ended_by_hand(mq: Client, topic: str, tid: str) -> None:
    tx = mq.transaction(tid)
    tx.begin()
    tx.publish(topic, "a")
    tx.commit()
    tx.begin()
    tx.publish(topic, "b")
    tx.abort()
    tx.abort()
    assert texts(mq, topic) == ["a"]
    with pytest.raises(penstock.TransactionAborted, match="not open"):
        tx.publish(topic, "c")


def test_one_after_the_other_with_the_same_id(mq: Client, topic: str, tid: str) -> None:
    for n in range(20):
        with mq.transaction(tid) as tx:
            tx.publish(topic, str(n))
    assert texts(mq, topic) == [str(n) for n in range(20)]


def test_an_empty_transaction_is_fine(mq: Client, topic: str, tid: str) -> None:
    with mq.transaction(tid):
        pass
    with mq.transaction(tid) as tx:
        tx.publish(topic, "a")
    assert texts(mq, topic) == ["a"]


def test_a_transaction_needs_an_id(mq: Client) -> None:
    with pytest.raises(penstock.InvalidArgument, match="needs an id"), mq.transaction(""):
        pass


def test_whoever_comes_later_with_the_same_id_fences_the_one_before(
    mq: Client, topic: str, tid: str
) -> None:
    zombie = mq.transaction(tid)
    zombie.begin()
    zombie.publish(topic, "zombie")
    with mq.transaction(tid) as tx:
        tx.publish(topic, "new")
    with pytest.raises((penstock.Fenced, penstock.TransactionAborted)):
        zombie.publish(topic, "still here")
    with pytest.raises((penstock.Fenced, penstock.TransactionAborted)):
        zombie.commit()
    assert texts(mq, topic) == ["new"]
    with mq.transaction(tid) as tx:
        tx.publish(topic, "newer")
    assert texts(mq, topic) == ["new", "newer"]


def test_a_message_that_is_refused_spoils_the_transaction(mq: Client, topic: str, tid: str) -> None:
    def fail() -> None:
        with mq.transaction(tid) as tx:
            tx.publish(topic, "good")
            tx.send(topic, b"x" * 2_000_000)

    with pytest.raises(penstock.PenstockError):
        fail()
    assert texts(mq, topic) == []


def test_many_messages_in_one_transaction(mq: Client, topic: str, tid: str) -> None:
    with mq.transaction(tid) as tx:
        futures = [tx.send(topic, str(n)) for n in range(5_000)]
    assert [future.result(0).offset for future in futures] == list(range(5_000))
    assert texts(mq, topic) == [str(n) for n in range(5_000)]


def test_offsets_and_messages_count_together(
    mq: Client, topic: str, wide: str, tid: str, group: str
) -> None:
    mq.publish_many(topic, [str(n) for n in range(10)])

    def turn(stop_after: int, fail: bool) -> None:
        with mq.subscribe(topic, group=group, auto_commit=False) as messages:
            for _ in range(stop_after):
                message = next(messages)
                with mq.transaction(tid) as tx:
                    tx.publish(wide, str(int(message.text) * 10))
                    tx.commit_offsets(messages)
                    if fail and message.text == "4":
                        raise RuntimeError("in the middle of 4")

    with pytest.raises(RuntimeError):
        turn(10, fail=True)
    place = TopicPartition(topic, 0)
    assert mq.admin.group(group).offsets == {place: 4}
    turn(6, fail=False)
    assert sorted(map(int, texts(mq, wide))) == [n * 10 for n in range(10)]
    assert mq.admin.group(group).offsets == {place: 10}


def test_offsets_up_to_a_message(mq: Client, topic: str, tid: str, group: str) -> None:
    mq.publish_many(topic, ["a", "b", "c"])
    with mq.subscribe(topic, group=group, auto_commit=False) as messages:
        found: list[Message] = [next(messages), next(messages)]
        with mq.transaction(tid) as tx:
            tx.commit_offsets(messages, found[0])
        assert messages.committed() == {TopicPartition(topic, 0): 1}


def test_readers_of_everything_see_what_is_not_decided(mq: Client, topic: str, tid: str) -> None:
    tx = mq.transaction(tid)
    tx.begin()
    tx.publish(topic, "open")
    with mq.subscribe(topic, isolation="read_uncommitted") as everything:
        assert next(everything).text == "open"
    with mq.subscribe(topic) as committed:
        assert committed.get(0.5) is None
    tx.abort()
    with pytest.raises(penstock.InvalidArgument, match="isolation"):
        mq.subscribe(topic, isolation="sometimes")


def test_a_transaction_that_takes_too_long_is_aborted(
    open_mq: Callable[..., Client], home: str
) -> None:
    options = (
        {"transaction_abort_timed_out_transaction_cleanup_interval_ms": 100}
        if home == "in-process"
        else {}
    )
    mq = open_mq(**options)
    name = unique("slow")
    mq.admin.create_topic(name, partitions=1)
    tx = mq.transaction(unique("tx"), timeout=1.0)
    tx.begin()
    tx.publish(name, "too slow")
    with mq.subscribe(name) as messages:
        assert messages.get(2.5) is None
    with pytest.raises(penstock.PenstockError):
        tx.commit()
    assert texts(mq, name) == []


def test_a_time_out_beyond_the_brokers_limit_is_an_invalid_argument(mq: Client, tid: str) -> None:
    with pytest.raises(penstock.InvalidArgument):
        mq.transaction(tid, timeout=20 * 86_400).begin()
