"""Waiting for something to become true, by asking again and never by a blind sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(
    question: Callable[[], T], *, within: float = 15.0, every: float = 0.05, what: str = ""
) -> T:
    """Ask until the answer is truthy and return it; fail with the last answer after `within` s."""
    deadline = time.monotonic() + within
    while True:
        answer = question()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not so within {within} s: {what or question} -> {answer!r}")
        time.sleep(every)
