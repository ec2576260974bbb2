"""Share groups as a machine: who joins, who reads what, and what a heartbeat answers."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import (
    FencedMemberEpoch,
    GroupMaxSizeReached,
    InvalidRequest,
    UnknownMember,
)
from penstock.machines.decision import Timer, TimerKind
from penstock.machines.share_group import ShareGroup, ShareGroupState, tombstones
from penstock.machines.share_group_heartbeat import (
    ShareGroupLimits,
    ShareHeartbeat,
    assign,
    decide,
    timer_fired,
)
from penstock.model.consumer_group_records import SubscribedTopic

ORDERS, BILLS = uuid.UUID(int=1), uuid.UUID(int=2)


class Topics:
    """The topics there are."""

    def __init__(self) -> None:
        self.version = 0
        self.counts = {"orders": (ORDERS, 1)}

    def find(self, name: str) -> SubscribedTopic | None:
        found = self.counts.get(name)
        return None if found is None else SubscribedTopic(found[0], name, found[1])

    def names(self) -> Iterable[str]:
        return self.counts


class Story:
    """A group, and heartbeats that change it."""

    def __init__(self, **limits: int) -> None:
        self.group = ShareGroup("g")
        self.topics = Topics()
        self.limits = ShareGroupLimits(**limits)

    def beat(self, member: str, epoch: int, names: tuple[str, ...] | None = None) -> Any:
        command = ShareHeartbeat(member, epoch, None, "client", "/host", names)
        decision = decide(self.group, command, self.limits, self.topics, 0, topics_changed=True)
        for record in decision.records:
            self.group.apply(record)
        return decision.reply

    def join(self, member: str) -> Any:
        return self.beat(member, 0, ("orders",))


def test_every_member_reads_the_one_partition() -> None:
    story = Story()
    for member in "abc":
        assert story.join(member).assignment == {ORDERS: (0,)}
    assert story.group.state is ShareGroupState.STABLE


def test_a_heartbeat_without_news_changes_nothing_and_says_nothing() -> None:
    story = Story()
    epoch = story.join("a").member_epoch
    command = ShareHeartbeat("a", epoch, None, "client", "/host", None)
    decision = decide(story.group, command, story.limits, story.topics, 0, topics_changed=True)
    assert not decision.records
    assert decision.reply.assignment is None


def test_partitions_that_come_later_are_told() -> None:
    story = Story()
    epoch = story.join("a").member_epoch
    story.topics.counts["orders"] = (ORDERS, 3)
    reply = story.beat("a", epoch)
    assert reply.member_epoch > epoch
    assert reply.assignment == {ORDERS: (0, 1, 2)}


def test_a_member_whose_answer_was_lost_is_told_again() -> None:
    story = Story()
    epoch = story.join("a").member_epoch
    story.topics.counts["orders"] = (ORDERS, 2)
    told = story.beat("a", epoch)
    assert story.beat("a", epoch).assignment == told.assignment


def test_members_leave_and_the_group_is_empty_but_there() -> None:
    story = Story()
    story.join("a")
    assert story.beat("a", -1).member_epoch == -1
    assert story.group.state is ShareGroupState.EMPTY
    assert not story.group.is_gone
    for record in tombstones(story.group):
        story.group.apply(record)
    assert story.group.is_gone


def test_a_silent_member_is_taken_out() -> None:
    story = Story()
    story.join("a")
    for record in timer_fired(story.group, Timer(TimerKind.SESSION, "a"), 0).records:
        story.group.apply(record)
    with pytest.raises(UnknownMember):
        story.beat("a", 1)


def test_an_epoch_of_nobody_is_fenced() -> None:
    story = Story()
    epoch = story.join("a").member_epoch
    with pytest.raises(FencedMemberEpoch):
        story.beat("a", epoch + 7)


def test_a_group_has_only_so_many_members() -> None:
    story = Story(max_size=1)
    story.join("a")
    story.join("a")
    with pytest.raises(GroupMaxSizeReached):
        story.join("b")


@pytest.mark.parametrize(
    "command",
    [
        ShareHeartbeat("", 0, None, "", "", ("orders",)),
        ShareHeartbeat("a", -2, None, "", "", ("orders",)),
        ShareHeartbeat("a", 0, None, "", "", None),
        ShareHeartbeat("a", 0, None, "", "", ()),
        ShareHeartbeat("a", 0, "", "", "", ("orders",)),
    ],
)
def test_what_no_member_may_say_is_refused(command: ShareHeartbeat) -> None:
    story = Story()
    with pytest.raises(InvalidRequest):
        decide(story.group, command, story.limits, story.topics, 0, topics_changed=True)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 3))
def test_every_partition_has_readers_and_every_member_partitions(
    members: int, orders: int, bills: int
) -> None:
    names = ("orders", "bills")
    counts = {"orders": (ORDERS, orders), "bills": (BILLS, bills)}
    found = assign({f"m{n}": names for n in range(members)}, counts)
    assert all(found.values())
    for topic_id, count in ((ORDERS, orders), (BILLS, bills)):
        readers = Counter(p for target in found.values() for p in target.get(topic_id, ()))
        assert set(readers) == set(range(count))
        assert max(readers.values(), default=0) - min(readers.values(), default=0) <= 1


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), st.booleans(), min_size=1))
def test_nobody_reads_what_they_did_not_ask_for(wants_bills: dict[str, bool]) -> None:
    counts = {"orders": (ORDERS, 2), "bills": (BILLS, 2)}
    wishes = {
        name: ("orders", "bills") if both else ("orders",) for name, both in wants_bills.items()
    }
    for member, target in assign(wishes, counts).items():
        assert wants_bills[member] or BILLS not in target
