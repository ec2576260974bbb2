"""The future of one published message: all that `concurrent.futures.Future` can, at a fraction.

A plain future brings a condition and two lists along, a dozen objects that the garbage collector
visits again and again while messages wait for the disk: with 100,000 of them on their way that cost
three times as much as publishing. Here the lock is shared by all, and what most futures never need
is made for those that do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from typing import Any

from penstock.client.errors import PenstockError
from penstock.client.message import Receipt

_OVER = (CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED)
_MADE_LATE = ("_waiters", "_done_callbacks")

# Held for moments only. Nobody waits on it: whoever waits for a delivery has an event of its own.
_SHARED = threading.Condition(threading.RLock())

WhenDelivered = Callable[[Receipt | None, PenstockError | None], None]


class Delivery(Future[Receipt]):
    """Has the receipt when the message is safe. Call it to settle it, once."""

    def __init__(self, when_delivered: WhenDelivered | None = None) -> None:
        # Not the constructor above: that is what costs.
        self._condition = _SHARED
        self._state = PENDING
        self._result: Receipt | None = None
        self._exception: BaseException | None = None
        self._when_delivered = when_delivered
        self._events: list[threading.Event] | None = None

    def __getattr__(self, name: str) -> Any:
        """The lists that `concurrent.futures` looks for, as soon as it does."""
        if name not in _MADE_LATE:
            raise AttributeError(name)
        with _SHARED:
            return self.__dict__.setdefault(name, [])

    def __call__(self, receipt: Receipt | None, failure: PenstockError | None) -> None:
        with _SHARED:
            if self._state == CANCELLED:
                self.set_running_or_notify_cancel()
                return
            self._result = receipt
            self._exception = failure
            self._state = FINISHED
            events, self._events = self._events, None
            late = self.__dict__
            for waiter in late.get("_waiters", ()):
                waiter.add_exception(self) if failure is not None else waiter.add_result(self)
        if events is not None:
            for event in events:
                event.set()
        if "_done_callbacks" in late:
            self._invoke_callbacks()
        if self._when_delivered is not None:
            self._when_delivered(receipt, failure)

    def cancel(self) -> bool:
        is_cancelled = super().cancel()
        with _SHARED:
            events, self._events = self._events, None
        for event in events or ():
            event.set()
        return is_cancelled

    def result(self, timeout: float | None = None) -> Receipt:
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        if self._state in _OVER:
            return
        with _SHARED:
            if self._state in _OVER:
                return
            event = threading.Event()
            if self._events is None:
                self._events = []
            self._events.append(event)
        event.wait(timeout)
