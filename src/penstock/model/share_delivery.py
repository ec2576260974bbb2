"""Records on their way to a member of a share group, and what it says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class AcquiredRange(NamedTuple):
    """Offsets first to last, both included, delivered for the n-th time."""

    first: int
    last: int
    delivery_count: int


class Acquired(NamedTuple):
    """Records for a member: whole batches, and which of the records in them are meant."""

    data: Sequence[bytes | bytearray | memoryview]
    ranges: Sequence[AcquiredRange]
    record_count: int


NOTHING_ACQUIRED = Acquired((), (), 0)


class Acknowledgements(NamedTuple):
    """What a member says of records, by offset. What it calls gaps is accepted."""

    accepted: Sequence[int] = ()
    released: Sequence[int] = ()
    rejected: Sequence[int] = ()
    renewed: Sequence[int] = ()
