"""Workers, in both homes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

import penstock
from penstock import Client, QueueMessage
from support.naming import unique
from support.waiting import eventually

pytestmark = pytest.mark.own_broker


def test_a_worker_handles_and_acknowledges(mq: Client) -> None:
    name = unique("work")
    found: list[str] = []

    @mq.worker(name)
    def handle(message: QueueMessage) -> None:
        found.append(message.text)

    mq.queue(name).publish_many(["a", "b", "c"])
    eventually(lambda: found == ["a", "b", "c"])
    eventually(lambda: handle.handled == 3)
    eventually(lambda: mq.queue(name).stats().in_flight == 0)
    assert handle.is_running
    handle.stop()
    assert not handle.is_running
    mq.queue(name).publish("d")
    assert mq.queue(name).stats().ready == 1


def test_handlers_run_at_the_same_time(mq: Client) -> None:
    name = unique("work")
    together = threading.Barrier(4, timeout=30)

    @mq.worker(mq.queue(name), concurrency=4)
    def handle(message: QueueMessage) -> None:
        together.wait()  # only if all four are here

    mq.queue(name).publish_many([str(n) for n in range(4)])
    eventually(lambda: handle.handled == 4, within=30)
    handle.stop()
    with pytest.raises(penstock.InvalidArgument, match="concurrency"):
        mq.worker(name, concurrency=0)(lambda message: None)


def test_a_handler_that_fails_is_tried_again_later_each_time(mq: Client) -> None:
    name = unique("work")
    tries: list[tuple[int, float]] = []

    @mq.worker(name, backoff=0.2)
    def handle(message: QueueMessage) -> None:
        tries.append((message.retry_count, time.monotonic()))
        if len(tries) < 3:
            raise RuntimeError("not yet")

    mq.queue(name).publish("a")
    eventually(lambda: handle.handled == 1, within=30)
    assert [count for count, _ in tries] == [0, 1, 2]
    assert tries[1][1] - tries[0][1] >= 0.15
    assert tries[2][1] - tries[1][1] >= 0.3
    assert handle.failed == 2
    handle.stop()


def test_what_fails_too_often_lies_among_the_dead_letters_with_its_error(mq: Client) -> None:
    name = unique("work")

    @mq.worker(name, max_retries=2, backoff=0.05)
    def handle(message: QueueMessage) -> None:
        raise ValueError(f"no {message.text} for you")

    mq.queue(name).publish("soup", headers={"table": "4"})
    dead = mq.queue(name).dead_letters.get(timeout=30)
    assert dead is not None
    assert (dead.text, dead.error) == ("soup", "no soup for you")
    assert dead.headers["table"] == "4"
    assert dead.headers["penstock.error-type"] == "ValueError"
    assert dead.retry_count == 2
    assert [(death["queue"], death["reason"]) for death in dead.deaths] == [(name, "rejected")]
    handle.stop()
    dead.ack()


def test_without_retries_one_failure_is_enough(mq: Client) -> None:
    name = unique("work")

    @mq.worker(name, max_retries=0)
    def handle(message: QueueMessage) -> None:
        raise ValueError("never")

    mq.queue(name).publish("a")
    dead = mq.queue(name).dead_letters.get(timeout=20)
    assert dead is not None
    assert handle.failed == 1
    handle.stop()


def test_a_handler_may_settle_by_itself(mq: Client) -> None:
    name = unique("work")

    @mq.worker(name)
    def handle(message: QueueMessage) -> None:
        if message.text == "bad":
            message.reject("I know better")

    mq.queue(name).publish_many(["bad", "good"])
    eventually(lambda: handle.handled == 2)
    dead = mq.queue(name).dead_letters.get(timeout=20)
    assert dead is not None
    assert dead.error == "I know better"
    handle.stop()


def test_stopping_waits_for_the_handlers_and_gives_the_rest_back(mq: Client) -> None:
    name = unique("work")
    begun, done = threading.Event(), threading.Event()

    @mq.worker(name, concurrency=1, prefetch=5)
    def handle(message: QueueMessage) -> None:
        begun.set()
        time.sleep(0.5)
        done.set()

    mq.queue(name).publish_many([str(n) for n in range(5)])
    assert begun.wait(20)
    handle.stop()
    assert done.is_set()
    assert handle.handled >= 1
    eventually(lambda: mq.queue(name).stats().ready == 5 - handle.handled)


def test_closing_the_client_stops_its_workers(open_mq: Callable[..., Client]) -> None:
    mq, name = open_mq(), unique("work")
    begun, done = threading.Event(), threading.Event()

    @mq.worker(name)
    def handle(message: QueueMessage) -> None:
        begun.set()
        time.sleep(0.3)
        done.set()

    mq.queue(name).publish("a")
    assert begun.wait(20)
    mq.close()
    assert done.is_set()
    assert handle.handled == 1


def test_a_handler_may_stop_its_own_worker(mq: Client) -> None:
    name = unique("work")
    took: list[float] = []

    @mq.worker(name, concurrency=2)
    def handle(message: QueueMessage) -> None:
        begun = time.monotonic()
        handle.stop()
        took.append(time.monotonic() - begun)

    mq.queue(name).publish("enough")
    eventually(lambda: took != [], within=60)
    assert took[0] < 25  # it does not wait half a minute for itself
    assert not handle.is_running


def test_a_handler_that_calls_exit_has_failed_like_any_other(mq: Client) -> None:
    name = unique("work")

    @mq.worker(name, max_retries=0)
    def handle(message: QueueMessage) -> None:
        raise SystemExit("no such file")

    mq.queue(name).publish("a")
    dead = mq.queue(name).dead_letters.get(timeout=60)
    assert dead is not None
    assert dead.error == "no such file"
    handle.stop()

    @mq.reply(name + ".asked")
    def reply(message: QueueMessage) -> None:
        raise SystemExit("nor this one")

    with pytest.raises(penstock.RequestFailed, match=r"SystemExit at .*: nor this one"):
        mq.request(name + ".asked", "x", timeout=60)
