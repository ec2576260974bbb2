"""Delivery tags: the arithmetic against a plain dictionary."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.amqp.unsettled import Taken, Unsettled
from support.effort import examples


class FakeSource:
    """A consumer, as far as the tags are concerned."""

    holder = None

    def settled(self, count: int) -> None: ...


SOURCES = [FakeSource(), FakeSource()]


class Tags(RuleBasedStateMachine):
    """Deliver, settle, hold in a transaction, roll back, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags = Unsettled()
        self.model: dict[int, tuple[FakeSource, int]] = {}
        self.next_tag = 1
        self.next_offset = 100
        self.held: list[Taken] = []

    @rule(count=st.integers(1, 700), source=st.sampled_from(SOURCES))
    def deliver(self, count: int, source: FakeSource) -> None:
        offsets = list(range(self.next_offset, self.next_offset + count))
        assert self.tags.add(source, offsets) == self.next_tag  # type: ignore[arg-type]
        for offset in offsets:
            self.model[self.next_tag] = (source, offset)
            self.next_tag += 1
        self.next_offset += count

    @rule(count=st.integers(1, 700))
    def deliver_without_acknowledgement(self, count: int) -> None:
        assert self.tags.skip(count) == self.next_tag
        self.next_tag += count

    @rule(data=st.data(), multiple=st.booleans(), hold=st.booleans())
    def settle(self, data: st.DataObject, multiple: bool, hold: bool) -> None:
        tag = data.draw(st.integers(0, self.next_tag + 2))
        taken = self.tags.take(tag, multiple)
        if tag == 0 and multiple:
            expected = list(self.model)
        elif tag not in self.model:
            assert taken is None
            return
        else:
            expected = [t for t in self.model if t <= tag] if multiple else [tag]
        assert taken is not None
        assert taken.tags == expected
        assert list(zip(taken.sources, taken.offsets, strict=True)) == [
            self.model.pop(t) for t in expected
        ]
        grouped = {id(source): offsets for source, offsets in taken.by_source()}
        for source in SOURCES:
            own = [o for s, o in zip(taken.sources, taken.offsets, strict=True) if s is source]
            assert grouped.get(id(source), []) == own
        if hold or self.held:
            self.held.append(taken)
        else:
            self.tags.forget_settled()

    @precondition(lambda self: self.held)
    @rule()
    def roll_back(self) -> None:
        for taken in reversed(self.held):
            self.tags.put_back(taken)
            for tag, source, offset in zip(*taken, strict=True):
                self.model[tag] = (source, offset)  # type: ignore[assignment]
        self.model = dict(sorted(self.model.items()))
        self.held.clear()

    @precondition(lambda self: self.held)
    @rule()
    def commit(self) -> None:
        self.held.clear()
        self.tags.forget_settled()

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.tags) == len(self.model)
        assert self.tags.next_tag == self.next_tag


Tags.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30)
TestTags = Tags.TestCase


def test_room_is_given_back_when_the_front_is_settled() -> None:
    tags, source = Unsettled(), FakeSource()
    for _ in range(1000):
        first = tags.add(source, range(100))  # type: ignore[arg-type]
        assert tags.take(first + 99, True) is not None
        tags.forget_settled()
    assert tags._sources == []
    assert tags.next_tag == 100_001


def test_one_old_message_does_not_make_the_others_slow() -> None:
    tags, source = Unsettled(), FakeSource()
    tags.add(source, [0])  # type: ignore[arg-type]
    for offset in range(1, 20_000):
        tag = tags.add(source, [offset])  # type: ignore[arg-type]
        assert tags.take(tag, False) is not None
        tags.forget_settled()
    assert len(tags) == 1
