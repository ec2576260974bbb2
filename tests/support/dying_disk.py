"""A disk on which the process dies at the n-th change."""

from __future__ import annotations

from penstock.runtime.memory_disk import MemoryDisk

_CHANGES = frozenset({"write", "truncate", "rename", "sync", "mkdir"})


class Died(BaseException):
    """The process is gone. Not an Exception: nothing may catch it and carry on."""


class DyingDisk(MemoryDisk):
    """`die_after(n)` lets n more changes happen; the next one ends the process."""

    def __init__(self) -> None:
        super().__init__(volatile=True)
        self.changes = 0
        self._last: int | None = None

    def die_after(self, changes: int) -> None:
        self._last = self.changes + changes

    def live(self) -> None:
        """Born again: nothing ends the process now."""
        self._last = None

    def maybe_fail(self, operation: str, path: str) -> None:
        super().maybe_fail(operation, path)
        self._change(operation)

    def remove(self, path: str) -> None:
        self._change("rename")
        super().remove(path)

    def _change(self, operation: str) -> None:
        if operation in _CHANGES:
            if self._last is not None and self.changes >= self._last:
                raise Died
            self.changes += 1
