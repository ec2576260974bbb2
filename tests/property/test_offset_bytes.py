"""Bytes by offset, in chunks, against one plain bytearray."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.machines.delivery_counts import DeliveryCounts
from penstock.machines.offset_bytes import OffsetBytes
from support.effort import examples

SIZE = 4500  # a little more than four chunks
# Mostly around the edges of chunks, where mistakes live.
OFFSETS = st.integers(0, SIZE) | st.sampled_from(
    [
        edge + by
        for edge in (0, 1024, 2048, 3072, 4096)
        for by in (-2, -1, 0, 1, 2)
        if edge + by >= 0
    ]
)
VALUES = st.integers(0, 5)


class BytesAgainstNaive(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.real = OffsetBytes()
        self.naive = bytearray(SIZE)
        self.low = 0  # below it the real one may have forgotten

    @rule(a=OFFSETS, b=OFFSETS, value=VALUES)
    def fill(self, a: int, b: int, value: int) -> None:
        low, high = max(self.low, min(a, b)), max(a, b)
        if low < high:
            self.real.fill(low, high, value)
            self.naive[low:high] = bytes([value]) * (high - low)

    @rule(offset=st.integers(0, SIZE - 1), value=VALUES)
    def put(self, offset: int, value: int) -> None:
        if offset >= self.low:
            self.real.put(offset, value)
            self.naive[offset] = value

    @rule(a=OFFSETS, b=OFFSETS)
    def translate(self, a: int, b: int) -> None:
        low, high = max(self.low, min(a, b)), max(a, b)
        table = bytes((value + 1) % 6 for value in range(256))
        if low < high:
            self.real.translate(low, high, table)
            self.naive[low:high] = self.naive[low:high].translate(table)

    @rule(offset=OFFSETS)
    def forget_below(self, offset: int) -> None:
        self.low = max(self.low, offset)
        self.real.forget_below(offset)

    @rule(offset=OFFSETS)
    def forget_from(self, offset: int) -> None:
        if offset >= self.low:
            self.real.forget_from(offset)
            self.naive[offset:] = bytes(len(self.naive) - offset)

    @rule()
    def sweep(self) -> None:
        self.real._sweep()

    @rule(a=OFFSETS, b=OFFSETS, value=VALUES)
    def look(self, a: int, b: int, value: int) -> None:
        low, high = max(self.low, min(a, b)), max(a, b)
        if low >= high:
            return
        part = self.naive[low:high]
        found = part.find(value)
        assert self.real.find(value, low, high) == (high if found < 0 else low + found)
        other = next((at for at, byte in enumerate(part, low) if byte != value), high)
        assert self.real.find_other(value, low, high) == other
        assert self.real.count(value, low, high) == part.count(value)
        assert self.real.alike(low, high, value) is (other == high)
        runs = list(self.real.runs(low, high))
        assert b"".join(bytes([v]) * (stop - start) for start, stop, v in runs) == part
        mine = [(start, stop) for start, stop, v in runs if v == value]
        assert list(self.real.runs_of(value, low, high)) == mine

    @invariant()
    def nothing_is_above_the_top(self) -> None:
        assert not any(self.naive[max(self.low, self.real.top()) :])


TestOffsetBytes = BytesAgainstNaive.TestCase
TestOffsetBytes.settings = settings(max_examples=examples(60), stateful_step_count=40)


def test_counts_go_beyond_a_byte_across_chunks() -> None:
    counts = DeliveryCounts()
    counts.put(1000, 1050, 253)
    for _ in range(4):
        counts.add_one(1020, 1030)
    assert counts.get(1025) == 257
    assert counts.get(1019) == 253
    assert list(counts.runs(1018, 1022)) == [
        (1018, 1020, 253),
        (1020, 1021, 257),
        (1021, 1022, 257),
    ]
    counts.forget_below(1024)
    assert counts.get(1024) == 257
