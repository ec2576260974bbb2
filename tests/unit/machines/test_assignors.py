"""The server-side assignors: complete, exclusive, even, and as still as can be."""

from __future__ import annotations

import uuid

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.machines.assignors import ASSIGNORS, AssignedMember, range_, uniform
from penstock.model.group_record import Assignment
from support.effort import examples

A, B, C = (uuid.UUID(int=n) for n in (1, 2, 3))


def member(
    *topics: uuid.UUID, target: Assignment | None = None, static: str | None = None
) -> AssignedMember:
    return AssignedMember(topics, target or {}, static)


def sizes(assigned: dict[str, Assignment]) -> dict[str, int]:
    return {m: sum(map(len, target.values())) for m, target in assigned.items()}


def test_range_gives_each_member_the_same_slice_of_every_topic() -> None:
    assigned = range_({"m1": member(A, B), "m2": member(A, B)}, {A: 4, B: 3})
    assert assigned == {"m1": {A: (0, 1), B: (0, 1)}, "m2": {A: (2, 3), B: (2,)}}


def test_range_orders_static_members_by_their_lasting_name() -> None:
    members = {"z": member(A, static="i-1"), "a": member(A, static="i-2"), "b": member(A)}
    assigned = range_(members, {A: 3})
    assert assigned == {"z": {A: (0,)}, "a": {A: (1,)}, "b": {A: (2,)}}


def test_uniform_shares_evenly_and_spreads_a_topic() -> None:
    assigned = uniform({"m1": member(A, B), "m2": member(A, B)}, {A: 2, B: 2})
    assert assigned == {"m1": {A: (0,), B: (0,)}, "m2": {A: (1,), B: (1,)}}


def test_uniform_moves_only_what_it_must_when_a_member_joins() -> None:
    members = {"m1": member(A, target={A: (0, 1, 2)}), "m2": member(A, target={A: (3, 4, 5)})}
    assigned = uniform({**members, "m3": member(A)}, {A: 6})
    assert sizes(assigned) == {"m1": 2, "m2": 2, "m3": 2}
    assert set(assigned["m1"][A]) < {0, 1, 2}
    assert set(assigned["m2"][A]) < {3, 4, 5}


def test_uniform_keeps_everything_when_nothing_changed() -> None:
    before = {"m1": {A: (0, 2, 4)}, "m2": {A: (1, 3)}}
    members = {m: member(A, target=target) for m, target in before.items()}
    assert uniform(members, {A: 5}) == before


def test_uniform_drops_partitions_that_are_gone() -> None:
    assigned = uniform({"m1": member(A, target={A: (0, 9), C: (0,)})}, {A: 1})
    assert assigned == {"m1": {A: (0,)}}


def test_uniform_evens_out_members_with_different_subscriptions() -> None:
    members = {"both": member(A, B), "only-a": member(A), "only-b": member(B)}
    assigned = uniform(members, {A: 6, B: 3})
    assert sizes(assigned) == {"both": 3, "only-a": 3, "only-b": 3}


def test_topics_that_nobody_reads_are_given_to_nobody() -> None:
    assert uniform({"m": member(A)}, {A: 1, B: 2}) == {"m": {A: (0,)}}
    assert range_({"m": member(A)}, {A: 1, B: 2}) == {"m": {A: (0,)}}


def test_without_topics_or_members_nothing_is_assigned() -> None:
    assert uniform({}, {A: 3}) == {}
    assert uniform({"m": member()}, {}) == {"m": {}}
    assert range_({"m": member()}, {}) == {"m": {}}


_TOPICS = st.dictionaries(st.sampled_from([A, B, C]), st.integers(0, 9), max_size=3)


@st.composite
def _questions(draw: st.DrawFn) -> tuple[dict[str, AssignedMember], dict[uuid.UUID, int]]:
    counts = draw(_TOPICS)
    members = {}
    for number in range(draw(st.integers(0, 6))):
        topics = draw(st.lists(st.sampled_from([A, B, C]), unique=True))
        target = draw(
            st.dictionaries(
                st.sampled_from([A, B, C]),
                st.lists(st.integers(0, 9), unique=True, min_size=1).map(
                    lambda p: tuple(sorted(p))
                ),
            )
        )
        read = tuple(topic for topic in topics if topic in counts)
        members[f"m{number}"] = AssignedMember(read, target)
    return members, counts


@settings(max_examples=examples(300))
@given(_questions(), st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_that_is_read_has_exactly_one_owner_who_reads_it(
    question: tuple[dict[str, AssignedMember], dict[uuid.UUID, int]], name: str
) -> None:
    members, counts = question
    assigned = ASSIGNORS[name](members, counts)
    assert set(assigned) == set(members)
    given_out = [(t, p) for target in assigned.values() for t, ps in target.items() for p in ps]
    assert len(given_out) == len(set(given_out))
    for member_id, target in assigned.items():
        assert set(target) <= set(members[member_id].topic_ids)
        assert all(partitions for partitions in target.values())
    read = {topic for m in members.values() for topic in m.topic_ids}
    expected = {(topic, index) for topic in read for index in range(counts[topic])}
    assert set(given_out) == expected


@given(st.integers(1, 7), st.integers(0, 20), st.integers(0, 20))
def test_uniform_is_even_and_stable_for_equal_subscriptions(
    size: int, partitions_a: int, partitions_b: int
) -> None:
    counts = {A: partitions_a, B: partitions_b}
    first = uniform({f"m{n}": member(A, B) for n in range(size)}, counts)
    loads = sizes(first).values()
    assert max(loads) - min(loads) <= 1
    again = uniform({m: member(A, B, target=target) for m, target in first.items()}, counts)
    assert again == first
