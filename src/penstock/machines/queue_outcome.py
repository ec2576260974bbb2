"""What goes into the queue machine with new messages, and what comes out of its verbs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.machines.queue_clock import Timed
from penstock.model.offset_ranges import Range
from penstock.model.queue_journal import JournalRecord
from penstock.model.queue_settings import DeadReason


class Marks(NamedTuple):
    """What new messages carry that the machine must know. Offsets are absolute."""

    priorities: bytes | None = None  # one for each message
    expiries: Timed = ()  # (offset, when)
    schedules: Timed = ()  # (offset, when it becomes ready)
    sizes: Sequence[int] | None = None  # bytes of each body, if the queue is limited in bytes


class DeadLetters(NamedTuple):
    """Messages that are dying, all for one reason."""

    ranges: Sequence[Range]
    reason: DeadReason


class Outcome(NamedTuple):
    """What a verb asks for: records to apply and journal, messages to dead-letter."""

    records: Sequence[JournalRecord] = ()
    dead: Sequence[DeadLetters] = ()

    def and_then(self, other: Outcome) -> Outcome:
        return Outcome((*self.records, *other.records), (*self.dead, *other.dead))


NOTHING = Outcome()
NO_MARKS = Marks()
