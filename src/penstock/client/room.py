"""Backpressure: how much may be on its way at once, and what happens when that is reached.

Both bounds count messages that were published and not yet acknowledged. A message larger than
`max_bytes` is let through when nothing else is on its way, or it could never be sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from penstock.client.errors import InvalidArgument, QueueFull, TimedOut

Policy = Literal["block", "raise", "drop"]
POLICIES = ("block", "raise", "drop")


class Room:
    """Counts what is on its way. Used from any thread."""

    def __init__(self, max_messages: int, max_bytes: int, policy: str) -> None:
        if policy not in POLICIES:
            raise InvalidArgument(f'backpressure is "block", "raise" or "drop", not {policy!r}')
        if max_messages < 1 or max_bytes < 1:
            raise InvalidArgument("max_pending_messages and max_pending_bytes are at least 1")
        self.policy = policy
        self.messages = 0
        self.bytes = 0
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._lock = threading.Lock()  # the condition's own, without its detour
        self._changed = threading.Condition(self._lock)
        self._waiting = 0
        self._tell: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<Room {self.messages}/{self._max_messages} {self.bytes}/{self._max_bytes} bytes>"

    def try_take(self, size: int, count: int = 1) -> bool:
        """Take room for messages of `size` bytes, if there is any."""
        with self._lock:
            return self._try_take(size, count)

    def _try_take(self, size: int, count: int) -> bool:
        if self.messages and (
            self.messages + count > self._max_messages or self.bytes + size > self._max_bytes
        ):
            return False
        self.messages += count
        self.bytes += size
        return True

    def take(self, size: int, count: int = 1, timeout: float | None = None) -> bool:
        """Take room as the policy says: wait for it, raise, or return False."""
        with self._lock:
            if self._try_take(size, count):
                return True
            if self.policy == "drop":
                return False
            if self.policy == "raise":
                raise self.full()
            self._waiting += 1
            try:
                if self._changed.wait_for(lambda: self._try_take(size, count), timeout):
                    return True
            finally:
                self._waiting -= 1
        raise TimedOut(f"no room for another message within {timeout} s: {self!r}")

    def full(self) -> QueueFull:
        return QueueFull(
            f"{self.messages} messages ({self.bytes} bytes) are on their way and not acknowledged "
            "yet; publish slower, or raise max_pending_messages and max_pending_bytes"
        )

    def give_back(self, size: int, count: int = 1) -> None:
        """Messages have arrived, or will not."""
        with self._lock:
            self.messages -= count
            self.bytes -= size
            if self._waiting:
                self._changed.notify_all()
            tell, self._tell = self._tell, []
        for call in tell:
            call()

    def when_changed(self, call: Callable[[], None]) -> None:
        """Call once, from any thread, when something was given back or at once if all was."""
        with self._changed:
            if self.messages:
                self._tell.append(call)
                return
        call()

    def wait_empty(self, timeout: float | None = None) -> bool:
        """Wait until nothing is on its way; False when the time was too short."""
        with self._changed:
            self._waiting += 1
            try:
                return self._changed.wait_for(lambda: not self.messages, timeout)
            finally:
                self._waiting -= 1
