"""Which leader wrote which offsets: Kafka's `leader-epoch-checkpoint`.

A list of (epoch, start offset), both rising. A reader or follower that knows an epoch asks where it
ended, to find out whether its log and ours part ways (KIP-101, KIP-279).
"""

from __future__ import annotations

from itertools import pairwise

from penstock.model.ids import NO_EPOCH


class LeaderEpochs:
    """The reigns of a partition's leaders, oldest first."""

    __slots__ = ("changed", "entries")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries: list[tuple[int, int]] = entries or []
        self.changed = False  # since the file was written

    def __repr__(self) -> str:
        return f"LeaderEpochs({self.entries})"

    @property
    def latest(self) -> int:
        return self.entries[-1][0] if self.entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> bool:
        """`epoch` begins at `start_offset`. False when nothing is new.

        Later reigns that are said to begin at or behind that offset never wrote anything: they go.
        """
        if epoch <= self.latest:
            return False
        kept = [entry for entry in self.entries if entry[1] < start_offset]
        self.entries = [*kept, (epoch, start_offset)]
        self.changed = True
        return True

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """(the largest epoch not above `epoch`, the offset at which it ended), or (-1, -1)."""
        if not self.entries or epoch < 0:
            return NO_EPOCH, -1
        if epoch == self.latest:
            return epoch, log_end
        if epoch > self.latest:
            return NO_EPOCH, -1  # a leader this log has not heard of
        found = NO_EPOCH
        for known, start_offset in self.entries:
            if known > epoch:
                # A reign before the first one remembered: the log begins with the first.
                return (epoch, start_offset) if found == NO_EPOCH else (found, start_offset)
            found = known
        raise AssertionError("an epoch below the latest has a successor")

    def epoch_at(self, offset: int) -> int:
        """The epoch of the leader that wrote `offset`."""
        found = NO_EPOCH
        for epoch, start_offset in self.entries:
            if start_offset > offset:
                break
            found = epoch
        return found

    def truncate_end(self, offset: int) -> None:
        """Forget the reigns that began at or behind `offset`."""
        kept = [entry for entry in self.entries if entry[1] < offset]
        if len(kept) != len(self.entries):
            self.entries = kept
            self.changed = True

    def truncate_start(self, offset: int) -> None:
        """The log now begins at `offset`: so does the reign it lies in."""
        before = [entry for entry in self.entries if entry[1] <= offset]
        if not before or before == [(before[-1][0], offset)]:
            return
        after = self.entries[len(before) :]
        self.entries = [(before[-1][0], offset), *after]
        self.changed = True

    def to_text(self) -> str:
        lines = "".join(f"{epoch} {offset}\n" for epoch, offset in self.entries)
        return f"0\n{len(self.entries)}\n{lines}"

    @classmethod
    def from_text(cls, text: str) -> LeaderEpochs | None:
        """The reigns in a file's text; None when it is damaged."""
        lines = text.splitlines()
        try:
            if lines[0] != "0" or int(lines[1]) != len(lines) - 2:
                return None
            entries = [(int(epoch), int(offset)) for epoch, offset in map(str.split, lines[2:])]
        except (IndexError, ValueError):
            return None
        if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(entries)):
            return None
        return cls(entries)
