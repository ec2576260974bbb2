"""A delivery is a future in every respect."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import threading
import time

import pytest

from penstock.client.delivery import Delivery
from penstock.client.errors import Unavailable
from penstock.client.message import Receipt

RECEIPT = Receipt("orders", 0, 7)
FAILURE = Unavailable("no broker answers")


def test_it_has_the_receipt_when_settled() -> None:
    delivery = Delivery()
    assert not delivery.done()
    delivery(RECEIPT, None)
    assert delivery.done()
    assert delivery.result() is RECEIPT
    assert delivery.exception() is None


def test_it_raises_the_failure() -> None:
    delivery = Delivery()
    delivery(None, FAILURE)
    assert delivery.exception() is FAILURE
    with pytest.raises(Unavailable, match="no broker"):
        delivery.result()


def test_those_who_wait_are_told() -> None:
    delivery = Delivery()
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(delivery.result(30))) for _ in range(3)]
    threads.append(threading.Thread(target=lambda: found.append(delivery.exception(30))))
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    Delivery()(RECEIPT, None)  # another one wakes nobody
    time.sleep(0.05)
    assert found == []
    delivery(RECEIPT, None)
    for thread in threads:
        thread.join(30)
    assert found.count(RECEIPT) == 3
    assert found.count(None) == 1


def test_waiting_ends_when_the_time_is_over() -> None:
    with pytest.raises(TimeoutError):
        Delivery().result(0.01)
    with pytest.raises(TimeoutError):
        Delivery().exception(0.01)
    with pytest.raises(TimeoutError):
        Delivery().result(0)


def test_callbacks_are_called_once_before_or_after() -> None:
    delivery, called = Delivery(), []
    delivery.add_done_callback(lambda done: called.append(("before", done.result())))
    delivery(RECEIPT, None)
    delivery.add_done_callback(lambda done: called.append(("after", done.result())))
    assert called == [("before", RECEIPT), ("after", RECEIPT)]


def test_whoever_published_is_told_too() -> None:
    told: list[tuple[object, object]] = []
    Delivery(lambda *what: told.append(what))(None, FAILURE)
    assert told == [(None, FAILURE)]


def test_the_functions_of_concurrent_futures_know_it() -> None:
    deliveries = [Delivery() for _ in range(4)]
    deliveries[0](RECEIPT, None)
    done, waiting = concurrent.futures.wait(deliveries, timeout=0)
    assert (len(done), len(waiting)) == (1, 3)
    timer = threading.Timer(0.05, lambda: [each(RECEIPT, None) for each in deliveries[1:3]])
    timer.start()
    first = concurrent.futures.wait(
        deliveries[1:], timeout=30, return_when=concurrent.futures.FIRST_COMPLETED
    )
    assert first.done
    timer.join()
    threading.Timer(0.05, deliveries[3], (None, FAILURE)).start()
    assert set(concurrent.futures.as_completed(deliveries, timeout=30)) == set(deliveries)
    failed = concurrent.futures.wait(deliveries, return_when=concurrent.futures.FIRST_EXCEPTION)
    assert deliveries[3] in failed.done


def test_an_event_loop_can_wait_for_it() -> None:
    async def main() -> Receipt:
        delivery = Delivery()
        threading.Timer(0.02, delivery, (RECEIPT, None)).start()
        return await asyncio.wait_for(asyncio.wrap_future(delivery), 30)

    assert asyncio.run(main()) is RECEIPT


def test_one_that_was_cancelled_stays_so() -> None:
    delivery = Delivery()

    def wait() -> None:
        with pytest.raises(concurrent.futures.CancelledError):
            delivery.result(30)

    waiter = threading.Thread(target=wait)
    waiter.start()
    time.sleep(0.02)
    assert delivery.cancel()
    waiter.join(30)
    delivery(RECEIPT, None)
    assert delivery.cancelled()
    with pytest.raises(concurrent.futures.CancelledError):
        delivery.result()
    settled = Delivery()
    settled(RECEIPT, None)
    assert not settled.cancel()


def test_it_is_few_objects_for_the_garbage_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        kept = [Delivery() for _ in range(1000)]
        made = len(gc.get_objects()) - before
    finally:
        gc.enable()
    assert len(kept) == 1000
    assert made < 2 * len(kept)  # a plain future makes a dozen


def test_its_repr_says_how_far_it_is() -> None:
    delivery = Delivery()
    assert "pending" in repr(delivery)
    delivery(RECEIPT, None)
    assert "finished returned Receipt" in repr(delivery)
