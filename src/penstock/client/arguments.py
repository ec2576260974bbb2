"""Arguments that cannot be meant, refused in words: those that no type checker looked at first."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from penstock.client.errors import InvalidArgument

INT_MAX = 2**31 - 1  # the largest partition that Kafka's protocol can say
LONG_MAX = 2**63 - 1  # and the largest offset


def check_text(value: object, what: str) -> None:
    """A name is text, and not empty.

    >>> check_text(5, "a topic")
    Traceback (most recent call last):
    penstock.client.errors.InvalidArgument: a topic is named by text, not by int: 5
    """
    if not isinstance(value, str):
        raise InvalidArgument(f"{what} is named by text, not by {type(value).__name__}: {value!r}")
    if not value:
        raise InvalidArgument(f"{what} has a name, which is not empty")


def check_whole(value: object, what: str, least: int = 0, most: int = LONG_MAX) -> None:
    """A number like a partition or an offset."""
    if not isinstance(value, int) or value < least:
        raise InvalidArgument(f"{what} is a whole number from {least} on, not {value!r}")
    if value > most:
        raise InvalidArgument(f"{what} is a whole number up to {most}, not {value!r}")


def check_seconds(value: object, what: str) -> None:
    """A time-out in seconds, or None."""
    if value is None:
        return
    if not isinstance(value, int | float) or not value >= 0:  # NaN is neither
        raise InvalidArgument(f"{what} is seconds, 0 or more, or None, not {value!r}")


def check_handler(handler: object, *, may_await: bool) -> None:
    """A worker calls a function; that of a synchronous client would never await a coroutine."""
    if not callable(handler):
        raise InvalidArgument(f"a worker calls a function, and {handler!r} is none")
    if inspect.iscoroutinefunction(handler) and not may_await:
        raise InvalidArgument(
            f"{handler!r} is a coroutine function: give it to a client of penstock.aio"
        )


def utf8(text: str, errors: str = "strict") -> bytes:
    """The bytes of a text.

    >>> utf8("\\ud800")
    Traceback (most recent call last):
    penstock.client.errors.InvalidArgument: '\\ud800' has half a surrogate pair, which is no text
    """
    try:
        return text.encode("utf-8", errors)
    except UnicodeEncodeError:
        shown = repr(text if len(text) < 50 else text[:50] + "...")
        raise InvalidArgument(f"{shown} has half a surrogate pair, which is no text") from None


def several(messages: Iterable[Any]) -> Iterable[Any]:
    """Many messages; one text would else be taken for its letters.

    >>> several("hello")
    Traceback (most recent call last):
    penstock.client.errors.InvalidArgument: many messages are a list of them, not one str
    """
    if isinstance(messages, str | bytes | bytearray) or not hasattr(messages, "__iter__"):
        raise InvalidArgument(f"many messages are a list of them, not one {_kind(messages)}")
    return messages


def _kind(value: object) -> str:
    return type(value).__name__
