"""One byte for each offset of a window that moves up a log.

A queue remembers little of each message, and only of those that are not in the ordinary course of
things. Bytes are kept in chunks of 1,024 offsets, made when a byte other than 0 is first written:
a window in which nothing is unusual costs nothing. Runs are found with the searching methods of
`bytearray`, so looking at a million offsets takes microseconds, not a million steps of Python.
Chunks that have become all alike are replaced by one that all share, so ten million settled
messages behind a stuck one cost a dictionary entry for each thousand of them.

What the bytes mean is the caller's business.
"""

from __future__ import annotations

from collections.abc import Iterator

CHUNK = 1024
_SHIFT = 10
_MASK = CHUNK - 1

_PLAIN = tuple(bytes((value,)) for value in range(256))
_UNIFORM = tuple(bytes((value,)) * CHUNK for value in range(256))
_ZEROS = _UNIFORM[0]
_SWEEP_AT = 64  # chunks; the first time it is worth looking for uniform ones


class OffsetBytes:
    """Bytes by offset, 0 where nothing was written."""

    __slots__ = ("_chunks", "_low", "_sweep_at")

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray | bytes] = {}
        self._low = 0  # no chunk below this number exists
        self._sweep_at = _SWEEP_AT

    def __repr__(self) -> str:
        return f"OffsetBytes({len(self._chunks)} chunks)"

    def __bool__(self) -> bool:
        """Whether anything may be other than 0."""
        return bool(self._chunks)

    def get(self, offset: int) -> int:
        chunk = self._chunks.get(offset >> _SHIFT)
        return 0 if chunk is None else chunk[offset & _MASK]

    def put(self, offset: int, value: int) -> None:
        number = offset >> _SHIFT
        chunk = self._chunks.get(number)
        if type(chunk) is not bytearray:
            chunk = self._writable(number, chunk)
        chunk[offset & _MASK] = value

    def fill(self, low: int, high: int, value: int) -> None:
        """Write `value` at every offset in [low, high)."""
        if high - low == 1:
            self.put(low, value)
            return
        while low < high:
            number = low >> _SHIFT
            start = low & _MASK
            stop = min(CHUNK, start + high - low)
            low += stop - start
            chunk = self._chunks.get(number)
            if start == 0 and stop == CHUNK:
                self._replace(number, value, chunk)
                continue
            if type(chunk) is not bytearray:
                if chunk is None and value == 0:
                    continue
                chunk = self._writable(number, chunk)
            chunk[start:stop] = _UNIFORM[value][start:stop]

    def alike(self, low: int, high: int, value: int) -> bool:
        """Whether every offset in [low, high) has that byte."""
        if high - low == 1:
            chunk = self._chunks.get(low >> _SHIFT)
            return (0 if chunk is None else chunk[low & _MASK]) == value
        return self.find_other(value, low, high) == high

    def translate(self, low: int, high: int, table: bytes) -> None:
        """Replace every byte in [low, high) by what `table` (256 bytes) has in its place."""
        while low < high:
            number = low >> _SHIFT
            start = low & _MASK
            stop = min(CHUNK, start + high - low)
            low += stop - start
            chunk = self._writable(number, self._chunks.get(number))
            chunk[start:stop] = chunk[start:stop].translate(table)

    def find(self, value: int, low: int, high: int) -> int:
        """The first offset in [low, high) with that byte, or `high`."""
        wanted = _PLAIN[value]
        while low < high:
            chunk = self._chunks.get(low >> _SHIFT)
            if chunk is None:
                if value == 0:
                    return low
            else:
                found = chunk.find(wanted, low & _MASK)
                if found >= 0:
                    return min((low & ~_MASK) + found, high)
            low = (low | _MASK) + 1
        return high

    def find_other(self, value: int, low: int, high: int) -> int:
        """The first offset in [low, high) whose byte is not `value`, or `high`."""
        strip = _PLAIN[value]
        while low < high:
            chunk = self._chunks.get(low >> _SHIFT)
            if chunk is None:
                if value != 0:
                    return low
            elif chunk is not _UNIFORM[value]:
                rest = chunk[low & _MASK :]
                same = len(rest) - len(rest.lstrip(strip))
                if same < len(rest):
                    return min(low + same, high)
            low = (low | _MASK) + 1
        return high

    def count(self, value: int, low: int, high: int) -> int:
        """How many offsets in [low, high) have that byte."""
        total = 0
        while low < high:
            start = low & _MASK
            stop = min(CHUNK, start + high - low)
            chunk = self._chunks.get(low >> _SHIFT)
            if chunk is not None:
                total += chunk.count(_PLAIN[value], start, stop)
            elif value == 0:
                total += stop - start
            low += stop - start
        return total

    def runs(self, low: int, high: int) -> Iterator[tuple[int, int, int]]:
        """[low, high) as maximal runs (from, to, byte). Do not write while going through them."""
        while low < high:
            value = self.get(low)
            stop = self.find_other(value, low, high)
            yield low, stop, value
            low = stop

    def runs_of(self, value: int, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The maximal runs of one byte in [low, high). Writing what was yielded is allowed."""
        while True:
            low = self.find(value, low, high)
            if low >= high:
                return
            stop = self.find_other(value, low, high)
            yield low, stop
            low = stop

    def forget_below(self, offset: int) -> None:
        """Offsets below are of no interest any more; some may be kept all the same."""
        number = offset >> _SHIFT
        if self._chunks and self._low < number:
            if number - self._low > 4 * len(self._chunks):
                self._chunks = {at: chunk for at, chunk in self._chunks.items() if at >= number}
            else:
                for at in range(self._low, number):
                    self._chunks.pop(at, None)
        self._low = max(self._low, number)

    def clear(self) -> None:
        self._chunks.clear()
        self._sweep_at = _SWEEP_AT

    def forget_from(self, offset: int) -> None:
        """Make everything at and after `offset` 0 again."""
        number = offset >> _SHIFT
        for at in [at for at in self._chunks if at > number]:
            del self._chunks[at]
        if number in self._chunks:
            self.fill(offset, (offset | _MASK) + 1, 0)

    def top(self) -> int:
        """An offset above every byte that is not 0; 0 when there is none."""
        return (max(self._chunks) + 1) << _SHIFT if self._chunks else 0

    def _replace(self, number: int, value: int, chunk: bytearray | bytes | None) -> None:
        if value:
            if chunk is None:
                self._low = min(self._low, number)
            self._chunks[number] = _UNIFORM[value]
        elif chunk is not None:
            del self._chunks[number]

    def _writable(self, number: int, chunk: bytearray | bytes | None) -> bytearray:
        if type(chunk) is bytearray:
            return chunk
        if len(self._chunks) >= self._sweep_at:
            self._sweep()
        if number < self._low:
            self._low = number
        fresh = self._chunks[number] = bytearray(chunk or _ZEROS)
        return fresh

    def _sweep(self) -> None:
        """Share the chunks that have become uniform; done each time their number has doubled."""
        chunks = self._chunks
        for number, chunk in list(chunks.items()):
            if type(chunk) is bytearray and chunk.count(_PLAIN[chunk[0]]) == CHUNK:
                if chunk[0]:
                    chunks[number] = _UNIFORM[chunk[0]]
                else:
                    del chunks[number]
        self._sweep_at = max(_SWEEP_AT, 2 * len(chunks))
