"""What a queue remembers on disk: the records of its journal, and their bytes.

The messages of a queue are in the log of its topic and are never rewritten. Beside that log lies
the journal, a log of its own with the same framing, checksums and recovery, whose records say what
became of the messages. Replaying them over an empty machine gives the queue back.

    byte 0   version (0)
    byte 1   kind, the number of the record below
    then     unsigned varints (LEB128, as in record batches)

Ranges [low, high) are a count, then for each range the gap from the end of the one before (from 0
for the first) and its length; where a record has a number for each range, it follows the length.
Ranges are in rising order and do not touch each other.

    1  ACKED          ranges                      settled: acknowledged, expired, dropped
    2  RETURNED       ranges with counts          came back; the count is how often altogether
    3  DELIVERED      ranges                      somebody holds them now
    4  DEAD_LETTERED  ranges                      settled: a copy is safe at the dead letters' place
    5  PURGED         ranges                      settled by a purge
    6  CHECKPOINT     floor, seen, marked + 1, ranges (settled), ranges with counts (came back),
                      ranges (delivered), count of moves, each: offset, place
    7  TRUNCATED      end                         the log lost what was at `end` and after
    8  SEEN           seen, marked + 1            messages below `seen` were looked at; those that
                                                  expire or are scheduled are at `marked` or after
    9  MOVED          count, each: offset, place  the bytes of a message are now at `place` in the
                                                  log; its offset stays its name and its rank
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.errors import CorruptRecord

VERSION = 0
NOTHING_MARKED = -1

Ranges = tuple[tuple[int, int], ...]
CountedRanges = tuple[tuple[int, int, int], ...]  # low, high, count
Moves = tuple[tuple[int, int], ...]  # offset, place


class Acked(NamedTuple):
    """These messages are done with."""

    ranges: Ranges


class Returned(NamedTuple):
    """These messages came back; each has now come back `count` times."""

    ranges: CountedRanges


class Delivered(NamedTuple):
    """These messages were given to somebody. A crash now counts as their return."""

    ranges: Ranges


class DeadLettered(NamedTuple):
    """These messages are done with: their copies are safe elsewhere."""

    ranges: Ranges


class Purged(NamedTuple):
    """These messages are done with: somebody emptied the queue."""

    ranges: Ranges


class Checkpoint(NamedTuple):
    """Everything above in one record; what came before it need not be read."""

    floor: int
    seen: int
    marked: int
    settled: Ranges
    returned: CountedRanges
    delivered: Ranges
    moved: Moves


class Truncated(NamedTuple):
    """The log ends at `end`; what was said of later offsets was of messages that are gone."""

    end: int


class Seen(NamedTuple):
    """How far messages were looked at, and from where on some expire or are scheduled."""

    seen: int
    marked: int


class Moved(NamedTuple):
    """Messages whose bytes were copied to a later place so that old segments can go."""

    moves: Moves


JournalRecord = (
    Acked | Returned | Delivered | DeadLettered | Purged | Checkpoint | Truncated | Seen | Moved
)

SETTLING = (Acked, DeadLettered, Purged)  # the records after which messages are done with

_KINDS: tuple[type[JournalRecord], ...] = (
    Acked,
    Returned,
    Delivered,
    DeadLettered,
    Purged,
    Checkpoint,
    Truncated,
    Seen,
    Moved,
)
_KIND_OF = {record: kind for kind, record in enumerate(_KINDS, 1)}


def encode(record: JournalRecord) -> bytes:
    """The bytes of one record."""
    out = bytearray((VERSION, _KIND_OF[type(record)]))
    match record:
        case Acked(ranges) | Delivered(ranges) | DeadLettered(ranges) | Purged(ranges):
            _write_ranges(out, ranges)
        case Returned(counted):
            _write_counted(out, counted)
        case Truncated(end):
            _write(out, end)
        case Seen(seen, marked):
            _write(out, seen)
            _write(out, marked + 1)
        case Moved(moves):
            _write_moves(out, moves)
        case Checkpoint():
            _write(out, record.floor)
            _write(out, record.seen)
            _write(out, record.marked + 1)
            _write_ranges(out, record.settled)
            _write_counted(out, record.returned)
            _write_ranges(out, record.delivered)
            _write_moves(out, record.moved)
    return bytes(out)


def decode(data: bytes | memoryview) -> JournalRecord:
    """The record that `encode` wrote; CorruptRecord when it is none."""
    if len(data) < 2 or data[0] != VERSION or not 1 <= data[1] <= len(_KINDS):
        raise CorruptRecord(f"not a record of a queue's journal: {bytes(data[:2]).hex()}")
    kind = _KINDS[data[1] - 1]
    reader = _Reader(data)
    try:
        record = _READERS[kind](reader)
    except IndexError:
        raise CorruptRecord("a record of a queue's journal is cut off") from None
    if reader.position != len(data):
        raise CorruptRecord("a record of a queue's journal is longer than it says")
    return record


def _write(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(0x80 | (value & 0x7F))
        value >>= 7
    out.append(value)


def _write_ranges(out: bytearray, ranges: Sequence[tuple[int, int]]) -> None:
    _write(out, len(ranges))
    end = 0
    for low, high in ranges:
        _write(out, low - end)
        _write(out, high - low)
        end = high


def _write_counted(out: bytearray, ranges: Sequence[tuple[int, int, int]]) -> None:
    _write(out, len(ranges))
    end = 0
    for low, high, count in ranges:
        _write(out, low - end)
        _write(out, high - low)
        _write(out, count)
        end = high


def _write_moves(out: bytearray, moves: Sequence[tuple[int, int]]) -> None:
    _write(out, len(moves))
    for offset, place in moves:
        _write(out, offset)
        _write(out, place)


class _Reader:
    __slots__ = ("data", "position")

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = data
        self.position = 2

    def number(self) -> int:
        data, position = self.data, self.position
        byte = data[position]
        position += 1
        value = byte & 0x7F
        shift = 7
        while byte > 0x7F:
            if shift > 63:
                raise CorruptRecord("a number of more than nine bytes in a queue's journal")
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
        self.position = position
        return value

    def ranges(self) -> Ranges:
        found = []
        end = 0
        for _ in range(self._count()):
            low = end + self.number()
            end = low + self.number()
            found.append((low, end))
        return tuple(found)

    def counted(self) -> CountedRanges:
        found = []
        end = 0
        for _ in range(self._count()):
            low = end + self.number()
            end = low + self.number()
            found.append((low, end, self.number()))
        return tuple(found)

    def moves(self) -> Moves:
        return tuple((self.number(), self.number()) for _ in range(self._count()))

    def _count(self) -> int:
        count = self.number()
        if count > len(self.data) - self.position:  # each takes more than a byte
            raise CorruptRecord(f"{count} ranges in {len(self.data)} bytes of a queue's journal")
        return count


_READERS: dict[type[JournalRecord], Callable[[_Reader], JournalRecord]] = {
    Acked: lambda reader: Acked(reader.ranges()),
    Returned: lambda reader: Returned(reader.counted()),
    Delivered: lambda reader: Delivered(reader.ranges()),
    DeadLettered: lambda reader: DeadLettered(reader.ranges()),
    Purged: lambda reader: Purged(reader.ranges()),
    Checkpoint: lambda reader: Checkpoint(
        reader.number(),
        reader.number(),
        reader.number() - 1,
        reader.ranges(),
        reader.counted(),
        reader.ranges(),
        reader.moves(),
    ),
    Truncated: lambda reader: Truncated(reader.number()),
    Seen: lambda reader: Seen(reader.number(), reader.number() - 1),
    Moved: lambda reader: Moved(reader.moves()),
}
