"""Request and reply, in both homes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import penstock
from penstock import Client, QueueMessage
from support.naming import unique

pytestmark = pytest.mark.own_broker


def test_a_question_is_answered(mq: Client) -> None:
    name = unique("rpc")

    @mq.reply(name)
    def double(message: QueueMessage) -> str:
        return str(2 * int(message.text))

    assert mq.request(name, "21", timeout=20).text == "42"
    assert mq.request(name, "4", timeout=20, headers={"h": "1"}).text == "8"
    double.stop()


def test_json_there_and_back(mq: Client) -> None:
    name = unique("rpc")

    @mq.reply(name, serializer="json")
    def price(message: QueueMessage) -> dict[str, int]:
        return {"price": 7 * message.json()["amount"]}

    answer = mq.request(name, {"amount": 6}, serializer="json", timeout=20)
    assert answer.json() == {"price": 42}
    price.stop()


def test_many_ask_at_once_and_each_gets_its_own_answer(mq: Client) -> None:
    name = unique("rpc")

    @mq.reply(name, concurrency=4)
    def echo(message: QueueMessage) -> bytes:
        return message.payload

    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda n: mq.request(name, str(n), timeout=30).text, range(100))
        assert list(answers) == [str(n) for n in range(100)]
    echo.stop()


def test_an_answer_may_come_from_another_client(open_mq: Callable[..., Client], home: str) -> None:
    asking = open_mq()
    answering = asking if home == "in-process" else open_mq()
    name = unique("rpc")

    @answering.reply(name)
    def hello(message: QueueMessage) -> str:
        return f"hello {message.text}"

    assert asking.request(name, "you", timeout=20).text == "hello you"


def test_a_handler_that_fails_is_told_on(mq: Client) -> None:
    name = unique("rpc")

    @mq.reply(name)
    def fail(message: QueueMessage) -> None:
        raise LookupError("no such article")

    with pytest.raises(penstock.RequestFailed, match=r"LookupError.*no such article"):
        mq.request(name, "x", timeout=20)
    fail.stop()


def test_a_queue_that_was_made_anew_is_asked_again(mq: Client) -> None:
    name = unique("rpc")

    def echo(message: QueueMessage) -> bytes:
        return message.payload

    worker = mq.reply(name)(echo)
    assert mq.request(name, "1", timeout=20).text == "1"
    worker.stop()
    mq.queue(name).delete()
    with pytest.raises(penstock.TimedOut):
        mq.request(name, "2", timeout=0.3)
    worker = mq.reply(name)(echo)
    assert mq.request(name, "3", timeout=20).text == "3"
    worker.stop()


def test_nobody_answers_in_time(mq: Client) -> None:
    with pytest.raises(penstock.TimedOut, match="answered within"):
        mq.request(unique("rpc"), "x", timeout=0.3)


def test_whoever_gave_up_gets_no_late_answer(mq: Client) -> None:
    name = unique("rpc")
    go = threading.Event()

    @mq.reply(name)
    def slow(message: QueueMessage) -> str:
        go.wait(20)
        return message.text

    with pytest.raises(penstock.TimedOut):
        mq.request(name, "first", timeout=0.3)
    go.set()
    assert mq.request(name, "second", timeout=20).text == "second"
    slow.stop()
