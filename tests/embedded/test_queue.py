"""The simple queue of the textbook, over the real one."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from penstock import InvalidArgument, QueueFull
from penstock.embedded import Message, SimpleQueue
from support.waiting import eventually


def _order(number: int, **more: object) -> Message:
    return Message(id=f"msg{number}", topic="orders", data={"order_id": number}, **more)  # type: ignore[arg-type]


def test_the_example_of_the_document_runs() -> None:
    processed: list[Message] = []
    with SimpleQueue(max_size=100) as mq:
        mq.subscribe(processed.append)
        mq.start()
        mq.publish(Message(id="msg1", topic="orders", data={"order_id": 123}, priority=1))
        mq.publish(Message(id="msg2", topic="orders", data={"order_id": 456}, priority=2))
        eventually(lambda: len(processed) == 2, what="both messages", within=60)
        mq.stop()
    assert {message.id: message.data for message in processed} == {
        "msg1": {"order_id": 123},
        "msg2": {"order_id": 456},
    }
    assert {(m.topic, m.priority, m.retry_count) for m in processed} == {
        ("orders", 1, 0),
        ("orders", 2, 0),
    }


def test_the_highest_priority_comes_first() -> None:
    processed: list[str] = []
    with SimpleQueue() as mq:
        for number, priority in enumerate([1, 5, 3, 5]):
            mq.publish(_order(number, priority=priority))
        mq.subscribe(lambda message: processed.append(message.id))
        mq.start()
        eventually(lambda: len(processed) == 4, what="all messages", within=60)
    assert processed == ["msg1", "msg3", "msg2", "msg0"]


def test_a_full_queue_says_so() -> None:
    with SimpleQueue(max_size=2) as mq:
        mq.publish(_order(1))
        mq.publish(_order(2))
        with pytest.raises(QueueFull, match="msg3"):
            mq.publish(_order(3))
        assert mq.size == 2


def test_every_subscriber_gets_every_message() -> None:
    first: list[str] = []
    second: list[str] = []
    with SimpleQueue() as mq:
        mq.subscribe(lambda message: first.append(message.id))
        mq.subscribe(lambda message: second.append(message.id))
        mq.start()
        mq.publish(_order(1))
        mq.publish(_order(2))
        eventually(lambda: len(first) == len(second) == 2, what="both subscribers", within=60)
    assert first == second == ["msg1", "msg2"]


def test_a_message_that_fails_comes_again_and_later_each_time() -> None:
    tries: list[tuple[int, float]] = []

    def fail_twice(message: Message) -> None:
        tries.append((message.retry_count, time.monotonic()))
        if message.retry_count < 2:
            raise RuntimeError("not yet")

    with SimpleQueue(backoff=0.2) as mq:
        mq.subscribe(fail_twice)
        mq.start()
        mq.publish(_order(1))
        eventually(lambda: len(tries) == 3, what="the third try", within=60)
        assert mq.dead_letters == []
    counts, times = zip(*tries, strict=True)
    assert counts == (0, 1, 2)
    assert times[1] - times[0] >= 0.15  # 0.2 s, less a quarter by chance
    assert times[2] - times[1] >= 0.30


def test_a_message_that_always_fails_is_a_dead_letter_with_its_error() -> None:
    tries: list[str] = []
    is_mended = threading.Event()

    def fail(message: Message) -> None:
        tries.append(message.id)
        if message.id == "msg1" and not is_mended.is_set():
            raise ValueError("no such order")

    with SimpleQueue(backoff=0.01) as mq:
        mq.subscribe(fail)
        mq.start()
        mq.publish(_order(1))
        mq.publish(_order(2))  # goes on meanwhile
        eventually(lambda: bool(mq.dead_letters), what="the dead letter", within=60)
        (dead,) = mq.dead_letters
        assert (dead.id, dead.data, dead.error) == ("msg1", {"order_id": 1}, "no such order")
        assert tries.count("msg1") == 3
        assert tries.count("msg2") == 1
        is_mended.set()
        assert mq.redrive() == 1
        eventually(lambda: tries.count("msg1") == 4, what="the fourth try", within=60)
        assert mq.dead_letters == []


def test_it_can_be_stopped_and_started() -> None:
    processed: list[str] = []
    with SimpleQueue() as mq:
        mq.subscribe(lambda message: processed.append(message.id))
        mq.start()
        mq.publish(_order(1))
        eventually(lambda: processed == ["msg1"], what="the first message", within=60)
        mq.stop()
        assert not mq.running
        mq.publish(_order(2))
        assert mq.size == 1
        mq.start()
        eventually(lambda: processed == ["msg1", "msg2"], what="the second message", within=60)


def test_with_a_path_messages_survive(tmp_path: Path) -> None:
    with SimpleQueue(path=tmp_path / "data") as mq:
        mq.publish(_order(1))
    with SimpleQueue(path=tmp_path / "data") as mq:
        assert mq.size == 1


def test_what_cannot_be_is_said() -> None:
    with SimpleQueue() as mq:
        with pytest.raises(InvalidArgument, match="0 to 255"):
            mq.publish(_order(1, priority=-1))
        with pytest.raises(InvalidArgument, match="not JSON"):
            mq.publish(Message("a", "orders", data=object()))
    with pytest.raises(InvalidArgument, match="max_size"):
        SimpleQueue(max_size=0)


def test_what_is_no_message_and_no_function_is_refused() -> None:
    with SimpleQueue() as queue:
        with pytest.raises(InvalidArgument, match="give a Message"):
            queue.publish("hello")  # type: ignore[arg-type]
        with pytest.raises(InvalidArgument, match="a subscriber is a function"):
            queue.subscribe(5)  # type: ignore[arg-type]
